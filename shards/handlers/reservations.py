"""Reservations: messages of a queue that are held under a name, for a time, to be acknowledged together.

    ready ── reserve ──▶ held ── acknowledge ──▶ settled; when nothing is left, the name is kept for a while
      ▲                   │
      └── release, lease ─┘      at their place, marked redelivered

Held messages are nobody else's: no consumer gets them, nothing expires, length limits do not count them, and a purge
leaves them. Every change is on disk before it is answered, and a thousand messages or fewer are acknowledged by one
commit of the store: a crash leaves all of them reserved, or none. What is stored of a reservation is not written again
when a part of it is acknowledged, as there may be many parts: a start leaves out what is not in the queue any more.
"""

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.reads import EndReservation, Reserve
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.limits import COMMITTED_KEPT_MS, RESERVATION_MS
from shardmq.ranges import RangeSet
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.queues.queue import Queue
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.segments.steps import RANGE_COST_BYTES, Steps
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.schedule import Entry
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import Reservation
from shardmq.shards.storage.recovery import RecoveredQueue

RESERVATIONS_MAX: Final = 1000
"""How many reservations a queue may have, and how many names are kept of its acknowledged ones, and of those that ended
in another way. A job needs one or two."""

ACKNOWLEDGED_MAX: Final = 10_000
"""Names of acknowledged reservations that a shard keeps: each takes about 1 KB of its memory for a week."""

ACKNOWLEDGED_MS: Final = COMMITTED_KEPT_MS
"""How long the name of an acknowledged reservation is kept, unless there are too many: as long as that of a committed
transaction, so that a job that is run again is told that it was done."""

STEP_BYTES: Final = 4 << 20
"""How much is acknowledged in one step; a pass takes a few steps."""

AT_ONCE: Final = 1000
"""Messages that are acknowledged in one step, whatever their size: who moves them names a transaction after them, and
has to find the same ones again after a crash."""

BUSY_MS: Final = 1000
"""How much longer a lease lasts at least, while messages of it are being acknowledged."""

RELEASED: Final = "it was released, and its messages are back at their place; reserve them again, and read again"
OVER: Final = (
    "its lease was over, and its messages are back at their place; reserve them again for longer, or reserve under the "
    "same name now and then while it lasts, and read again"
)
FORGOTTEN: Final = "it was acknowledged, all of it, and its name was kept no longer; there is nothing to do"
UNKNOWN: Final = (
    "it was never made, or it ended before this shard was last started; reserve under that name, and read again"
)
"""What became of a reservation that is not there."""


class ActiveReservation:
    """A reservation under way.

    Attributes:
        name: its name.
        left: numbers of the messages that are left of it.
        until_ms: when its lease is over; when its name is forgotten, where it is acknowledged.
        span: from the first number it had, when it was made, to behind the last.
        fresh_from: by subqueue, the number from which on messages had not been delivered before.
        is_acknowledged: whether all of it was.
        look: the next look at its time; None where there is none to come.
        waiting: requests that came while it is being acknowledged step by step; None while it is not.
    """

    __slots__ = ("fresh_from", "is_acknowledged", "left", "look", "name", "span", "until_ms", "waiting")

    def __init__(
        self, name: str, left: RangeSet, until_ms: int, span: tuple[int, int], fresh_from: Mapping[int, int]
    ) -> None:
        self.name = name
        self.left = left
        self.until_ms = until_ms
        self.span = span
        self.fresh_from = fresh_from
        self.is_acknowledged = False
        self.look: Entry | None = None
        self.waiting: list[tuple[Responder[Any], Reserve | EndReservation]] | None = None


class _Names:
    """The reservations of one queue by name, and what became of the last ones that ended.

    Attributes:
        there: all that there are.
        acknowledged: the names of those that are acknowledged, in the order in which they were.
        ended: the names of the last ones that ended, each with what became of it.
    """

    __slots__ = ("acknowledged", "ended", "there")

    def __init__(self) -> None:
        self.there: dict[str, ActiveReservation] = {}
        self.acknowledged: OrderedDict[str, None] = OrderedDict()
        self.ended: OrderedDict[str, str] = OrderedDict()

    def end(self, name: str, what: str) -> None:
        """Remove a reservation."""
        del self.there[name]
        self.acknowledged.pop(name, None)
        self.ended[name] = what
        self.ended.move_to_end(name)
        if len(self.ended) > RESERVATIONS_MAX:
            self.ended.popitem(last=False)


class Reservations:
    """The reservations of a shard.

    Args:
        state: the queues.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._names: dict[int, _Names] = {}
        self._kept: OrderedDict[tuple[int, str], None] = OrderedDict()  # of all queues, as they came
        self.handlers: dict[type, Callable[[Any, Any], None]] = {Reserve: self._reserve, EndReservation: self._end}

    def scan(self, stored: Mapping[int, RecoveredQueue], reservations: Iterable[Reservation]) -> None:
        """At start, before there are queues: take in what was stored, and tell each queue which messages are reserved.

        Messages that are gone are left out, on disk as well: others will get the numbers of transient ones.
        """
        buffer = self._state.buffer
        acknowledged: list[tuple[int, ActiveReservation]] = []
        for found in reservations:
            queue = stored.get(found.queue)
            if queue is None:
                buffer.reserve(found.queue, found.name, None)
                continue
            left = [part for start, end in found.ranges for part in queue.living(start, end)]
            fresh_from = {number >> SUBQUEUE_BITS: number for number in found.fresh_from}
            held = ActiveReservation(found.name, RangeSet(left), found.until_ms, found.span, fresh_from)
            self._names.setdefault(found.queue, _Names()).there[found.name] = held
            if found.is_acknowledged:
                held.is_acknowledged = True
                acknowledged.append((found.queue, held))
            if list(held.left) != found.ranges:
                buffer.reserve(found.queue, found.name, _stored(found.queue, held))
            queue.reserved += left
        for number, held in sorted(acknowledged, key=lambda known: known[1].until_ms):
            self._remember(number, held.name)
        for queue in stored.values():
            queue.reserved.sort()

    def adopt(self, number: int) -> None:
        """At start: go on with the leases of a queue's reservations."""
        names = self._names.get(number)
        for held in names.there.values() if names is not None else ():
            self._expect(number, held)

    def find(self, responder: Responder[Any], hosted: HostedQueue, name: str) -> ActiveReservation | None:
        """Return the reservation of that name; where there is none, refuse the request and return None."""
        held = self._held(hosted.queue.id, name)
        if held is None:
            names = self._names.get(hosted.queue.id)
            what = names.ended.get(name, UNKNOWN) if names is not None else UNKNOWN
            text = f"{hosted.title} has no reservation '{name}': {what}"
            responder.refuse(ReplyCode.NOT_FOUND, text)
        return held

    def retire(self, queue: Queue) -> None:
        """Forget the reservations of a queue that is deleted."""
        names = self._names.pop(queue.id, None)
        for held in names.there.values() if names is not None else ():
            self._kept.pop((queue.id, held.name), None)
            self._state.schedule.cancel(held.look)
            if queue.declared.durable:
                self._state.buffer.reserve(queue.id, held.name, None)

    def _reserve(self, responder: Responder[tuple[int, bool]], message: Reserve) -> None:
        state = self._state
        hosted = state.found(responder, message.queue)
        if hosted is None or state.is_refused_of_stream(responder, hosted, "a reservation"):
            return
        state.use(hosted)
        held = self._held(message.queue, message.name)
        if held is not None and held.waiting is not None:
            held.waiting.append((responder, message))
            return
        if message.again and (held is None or not held.left):
            if not hosted.queue.ready:
                responder.answer((0, False))
                return
            if held is not None:
                self._forget(hosted, held, FORGOTTEN)
                held = None
        if held is None:
            names = self._names.setdefault(message.queue, _Names())
            if len(names.there) - len(names.acknowledged) >= RESERVATIONS_MAX:
                text = f"{hosted.title} has {RESERVATIONS_MAX} reservations; acknowledge or release some"
                responder.refuse(ReplyCode.RESOURCE_ERROR, text)
                return
            names.ended.pop(message.name, None)
            held = names.there[message.name] = self._make(hosted, message)
        if not held.is_acknowledged:
            # From now, not from the beginning of the pass: the request may have been sent since.
            held.until_ms = state.clock.now_ms() + (message.lease_ms or RESERVATION_MS)
            self._expect(message.queue, held)
            self._write(hosted, held)
        responder.answer((held.left.count, held.is_acknowledged))

    def _make(self, hosted: HostedQueue, message: Reserve) -> ActiveReservation:
        state, queue = self._state, hosted.queue
        state.catch_up(hosted)
        queue.expire(state.schedule.now_ms)
        fresh_from = {subqueue.number: subqueue.cursor for subqueue in queue.subqueues}
        if message.ranges == []:  # a mark: what is ready is neither touched nor marked as redelivered for it
            return ActiveReservation(message.name, RangeSet(), 0, (0, 0), fresh_from)
        left = RangeSet(queue.reserve(message.messages_max or queue.ready))
        if message.ranges is not None:
            others, left = left, RangeSet(left.extract(message.ranges))
            queue.release(list(others))
        state.active[queue.id] = hosted
        span = (left.first()[0], left.end) if left else (0, 0)
        return ActiveReservation(message.name, left, 0, span, fresh_from)

    def _end(self, responder: Responder[int], message: EndReservation) -> None:
        state = self._state
        hosted = state.found(responder, message.queue)
        if hosted is None:
            return
        state.use(hosted)
        held = self._held(message.queue, message.name)
        if held is not None and held.waiting is not None:
            held.waiting.append((responder, message))
            return
        if not message.acknowledge:
            responder.answer(0 if held is None else self._release(hosted, held, RELEASED))
            return
        held = self.find(responder, hosted, message.name)
        if held is None:
            return
        outside = _outside(message.ranges, held)
        if outside is not None:
            text = (
                f"range [{outside[0]}, {outside[1]}) is not within reservation '{message.name}' of {hosted.title}, "
                f"which has [{held.span[0]}, {held.span[1]}); acknowledge ranges of it, rising"
            )
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
            return
        self._acknowledge(responder, message, hosted, held)

    def _held(self, number: int, name: str) -> ActiveReservation | None:
        names = self._names.get(number)
        return names.there.get(name) if names is not None else None

    def _acknowledge(
        self, responder: Responder[int], message: EndReservation, hosted: HostedQueue, held: ActiveReservation
    ) -> None:
        """Settle the named messages that are left, or all that are left where none are named, step by step."""
        before = held.left.count
        held.waiting = []
        steps = self._settle(hosted, held, message.ranges or list(held.left))

        def done() -> None:
            if hosted.is_gone:
                self._state.refuse_missing(responder, message.queue)
            else:
                responder.answer(before - held.left.count)
                self._acknowledged(hosted, held)
            waiting, held.waiting = held.waiting or [], None
            for waiter, request in waiting:
                try:
                    self.handlers[type(request)](waiter, request)
                except RowDamaged as damage:
                    self._state.take_out(damage)
                    self._state.refuse_missing(waiter, request.queue)

        self._state.slices.add(steps, done)

    def _settle(self, hosted: HostedQueue, held: ActiveReservation, ranges: Ranges) -> Steps:
        """Settle what is left of some ranges. Where that ends early, nothing is lost: the rest stays reserved."""
        place, reached = 0, 0
        step_bytes = STEP_BYTES if sum([end - start for start, end in ranges]) > AT_ONCE else sys.maxsize
        while place < len(ranges) and not hosted.is_gone:
            parts: Ranges = []
            cost = 0
            while place < len(ranges) and cost < step_bytes:
                start, end = ranges[place]
                part = next(held.left.walk(max(start, reached), end), None) if reached < end else None
                if part is None:
                    place += 1
                    continue
                stop, message_bytes = hosted.queue.extent(part[0])
                reached = min(part[1], stop)
                parts.append((part[0], reached))
                cost += max(RANGE_COST_BYTES, message_bytes * (reached - part[0]))
            if parts:
                held.left.extract(parts)
                hosted.queue.settle_reserved(parts)
                self._state.active[hosted.queue.id] = hosted
                yield cost

    def _acknowledged(self, hosted: HostedQueue, held: ActiveReservation) -> None:
        """Note that messages of it were acknowledged, which may have been the last."""
        if not held.left and not held.is_acknowledged:
            held.is_acknowledged = True
            held.until_ms = max(held.until_ms, self._state.clock.now_ms() + ACKNOWLEDGED_MS)
            held.fresh_from = {}  # there is nothing left to read
            self._write(hosted, held)
            self._remember(hosted.queue.id, held.name)
            self._forget_first(hosted)

    def _release(self, hosted: HostedQueue, held: ActiveReservation, what: str) -> int:
        """Make what is left of it ready again; return how many messages that is. An acknowledged one keeps its name."""
        if held.is_acknowledged:
            return 0
        count = held.left.count
        hosted.queue.release(list(held.left))
        self._state.active[hosted.queue.id] = hosted
        self._forget(hosted, held, what)
        return count

    def _forget(self, hosted: HostedQueue, held: ActiveReservation, what: str) -> None:
        self._names[hosted.queue.id].end(held.name, what)
        self._kept.pop((hosted.queue.id, held.name), None)
        self._state.schedule.cancel(held.look)
        if hosted.is_durable:
            self._state.buffer.reserve(hosted.queue.id, held.name, None)

    def _remember(self, number: int, name: str) -> None:
        self._names[number].acknowledged[name] = self._kept[number, name] = None

    def _forget_first(self, hosted: HostedQueue) -> None:
        """Forget the names that were acknowledged first, where there are too many of the queue, or of the shard."""
        names = self._names[hosted.queue.id]
        while len(names.acknowledged) > RESERVATIONS_MAX:
            self._forget(hosted, names.there[next(iter(names.acknowledged))], FORGOTTEN)
        while len(self._kept) > ACKNOWLEDGED_MAX:
            (number, name), _ = self._kept.popitem(last=False)
            if number in self._state.queues:  # else it is out of service, with all that is stored of it
                self._forget(self._state.queues[number], self._names[number].there[name], FORGOTTEN)

    def _write(self, hosted: HostedQueue, held: ActiveReservation) -> None:
        if hosted.is_durable:
            buffer = self._state.buffer
            buffer.reserve(hosted.queue.id, held.name, _stored(hosted.queue.id, held))
            buffer.note(self._state.clock.note())  # so that its time does not begin anew when the machine does

    def _expect(self, number: int, held: ActiveReservation) -> None:
        if held.look is None or held.until_ms < held.look.due_ms:
            self._state.schedule.cancel(held.look)
            held.look = self._state.schedule.at(held.until_ms, partial(self._look, number, held.name))

    def _look(self, number: int, name: str) -> None:
        """End a reservation whose time is over."""
        hosted, held = self._state.queues.get(number), self._held(number, name)
        if hosted is None or held is None:
            return
        held.look = None
        if held.waiting is not None:
            held.until_ms = max(held.until_ms, self._state.schedule.now_ms + BUSY_MS)
        if held.until_ms > self._state.schedule.now_ms:
            self._expect(number, held)
        elif held.is_acknowledged:
            self._forget(hosted, held, FORGOTTEN)
        else:
            self._release(hosted, held, OVER)


def _stored(queue: int, held: ActiveReservation) -> Reservation:
    return Reservation(
        queue,
        held.name,
        list(held.left),
        held.until_ms,
        held.is_acknowledged,
        held.span,
        list(held.fresh_from.values()),
    )


def _outside(ranges: Ranges, held: ActiveReservation) -> tuple[int, int] | None:
    """The first range that is not of that reservation, or not behind the one before it."""
    least, most = held.span
    for start, end in ranges:
        if not least <= start < end <= most:
            return start, end
        least = end
    return None
