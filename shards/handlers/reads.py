"""Reading a queue without changing it: it is cut into slices, and messages are shown by number.

Bodies are read from the store segment by segment, and dropped afterwards; those that are in memory anyway are taken
from there.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.reads import Read, SeenBatch, Slices
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.shards.failed_reads import refuse_failed
from shardmq.shards.handlers.reservations import ActiveReservation, Reservations
from shardmq.shards.queues.delivery import SUBQUEUE_BITS, Delivery
from shardmq.shards.queues.plain_queue import PEEK_BYTES
from shardmq.shards.queues.queue import Queue
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.state.shard import ShardState
from shardmq.shards.state.sliced_work import PassBudget

PASS_BYTES: Final = 4 * PEEK_BYTES
"""About how many bytes are shown in one pass, or read to find what to show: a hundred readers wait for one another, and
nobody else waits for them."""

READ_RANGES: Final = 8192
"""Ranges of neighbouring messages shown at once: each takes some 10 us, however few messages it has."""

ALL_NUMBERS: Final = 1 << 64
"""Above all messages' numbers."""


class Reads:
    """Cuts queues into slices, and reads them without changing them.

    Args:
        state: the queues.
        reservations: what is reserved in them.

    Attributes:
        late: reads for another pass: this one has shown enough.
    """

    def __init__(self, state: ShardState, reservations: Reservations) -> None:
        self._state = state
        self._reservations = reservations
        self.late: deque[tuple[Responder[tuple[Sequence[SeenBatch], int | None]], Read]] = deque()
        self._budget = PassBudget(state.buffer)
        self.handlers: dict[type, Callable[[Any, Any], None]] = {Slices: self._slices, Read: self._read}

    def wait_seconds(self, _now: float) -> float | None:
        """Return when the next turn is, in seconds from now; None where nobody waits for it."""
        return 0.0 if self.late else None

    def begin(self) -> None:
        """A pass begins: readers that wait have their turn."""
        while self.late and self._budget.left(PASS_BYTES) > 0:
            responder, message = self.late.popleft()
            if responder.peer in self._state.peers:
                try:
                    self._show(responder, message)
                except RowDamaged as damage:
                    self._state.take_out(damage)
                    self._state.refuse_missing(responder, message.queue)
                except Exception as fault:  # noqa: BLE001  it only reads
                    refuse_failed(responder, message, fault)

    def _slices(self, responder: Responder[list[tuple[int, int, int]]], message: Slices) -> None:
        hosted = self._state.found(responder, message.queue)
        if hosted is None:
            return
        if message.reservation:
            held = self._reservations.find(responder, hosted, message.reservation)
            if held is None:
                return
            ranges = list(held.left)
        else:
            self._state.catch_up(hosted)
            ranges = list(hosted.queue.between(0, ALL_NUMBERS))
        responder.answer(slices_of(ranges, message.count))

    def _read(self, responder: Responder[tuple[Sequence[SeenBatch], int | None]], message: Read) -> None:
        if self._budget.left(PASS_BYTES) > 0 and not self.late:
            self._show(responder, message)
        else:
            self.late.append((responder, message))

    def _show(self, responder: Responder[tuple[Sequence[SeenBatch], int | None]], message: Read) -> None:
        hosted = self._state.found(responder, message.queue)
        if hosted is None:
            return
        held: ActiveReservation | None = None
        if message.reservation:
            held = self._reservations.find(responder, hosted, message.reservation)
            if held is None:
                return
            if held.is_acknowledged:
                text = (
                    f"reservation '{message.reservation}' of {hosted.title} was acknowledged: its messages are "
                    "done with; reserve under another name to read what came since"
                )
                responder.refuse(ReplyCode.PRECONDITION_FAILED, text)
                return
        else:
            self._state.catch_up(hosted)
        read_once_bytes = self._state.buffer.read_once_bytes
        deliveries, following = _shown(hosted.queue, held, message)
        shown = sum([len(delivery.batch.records) for delivery in deliveries])
        self._budget.spend(max(shown, self._state.buffer.read_once_bytes - read_once_bytes))
        responder.answer((deliveries, following))


def slices_of(ranges: Ranges, count: int) -> list[tuple[int, int, int]]:
    """Cut numbers into parts whose sizes differ by one message at most.

    A part in which a subqueue ends becomes two, so that none contains numbers of messages that are yet to come.

    Args:
        ranges: which numbers, in rising order.
        count: how many parts, where there are so many numbers.

    Returns:
        (first, end, how many) of each part, in rising order: from its first number to behind its last.
    """
    total = sum([end - start for start, end in ranges])
    count = min(count, total)
    parts: list[tuple[int, int, int]] = []
    first = has = behind = done = split = 0
    for start, end in ranges:
        if has and start >> SUBQUEUE_BITS != first >> SUBQUEUE_BITS:
            parts.append((first, behind, has))
            split, has = split + has, 0
        while start < end:
            if not has:
                first = start
            wanted = (done + 1) * total // count - done * total // count - split
            taken = min(end - start, wanted - has)
            start += taken
            has += taken
            behind = start
            if has == wanted:
                parts.append((first, start, has))
                has = split = 0
                done += 1
    return parts


def _shown(queue: Queue, held: ActiveReservation | None, message: Read) -> tuple[list[Delivery], int | None]:
    """Return the deliveries to show, and where to read on."""
    if held is not None:
        numbers = held.left.walk(message.first, message.end)
    else:
        numbers = queue.between(message.first, message.end)
    ranges, following = _first(numbers, message.count)
    if not ranges:
        return [], None
    deliveries = queue.show(ranges, held.fresh_from if held is not None else {})
    shown = deliveries[-1].first + deliveries[-1].batch.count
    left = next((max(start, shown) for start, end in ranges if end > shown), following)
    return deliveries, left


def _first(numbers: Iterator[tuple[int, int]], count: int) -> tuple[Ranges, int | None]:
    """The first `count` of some numbers, and the one that comes behind them."""
    ranges: Ranges = []
    for start, end in numbers:
        if not count or len(ranges) == READ_RANGES:
            return ranges, start
        stop = min(end, start + count)
        ranges.append((start, stop))
        count -= stop - start
        if stop < end:
            return ranges, stop
    return ranges, None
