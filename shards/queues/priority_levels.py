"""The subqueues of a queue with arguments: one for each priority in use, the highest first, made when needed.

Subqueue `top - priority` holds the messages of that priority; a queue without priorities has subqueue 0 alone. Behind
them all lies one that nobody is served from: what a full queue has refused, and keeps until it is dead-lettered.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Final

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.delivery import SUBQUEUE_BITS, Delivery
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.segments.delivery_counts import Counted, DeliveryCounts
from shardmq.shards.segments.segment import Ranges, Segment
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.segments.steps import Steps
from shardmq.shards.storage.recovery import RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared

REFUSED_SUBQUEUE: Final = 256
"""Behind the subqueue of the lowest priority there can be."""


class PriorityLevels:
    """The subqueues of a queue, by priority. Ranges of messages may be of any of them.

    Args:
        declared: the queue.
        buffer: where changes are written down.
        arguments: of the queue.
        stored: what a start found.
        part: the subqueue that was a plain queue before, where there was one.

    Attributes:
        order: the subqueues consumers are served from, in the order they are.
    """

    __slots__ = ("_by_number", "_declared", "_buffer", "_top", "_ttl_ms", "order")

    def __init__(
        self,
        declared: Declared,
        buffer: WriteBuffer,
        arguments: QueueArguments,
        stored: RecoveredQueue,
        part: Subqueue | None = None,
    ) -> None:
        self._declared = declared
        self._buffer = buffer
        self._top = arguments.max_priority or 0
        self._ttl_ms = arguments.ttl_ms
        self._by_number: dict[int, Subqueue] = {}
        self.order: list[Subqueue] = []
        if part is not None:
            self._take_in(part)
            self.limit_life(self._ttl_ms)
        segments = {number: list(group) for number, group in groupby(stored.segments, key=_subqueue_of)}
        for number in sorted({0, *segments, *stored.marks} - self._by_number.keys()):
            self._make(number, stored.marks.get(number, 0), segments.get(number, ()))

    def __iter__(self) -> Iterator[Subqueue]:
        """Iterate over all subqueues, that of refused messages among them."""
        return iter(self._by_number.values())

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        return sum([subqueue.fresh + subqueue.returned.count for subqueue in self.order])

    @property
    def can_expire(self) -> bool:
        """Whether something in it may expire."""
        return any(subqueue.can_expire for subqueue in self.order)

    @property
    def is_single(self) -> bool:
        """Whether there is one subqueue alone, and there never were others."""
        return len(self._by_number) == 1

    def limit_life(self, ttl_ms: int | None) -> None:
        """Give all messages another time to live, from when they came; None for none but their own."""
        self._ttl_ms = ttl_ms
        for subqueue in self:
            subqueue.limit_life(ttl_ms)

    def append(self, batch: RecordBatch, body_bytes: int | None = None) -> None:
        """Put a batch at the end of its subqueue; its segment adds up the bytes of the bodies, where they are given."""
        number = max(0, self._top - batch.priority)
        subqueue = self._by_number.get(number) or self._make(number)
        subqueue.append(batch)
        if body_bytes is not None:
            segment = subqueue.index.segments[-1]
            segment.body_bytes = (segment.body_bytes or 0) + body_bytes

    def refuse(self, batch: RecordBatch) -> Ranges:
        """Put a batch where nobody is served from, held; returns its messages' numbers."""
        subqueue = self._by_number.get(REFUSED_SUBQUEUE) or self._make(REFUSED_SUBQUEUE)
        subqueue.append(batch)
        return subqueue.withdraw(batch.count)

    def withdraw_refused(self) -> Ranges:
        """At start: hold what was refused before."""
        subqueue = self._by_number.get(REFUSED_SUBQUEUE)
        return subqueue.withdraw(subqueue.ready) if subqueue is not None else []

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver ready messages, in order; they are unacked from here on."""
        deliveries: list[Delivery] = []
        for subqueue in self.order:
            while (subqueue.fresh or subqueue.returned) and limit > 0:
                got = subqueue.take(limit, room, alone and not deliveries)
                if not got:
                    return deliveries
                deliveries += got
                limit -= sum([delivery.batch.count for delivery in got])
                room -= sum([len(delivery.batch.records) for delivery in got])
        return deliveries

    def stored_bytes(self) -> int:
        """Return the bytes of the next message, where it is not in memory and its size is known; else 0."""
        return next((subqueue.stored_bytes() for subqueue in self.order if subqueue.ready), 0)

    def head_bytes(self) -> int:
        """Return the bytes of the next message; 0 where none is ready."""
        return next((subqueue.head_bytes() for subqueue in self.order if subqueue.ready), 0)

    def settle(self, ranges: Ranges) -> None:
        """Settle unacked messages."""
        for subqueue, part in self.split(ranges):
            subqueue.settle(part)

    def requeue(self, ranges: Ranges) -> None:
        """Make unacked messages ready again, at their place."""
        for subqueue, part in self.split(ranges):
            subqueue.requeue(part)

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make unacked messages ready again that nobody has seen since they were taken."""
        for subqueue, part in self.split(ranges):
            subqueue.put_back(part, fresh_from)

    def hold(self, ranges: Ranges) -> None:
        """Hold unacked messages."""
        for subqueue, part in self.split(ranges):
            subqueue.hold(part)

    def release_held(self, ranges: Ranges) -> None:
        """Make held messages ready again, at their place."""
        for subqueue, part in self.split(ranges):
            subqueue.release_held(part)

    def drop(self, ranges: Ranges) -> None:
        """Settle held messages."""
        for subqueue, part in self.split(ranges):
            subqueue.drop(part)

    def keep_held(self, ranges: Ranges) -> Ranges:
        """At start: hold again what was held before; return those of them that are still here."""
        there = [part for part in ranges if _subqueue_of_range(part) in self._by_number]
        return [found for subqueue, part in self.split(there) for found in subqueue.keep_held(part)]

    def withdraw(self, count: int) -> Ranges:
        """Set ready messages aside, those that matter least: the oldest of the lowest subqueue first."""
        return _withdraw(reversed(self.order), count)

    def reserve(self, count: int) -> Ranges:
        """Set ready messages aside, those that would be delivered next."""
        return _withdraw(self.order, count)

    def withdraw_expired(self, now_ms: int, batches_max: int) -> Ranges:
        """Hold what has expired at the head of each subqueue; return the numbers."""
        return [
            expired
            for subqueue in self.order
            if subqueue.can_expire
            for expired in subqueue.withdraw_expired(now_ms, batches_max)
        ]

    @property
    def next_expiry_ms(self) -> int | None:
        """When the first message at the head of a subqueue expires."""
        times = [due for subqueue in self.order if subqueue.can_expire and (due := subqueue.next_expiry_ms) is not None]
        return min(times) if times else None

    def purge(self) -> tuple[int, Steps]:
        """Remove what is ready; return how much that is, and the steps that remove it."""
        parts = [subqueue.purge() for subqueue in self.order]
        return sum([count for count, _ in parts]), chain.from_iterable([steps for _, steps in parts])

    def extent(self, number: int) -> tuple[int, int]:
        """Return the end of the segment a message is in, and about how many bytes a message of it has."""
        return self._by_number[number >> SUBQUEUE_BITS].extent(number)

    def peek(self, offset: int, count: int, room: int) -> list[Delivery]:
        """Ready messages in the order of delivery; nothing changes."""
        deliveries: list[Delivery] = []
        for subqueue in self.order:
            ranges = subqueue.waiting(offset, count)
            offset -= min(offset, subqueue.ready)
            wanted = sum([end - start for start, end in ranges])
            for first, delivery_count, batch in self.read(ranges, room, not deliveries, subqueue.cursor):
                deliveries.append(Delivery(first, first < subqueue.cursor, delivery_count, batch))
                room -= len(batch.records)
                wanted -= batch.count
                count -= batch.count
            if wanted or count <= 0:
                break
        return deliveries

    def read(self, ranges: Ranges, room: int, alone: bool, apart: int = -1) -> list[tuple[int, int, RecordBatch]]:
        """Read messages, cut where messages were not delivered equally often: (first number, delivery count, batch)."""
        pieces: list[tuple[int, int, RecordBatch]] = []
        for subqueue, part in self.split(ranges):
            found = subqueue.read(part, room, alone and not pieces, apart)
            pieces += [piece for first, batch in found for piece in self.divide(first, batch)]
            room -= sum([len(batch.records) for _, batch in found])
            if sum([batch.count for _, batch in found]) < sum([end - start for start, end in part]):
                break
        return pieces

    def show(self, ranges: Ranges, room: int, fresh_from: Mapping[int, int]) -> list[Delivery]:
        """Look at ready or reserved messages; nothing changes."""
        deliveries: list[Delivery] = []
        for subqueue, part in self.split(ranges):
            apart = fresh_from.get(subqueue.number, subqueue.cursor)
            found = subqueue.read(part, room, not deliveries, apart, keep=False)
            pieces = [piece for first, batch in found for piece in self.divide(first, batch)]
            deliveries += [
                Delivery(first, first < apart, delivery_count, batch) for first, delivery_count, batch in pieces
            ]
            room -= sum([len(batch.records) for _, batch in found])
            if sum([batch.count for _, batch in found]) < sum([end - start for start, end in part]):
                break
        return deliveries

    def waiting(self) -> Ranges:
        """Return the numbers of all ready messages."""
        return [part for subqueue in self.order for part in subqueue.waiting(0, subqueue.ready)]

    def counts(self, ranges: Ranges) -> Iterator[Counted]:
        """Yield how often messages were delivered in vain, where that is counted."""
        for subqueue, part in self.split(ranges):
            for segment, start, end in subqueue.places(part):
                yield from ((start, end, 0),) if segment.counts is None else segment.counts.pieces(start, end)

    def count(self, ranges: Ranges, limit: int) -> tuple[Ranges, Ranges]:
        """Messages were delivered in vain once more; returns those within the limit, and those over it."""
        within: Ranges = []
        over: Ranges = []
        for subqueue, part in self.split(ranges):
            for segment, start, end in subqueue.places(part):
                if segment.counts is None:
                    segment.counts = DeliveryCounts()
                for first, stop, count in segment.counts.add(start, end):
                    (over if count > limit else within).append((first, stop))
                if segment.durable:
                    self._buffer.change(segment)
        return within, over

    def over(self, limit: int) -> Ranges:
        """Messages that were delivered in vain more often than that."""
        counted = [
            counts for subqueue in self for segment in subqueue.index.segments if (counts := segment.counts) is not None
        ]
        return [(start, end) for counts in counted for start, end, count in counts if count > limit]

    def split(self, ranges: Ranges) -> Iterator[tuple[Subqueue, Ranges]]:
        """Neighbouring ranges of the same subqueue together, with their subqueue."""
        if len(self._by_number) == 1:
            yield self.order[0], ranges
            return
        for number, group in groupby(ranges, key=_subqueue_of_range):
            yield self._by_number[number], list(group)

    def divide(self, first: int, batch: RecordBatch) -> list[tuple[int, int, RecordBatch]]:
        """Cut a batch where its messages were not delivered equally often: (first number, delivery count, batch)."""
        groups = [
            (count, [*group]) for count, group in groupby(self.counts([(first, first + batch.count)]), key=_count)
        ]
        if len(groups) == 1:
            return [(first, groups[0][0], batch)]
        slicer = BatchSlicer()
        return [
            (group[0][0], count, slicer.cut(batch, group[0][0] - first, group[-1][1] - first))
            for count, group in groups
        ]

    def counted(self, delivery: Delivery) -> list[Delivery]:
        """Cut a delivery where its messages were not delivered equally often."""
        if not delivery.redelivered:
            return [delivery]
        pieces = self.divide(delivery.first, delivery.batch)
        return [Delivery(first, True, delivery_count, batch) for first, delivery_count, batch in pieces]

    def gaps_below(self, number: int, most: int) -> Ranges:
        """Numbers below one, of the same subqueue, whose messages are settled: their first ranges, `most` at most."""
        subqueue = self._by_number[number >> SUBQUEUE_BITS]
        return subqueue.gaps(subqueue.number << SUBQUEUE_BITS, number, most)

    def _make(self, number: int, mark: int = 0, segments: Iterable[Segment] = ()) -> Subqueue:
        subqueue = Subqueue(
            self._declared.id, self._declared.durable, self._buffer, number, mark, segments, self._ttl_ms
        )
        self._take_in(subqueue)
        return subqueue

    def _take_in(self, subqueue: Subqueue) -> None:
        self._by_number[subqueue.number] = subqueue
        if subqueue.number != REFUSED_SUBQUEUE:
            self.order.append(subqueue)
            self.order.sort(key=_number)


def _withdraw(subqueues: Iterable[Subqueue], count: int) -> Ranges:
    ranges: Ranges = []
    for subqueue in subqueues:
        if count > 0 and subqueue.ready:
            part = subqueue.withdraw(count)
            count -= sum([end - start for start, end in part])
            ranges += part
    return ranges


def _number(subqueue: Subqueue) -> int:
    return subqueue.number


def _count(counted: Counted) -> int:
    return counted[2]


def _subqueue_of(segment: Segment) -> int:
    return segment.first >> SUBQUEUE_BITS


def _subqueue_of_range(range: tuple[int, int]) -> int:
    return range[0] >> SUBQUEUE_BITS
