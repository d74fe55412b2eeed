"""The lanes of a queue with terms: one for each priority in use, the highest first, made when a message needs it.

Lane `top - priority` holds the messages of that priority; a queue without priorities has lane 0 alone. Behind them all
lies one that nobody is served from: what a full queue has refused, and keeps until it is dead-lettered.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Final

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.delivery import LANE_BITS, Delivery
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.segments.delivery_counts import Counted, DeliveryCounts
from shardmq.shards.segments.segment import Ranges, Segment
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.segments.steps import Steps
from shardmq.shards.storage.recovery import RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared

REFUSED_LANE: Final = 256
"""Behind the lane of the lowest priority there can be."""


class PriorityLevels:
    """See the module. Ranges of messages may be of any of its lanes.

    Args:
        declared: the queue.
        journal: where changes are written down.
        terms: of the queue.
        stored: what a start found.

    Attributes:
        order: the lanes consumers are served from, in the order they are.
    """

    __slots__ = ("_by_number", "_declared", "_journal", "_top", "_ttl_ms", "order")

    def __init__(self, declared: Declared, journal: WriteBuffer, terms: QueueArguments, stored: RecoveredQueue) -> None:
        self._declared = declared
        self._journal = journal
        self._top = terms.max_priority or 0
        self._ttl_ms = terms.ttl_ms
        self._by_number: dict[int, Subqueue] = {}
        self.order: list[Subqueue] = []
        segments = {number: list(group) for number, group in groupby(stored.segments, key=_lane_of)}
        for number in sorted({0, *segments, *stored.marks}):
            self._make(number, stored.marks.get(number, 0), segments.get(number, ()))

    def __iter__(self) -> Iterator[Subqueue]:
        """All lanes, the refused messages' among them."""
        return iter(self._by_number.values())

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        return sum([lane.fresh + lane.returned.count for lane in self.order])

    @property
    def is_mortal(self) -> bool:
        """Whether something in it may expire."""
        return any(lane.mortal for lane in self.order)

    def append(self, run: RecordBatch, body_bytes: int | None = None) -> None:
        """Put a run at the end of its lane; its segment adds up the bytes of the bodies, where they are given."""
        number = max(0, self._top - run.priority)
        lane = self._by_number.get(number) or self._make(number)
        lane.append(run)
        if body_bytes is not None:
            segment = lane.index.segments[-1]
            segment.body_bytes = (segment.body_bytes or 0) + body_bytes

    def refuse(self, run: RecordBatch) -> Ranges:
        """Put a run where nobody is served from, set aside; returns its messages' numbers."""
        lane = self._by_number.get(REFUSED_LANE) or self._make(REFUSED_LANE)
        lane.append(run)
        return lane.withdraw(run.count)

    def withdraw_refused(self) -> Ranges:
        """At start: set aside what was refused before."""
        lane = self._by_number.get(REFUSED_LANE)
        return lane.withdraw(lane.ready) if lane is not None else []

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """As `Subqueue.take`, from the highest lane on."""
        parcels: list[Delivery] = []
        for lane in self.order:
            while (lane.fresh or lane.returned) and limit > 0:
                got = lane.take(limit, room, alone and not parcels)
                if not got:
                    return parcels
                parcels += got
                limit -= sum([parcel.run.count for parcel in got])
                room -= sum([len(parcel.run.records) for parcel in got])
        return parcels

    def stored_bytes(self) -> int:
        """As `Subqueue.stored_bytes`, of the highest lane that has something ready."""
        return next((lane.stored_bytes() for lane in self.order if lane.ready), 0)

    def head_bytes(self) -> int:
        """As `Subqueue.head_bytes`, of the highest lane that has something ready."""
        return next((lane.head_bytes() for lane in self.order if lane.ready), 0)

    def settle(self, ranges: Ranges) -> None:
        """Unacked messages are done with."""
        for lane, part in self.split(ranges):
            lane.settle(part)

    def give_back(self, ranges: Ranges) -> None:
        """Unacked messages are ready again, at their place."""
        for lane, part in self.split(ranges):
            lane.give_back(part)

    def set_aside(self, ranges: Ranges) -> None:
        """Unacked messages wait for something."""
        for lane, part in self.split(ranges):
            lane.set_aside(part)

    def put_back(self, ranges: Ranges) -> None:
        """What was set aside is ready again, at its place."""
        for lane, part in self.split(ranges):
            lane.put_back(part)

    def drop(self, ranges: Ranges) -> None:
        """What was set aside is done with."""
        for lane, part in self.split(ranges):
            lane.drop(part)

    def keep_aside(self, ranges: Ranges) -> Ranges:
        """As `Subqueue.keep_aside`; whole lanes may be gone, with transient messages."""
        there = [part for part in ranges if _lane_of_range(part) in self._by_number]
        return [found for lane, part in self.split(there) for found in lane.keep_aside(part)]

    def withdraw(self, count: int) -> Ranges:
        """Set ready messages aside, those that matter least: the oldest of the lowest lane first."""
        return _withdraw(reversed(self.order), count)

    def reserve(self, count: int) -> Ranges:
        """Set ready messages aside, those that would be delivered next."""
        return _withdraw(self.order, count)

    def withdraw_expired(self, now_ms: int, runs_max: int) -> Ranges:
        """As `Subqueue.withdraw_expired`, of each lane."""
        return [expired for lane in self.order if lane.mortal for expired in lane.withdraw_expired(now_ms, runs_max)]

    @property
    def next_expiry_ms(self) -> int | None:
        """When the first message at the head of a lane expires."""
        times = [due for lane in self.order if lane.mortal and (due := lane.next_expiry_ms) is not None]
        return min(times) if times else None

    def purge(self) -> tuple[int, Steps]:
        """As `Subqueue.purge`, of all lanes."""
        parts = [lane.purge() for lane in self.order]
        return sum([count for count, _ in parts]), chain.from_iterable([steps for _, steps in parts])

    def extent(self, number: int) -> tuple[int, int]:
        """As `Subqueue.extent`."""
        return self._by_number[number >> LANE_BITS].extent(number)

    def peek(self, offset: int, count: int, room: int) -> list[Delivery]:
        """Ready messages in the order of delivery; nothing changes."""
        parcels: list[Delivery] = []
        for lane in self.order:
            ranges = lane.waiting(offset, count)
            offset -= min(offset, lane.ready)
            wanted = sum([end - start for start, end in ranges])
            for first, deliveries, run in self.read(ranges, room, not parcels, lane.cursor):
                parcels.append(Delivery(first, first < lane.cursor, deliveries, run))
                room -= len(run.records)
                wanted -= run.count
                count -= run.count
            if wanted or count <= 0:
                break
        return parcels

    def read(self, ranges: Ranges, room: int, alone: bool, apart: int = -1) -> list[tuple[int, int, RecordBatch]]:
        """As `Shelf.read`, cut where messages were not delivered equally often: (first number, deliveries, run)."""
        pieces: list[tuple[int, int, RecordBatch]] = []
        for lane, part in self.split(ranges):
            found = lane.read(part, room, alone and not pieces, apart)
            pieces += [piece for first, run in found for piece in self.divide(first, run)]
            room -= sum([len(run.records) for _, run in found])
            if sum([run.count for _, run in found]) < sum([end - start for start, end in part]):
                break
        return pieces

    def show(self, ranges: Ranges, room: int, fresh_from: Mapping[int, int]) -> list[Delivery]:
        """As `Queue.show`."""
        parcels: list[Delivery] = []
        for lane, part in self.split(ranges):
            apart = fresh_from.get(lane.number, lane.cursor)
            found = lane.read(part, room, not parcels, apart, keep=False)
            pieces = [piece for first, run in found for piece in self.divide(first, run)]
            parcels += [Delivery(first, first < apart, deliveries, run) for first, deliveries, run in pieces]
            room -= sum([len(run.records) for _, run in found])
            if sum([run.count for _, run in found]) < sum([end - start for start, end in part]):
                break
        return parcels

    def waiting(self) -> Ranges:
        """All ready messages."""
        return [part for lane in self.order for part in lane.waiting(0, lane.ready)]

    def counts(self, ranges: Ranges) -> Iterator[Counted]:
        """How often messages were delivered in vain, where that is counted."""
        for lane, part in self.split(ranges):
            for segment, start, end in lane.places(part):
                yield from ((start, end, 0),) if segment.counts is None else segment.counts.pieces(start, end)

    def count(self, ranges: Ranges, limit: int) -> tuple[Ranges, Ranges]:
        """Messages were delivered in vain once more; returns those within the limit, and those over it."""
        within: Ranges = []
        over: Ranges = []
        for lane, part in self.split(ranges):
            for segment, start, end in lane.places(part):
                if segment.counts is None:
                    segment.counts = DeliveryCounts()
                for first, stop, count in segment.counts.add(start, end):
                    (over if count > limit else within).append((first, stop))
                if segment.durable:
                    self._journal.change(segment)
        return within, over

    def over(self, limit: int) -> Ranges:
        """Messages that were delivered in vain more often than that."""
        counted = [counts for lane in self for segment in lane.index.segments if (counts := segment.counts) is not None]
        return [(start, end) for counts in counted for start, end, count in counts if count > limit]

    def split(self, ranges: Ranges) -> Iterator[tuple[Subqueue, Ranges]]:
        """Neighbouring ranges of the same lane together, with their lane."""
        if len(self._by_number) == 1:
            yield self.order[0], ranges
            return
        for number, group in groupby(ranges, key=_lane_of_range):
            yield self._by_number[number], list(group)

    def divide(self, first: int, run: RecordBatch) -> list[tuple[int, int, RecordBatch]]:
        """Cut a run where its messages were not delivered equally often: (first number, deliveries, run)."""
        groups = [(count, [*group]) for count, group in groupby(self.counts([(first, first + run.count)]), key=_count)]
        if len(groups) == 1:
            return [(first, groups[0][0], run)]
        cutter = BatchSlicer()
        return [
            (group[0][0], count, cutter.cut(run, group[0][0] - first, group[-1][1] - first)) for count, group in groups
        ]

    def gaps_below(self, number: int, most: int) -> Ranges:
        """Numbers below one, of the same subqueue, whose messages are done with: their first ranges, `most` at most."""
        lane = self._by_number[number >> LANE_BITS]
        return lane.gaps(lane.number << LANE_BITS, number, most)

    def _make(self, number: int, mark: int = 0, segments: Iterable[Segment] = ()) -> Subqueue:
        lane = Subqueue(self._declared.id, self._declared.durable, self._journal, number, mark, segments, self._ttl_ms)
        self._by_number[number] = lane
        if number != REFUSED_LANE:
            self.order.append(lane)
            self.order.sort(key=_number)
        return lane


def _withdraw(lanes: Iterable[Subqueue], count: int) -> Ranges:
    ranges: Ranges = []
    for lane in lanes:
        if count > 0 and lane.ready:
            part = lane.withdraw(count)
            count -= sum([end - start for start, end in part])
            ranges += part
    return ranges


def _number(lane: Subqueue) -> int:
    return lane.number


def _count(counted: Counted) -> int:
    return counted[2]


def _lane_of(segment: Segment) -> int:
    return segment.first >> LANE_BITS


def _lane_of_range(range: tuple[int, int]) -> int:
    return range[0] >> LANE_BITS
