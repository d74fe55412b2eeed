"""Pulls: messages of a partition by their offsets, asked for in portions; who is at its end may wait for more.

    Pull ──► there are messages ─────────────────────────────► answered in this pass
      └────► none, and a time to wait ──► waits ──► appended ─► answered with the pass that writes them
                                            └─────► time over ► answered with nothing

What is answered leaves after the commit of its pass, so that nobody reads what is not on disk.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.reads import Pull, Pulled
from shardmq.errors import OffsetOutOfRange, ReplyCode, RowDamaged
from shardmq.shards.failed_reads import refuse_failed
from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.state.shard import ShardState
from shardmq.shards.state.sliced_work import PassBudget
from shardmq.shards.topics.cursor import SCAN_BYTES, Cursor, cursor_at
from shardmq.shards.topics.partition import Partition

PASS_BYTES: Final = 16 << 20
"""About how many bytes are pulled in one pass, or read to find what to pull; who comes later has a turn in the next."""

WAITING_MAX: Final = 65_536
"""Pulls that wait on a shard, some 600 bytes each. One more is answered at once, with nothing."""

RUNS_MAX: Final = 256
"""Runs of neighbouring messages that one pull brings: with tags, each takes some 10 us, however few messages it has."""

ANSWER_BYTES: Final = 1024
"""What a pull takes of a pass beside the records that it brings."""

STALE_MAX: Final = 64
"""Deadlines of pulls that were answered before, which may lie among the others."""

NEVER_MS: Final = 1 << 62
"""Later than any deadline."""


class _Waiting:
    """A pull that is not answered yet.

    Attributes:
        responder: whom to answer.
        message: what was asked.
        cursor: where it is; None until it was looked at.
        due_ms: when it waits no more.
        is_timed: whether its deadline is noted.
        is_over: whether it is answered, or is to be whatever there is.
    """

    __slots__ = ("cursor", "due_ms", "is_over", "is_timed", "message", "responder")

    def __init__(self, responder: Responder[Pulled], message: Pull, now_ms: int) -> None:
        self.responder = responder
        self.message = message
        self.cursor: Cursor | None = None
        self.due_ms = now_ms + message.wait_ms
        self.is_timed = False
        self.is_over = not message.wait_ms


class _Deadlines:
    """When pulls that wait are answered with nothing. One that is answered before leaves its deadline behind a while.

    Args:
        state: whose schedule they are in, one at a time.
        over: called with those whose time is over.
    """

    def __init__(self, state: ShardState, over: Callable[[list[_Waiting]], None]) -> None:
        self._schedule = state.schedule
        self._over = over
        self._heap: list[tuple[int, int, _Waiting]] = []
        self._made = 0
        self._alarm_ms = NEVER_MS

    def add(self, waiting: _Waiting, count: int) -> None:
        """Add one; `count` wait in all."""
        if waiting.is_timed:
            return
        waiting.is_timed = True
        if len(self._heap) > 2 * count + STALE_MAX:
            self._heap = [entry for entry in self._heap if not entry[2].is_over]
            heapq.heapify(self._heap)
        self._made += 1
        heapq.heappush(self._heap, (waiting.due_ms, self._made, waiting))
        self._arm()

    def _arm(self) -> None:
        if self._heap and self._heap[0][0] < self._alarm_ms:
            self._alarm_ms = self._heap[0][0]
            self._schedule.at(self._alarm_ms, self._look)

    def _look(self) -> None:
        late = []
        while self._heap and self._heap[0][0] <= self._schedule.now_ms:
            waiting = heapq.heappop(self._heap)[2]
            if not waiting.is_over:
                late.append(waiting)
        if self._alarm_ms <= self._schedule.now_ms:
            self._alarm_ms = NEVER_MS
        self._arm()
        self._over(late)


class Pulls:
    """Answers pulls, at once or when there is something.

    Args:
        state: the queues.

    Attributes:
        late: pulls for another pass: this one has done enough.
        waiting: those that wait for messages, by the partition's id.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self.late: deque[_Waiting] = deque()
        self.waiting: dict[int, dict[_Waiting, None]] = {}
        self._count = 0
        self._deadlines = _Deadlines(state, self._end)
        self._budget = PassBudget(state.buffer)
        self.handlers: dict[type, Callable[[Any, Any], None]] = {Pull: self._pull}

    def wait_seconds(self, _now: float) -> float | None:
        """Return when the next turn is, in seconds from now; None where nobody waits for it."""
        return 0.0 if self.late else None

    def begin(self) -> None:
        """A pass begins: those that were late have their turn."""
        for _ in range(len(self.late)):
            if self._budget.left(PASS_BYTES) <= 0:
                return
            self._try(self.late.popleft())

    def lost(self, peer: Peer) -> None:
        """Forget the pulls of a session that is over."""
        for number in list(self.waiting):
            for waiting in [each for each in self.waiting[number] if each.responder.peer is peer]:
                waiting.is_over = True
                self._forget(waiting)
        late = [each for each in self.late if each.responder.peer is not peer]
        self.late.clear()
        self.late += late

    def look(self) -> None:
        """Answer those that wait for partitions to which something happened in this pass, before it is committed."""
        state = self._state
        if self.waiting:
            for number in self.waiting.keys() & (state.active.keys() | state.gone):
                for waiting in list(self.waiting[number]):
                    self._forget(waiting)
                    self._take_up(waiting)
        state.gone.clear()

    def _pull(self, responder: Responder[Pulled], message: Pull) -> None:
        self._take_up(_Waiting(responder, message, self._state.schedule.now_ms))

    def _take_up(self, waiting: _Waiting) -> None:
        if self._budget.left(PASS_BYTES) > 0 and not self.late:
            self._try(waiting)
        else:
            self.late.append(waiting)

    def _end(self, late: list[_Waiting]) -> None:
        """Answer those whose time is over."""
        for waiting in late:
            waiting.is_over = True
            if waiting in self.waiting.get(waiting.message.queue, ()):
                self._forget(waiting)
                self._take_up(waiting)

    def _try(self, waiting: _Waiting) -> None:
        """Answer a pull, or have it wait."""
        state, message, responder = self._state, waiting.message, waiting.responder
        hosted = state.found(responder, message.queue)
        if hosted is None:
            waiting.is_over = True
            return
        partition = hosted.queue
        if not isinstance(partition, Partition):
            waiting.is_over = True
            text = f"{hosted.title} is no stream: its messages have no offsets; consume it, or read it by queue_read"
            responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
            return
        read_before = state.buffer.read_once_bytes
        try:
            self._answer(waiting, partition)
        except OffsetOutOfRange as error:
            waiting.is_over = True
            responder.refuse(error.code, error.text)
        except RowDamaged as damage:
            waiting.is_over = True
            state.take_out(damage)
            state.refuse_missing(responder, message.queue)
        except Exception as fault:  # noqa: BLE001  it only reads
            waiting.is_over = True
            refuse_failed(responder, message, fault)
        self._budget.spend(state.buffer.read_once_bytes - read_before)

    def _answer(self, waiting: _Waiting, partition: Partition) -> None:
        message, cursor = waiting.message, waiting.cursor
        if cursor is None:
            cursor = waiting.cursor = cursor_at(partition, message.reading)
        elif message.reading.is_exact:
            cursor.check()
        is_late = waiting.is_over and message.wait_ms
        if not cursor.ready and cursor.is_behind and not is_late:  # more is to be looked through for its tags
            self._budget.spend(SCAN_BYTES)
            self.late.append(waiting)
            return
        if not cursor.ready and not waiting.is_over and self._count < WAITING_MAX:
            self.waiting.setdefault(partition.id, {})[waiting] = None
            self._count += 1
            self._deadlines.add(waiting, self._count)
            return
        waiting.is_over = True
        deliveries, size = _taken(cursor, message)
        self._budget.spend(ANSWER_BYTES + sum([len(delivery.batch.records) for delivery in deliveries]))
        waiting.responder.answer(Pulled(deliveries, cursor.offset, partition.first, partition.next, size))

    def _forget(self, waiting: _Waiting) -> None:
        """Take a pull out of those that wait; one that waits again keeps its deadline."""
        number = waiting.message.queue
        group = self.waiting[number]
        del group[waiting]
        self._count -= 1
        if not group:
            del self.waiting[number]


def _taken(cursor: Cursor, message: Pull) -> tuple[list[Delivery], int]:
    """Return the messages that a pull gets; and the size of the first one, where it is too large."""
    deliveries: list[Delivery] = []
    count, room = message.count, message.bytes_max
    while count and len(deliveries) < RUNS_MAX and (ready := cursor.ready):
        taken = cursor.take(min(ready, count), room, alone=False)
        if not taken:
            return deliveries, 0 if deliveries else cursor.head_bytes()
        for delivery in taken:
            count -= delivery.batch.count
            room -= len(delivery.batch.records)
        deliveries += taken
    return deliveries, 0
