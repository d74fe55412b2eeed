"""Segments: the unit in which messages are stored, read back and deleted.

A queue numbers its messages from 0 up. A segment holds batches in order; numbers in between may be missing.

    queue     |  segment [0, 900)      |  segment [900, 1400)  |  segment [1500, 1510)
    batches   |  0: 500   500: 400     |  900: 500             |  1500: 1   1503: 7
    gone      |  0..300                |                       |  1501..1503
"""

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Final

from shardmq.message.keyed_records import contents
from shardmq.message.record import unpack, unpack_raw
from shardmq.message.record_batch import AMQP, KEYED, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.segments.delivery_counts import DeliveryCounts

SEGMENT_BYTES: Final = 1 << 20
"""About where a segment is closed. Read back whole when a body of it is needed, so not larger than a read-ahead."""

BATCH_OVERHEAD_BYTES: Final = 450
"""What a batch takes in memory besides its records: the struct, its numbers, names and tuple (measured)."""

_NIL_HEADERS: Final = {b"\x92\xc0\xc4": 4, b"\x92\xc0\xc5": 5, b"\x92\xc0\xc6": 7}
"""How a record without properties begins, and how many bytes come before its body."""

_first = itemgetter(0)
NumberedBatch = tuple[int, RecordBatch]


class Segment:
    """Batches of one queue that lie in one stored value.

    Attributes:
        queue: the queue's id.
        first: the lowest number.
        end: one past the highest number.
        count: messages in it, dead ones included.
        bytes: of their records.
        live: messages that are not settled.
        gone: numbers in [first, end) that are not live: settled, or never there. None is none.
        batches: bodies, when they are in memory.
        durable: whether it survives a restart.
        stored: whether it is in the store.
        born: when it was made, monotonic seconds.
        can_expire: whether a message in it brought a time to live.
        body_bytes: of its messages' bodies, dead ones included, in queues that count them; None in others.
        counts: how often messages in it were delivered in vain, in queues that count that. None is never.
        shared: numbers of the shared bodies that its stored value refers to; None where it has all records itself.
    """

    __slots__ = (
        "body_bytes",
        "born",
        "bytes",
        "count",
        "counts",
        "durable",
        "end",
        "first",
        "gone",
        "live",
        "can_expire",
        "queue",
        "batches",
        "shared",
        "stored",
    )

    def __init__(self, queue: int, first: int, durable: bool, born: float) -> None:
        self.queue = queue
        self.first = first
        self.end = first
        self.count = 0
        self.bytes = 0
        self.live = 0
        self.gone: RangeSet | None = None
        self.batches: list[NumberedBatch] | None = []
        self.durable = durable
        self.stored = False
        self.born = born
        self.can_expire = False
        self.body_bytes: int | None = None
        self.counts: DeliveryCounts | None = None
        self.shared: RangeSet | None = None

    def __repr__(self) -> str:
        return f"Segment(queue {self.queue}, [{self.first}, {self.end}), {self.live} of {self.count} live)"

    def settle(self, start: int, end: int) -> None:
        """Settle live messages [start, end) of this segment."""
        self.live -= end - start
        if self.live:
            gone = self.gone
            if gone is None:
                gone = self.gone = RangeSet()
            gone.add(start, end)
            if self.counts is not None:
                self.counts.remove(start, end)

    def living(self, start: int, end: int) -> list[tuple[int, int]]:
        """Ranges of live numbers inside [start, end)."""
        start, end = max(start, self.first), min(end, self.end)
        if start >= end:
            return []
        return [(start, end)] if self.gone is None else self.gone.gaps(start, end)


def place_of(batches: list[NumberedBatch], number: int) -> int:
    """Return the place of the batch that holds a number, or of the first behind it."""
    place = bisect_right(batches, number, key=_first)
    if place:
        first, batch = batches[place - 1]
        if number < first + batch.count:
            return place - 1
    return place


def body_sizes(batch: RecordBatch) -> list[int]:
    """Return how many bytes each message's body has."""
    if batch.flags & KEYED:
        return [len(body) for body in contents(batch)[1]]
    if batch.count == 1:
        header = _NIL_HEADERS.get(batch.records[:3])
        if header is not None:
            return [len(batch.records) - header]
    if batch.flags & AMQP:
        return [len(body) for _, body in unpack_raw(batch.records, batch.count)]
    return [len(record.body) for record in unpack(batch.records, batch.count)]


class SegmentIndex:
    """The segments of a queue in order."""

    __slots__ = ("_firsts", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._firsts: list[int] = []

    def append(self, segment: Segment) -> None:
        """Add a segment behind all others."""
        self.segments.append(segment)
        self._firsts.append(segment.first)

    def place(self, number: int) -> int:
        """Return the place of the segment that holds a number, or of the first behind it."""
        place = bisect_right(self._firsts, number)
        if place and number < self.segments[place - 1].end:
            return place - 1
        return place

    def place_of(self, segment: Segment) -> int:
        """Return the place of a segment."""
        return bisect_left(self._firsts, segment.first)

    def remove(self, place: int) -> None:
        """Take out the segment at a place."""
        del self.segments[place], self._firsts[place]

    def replace(self, start: int, stop: int, segments: list[Segment]) -> None:
        """Put others in the place of segments `start` to `stop`."""
        self.segments[start:stop] = segments
        self._firsts[start:stop] = [segment.first for segment in segments]


Ranges = list[tuple[int, int]]
"""Numbers of messages, as half-open ranges in rising order."""
