"""The lanes of a queue with terms: one for each priority in use, the highest first, made when a message needs it.

Lane `top - priority` holds the messages of that priority; a queue without priorities has lane 0 alone. Behind them all
lies one that nobody is served from: what a full queue has refused, and keeps until it is dead-lettered.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from shardmq.records import Run
from shardmq.shards.counts import Counted
from shardmq.shards.journal import Journal
from shardmq.shards.lane import LANE_BITS, Lane, Parcel, Ranges
from shardmq.shards.segments import Cutter, Segment
from shardmq.shards.stored import StoredQueue

REFUSED_LANE: Final = 256
"""Behind the lane of the lowest priority there can be."""


class Lanes:
    """See the module. Ranges of messages may be of any of its lanes.

    Args:
        queue: id of the queue.
        durable: whether it is.
        journal: where changes are written down.
        top: the highest priority.
        ttl_ms: how long any message may wait here.
        stored: what a start found.

    Attributes:
        order: the lanes consumers are served from, in the order they are.
    """

    __slots__ = ("_by_number", "_durable", "_journal", "_queue", "_top", "_touched", "_ttl_ms", "order")

    def __init__(self, queue: int, durable: bool, journal: Journal, top: int, ttl_ms: int | None,
                 stored: StoredQueue) -> None:  # fmt: skip
        self._queue = queue
        self._durable = durable
        self._journal = journal
        self._top = top
        self._ttl_ms = ttl_ms
        self._by_number: dict[int, Lane] = {}
        self._touched: dict[Lane, None] = {}
        self.order: list[Lane] = []
        segments = {number: list(group) for number, group in groupby(stored.segments, key=_lane_of)}
        for number in sorted({0, *segments, *stored.marks}):
            self._make(number, stored.marks.get(number, 0), segments.get(number, ()))

    def __iter__(self) -> Iterator[Lane]:
        """All lanes, the refused messages' among them."""
        return iter(self._by_number.values())

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        return sum([lane.fresh + lane.returned.count for lane in self.order])

    @property
    def refused(self) -> Lane:
        """Where refused messages are kept."""
        return self._by_number.get(REFUSED_LANE) or self._make(REFUSED_LANE)

    def append(self, run: Run) -> None:
        """Put a run at the end of its lane."""
        number = max(0, self._top - run.priority)
        lane = self._by_number.get(number) or self._make(number)
        self._touched[lane] = None
        lane.append(run)

    def refuse(self, run: Run) -> Ranges:
        """Put a run where nobody is served from, set aside; returns its messages' numbers."""
        lane = self.refused
        self._touched[lane] = None
        lane.append(run)
        return lane.withdraw(run.count)

    def take(self, limit: int, room: int, alone: bool) -> list[Parcel]:
        """As `Lane.take`, from the highest lane on."""
        parcels: list[Parcel] = []
        for lane in self.order:
            while (lane.fresh or lane.returned) and limit > 0:
                got = lane.take(limit, room, alone and not parcels)
                if not got:
                    return parcels
                parcels += got
                limit -= sum([parcel.run.count for parcel in got])
                room -= sum([len(parcel.run.records) for parcel in got])
        return parcels

    def settle(self, ranges: Ranges) -> None:
        """Unacked messages are done with."""
        for lane, part in self._split(ranges):
            lane.settle(part)

    def give_back(self, ranges: Ranges) -> None:
        """Unacked messages are ready again, at their place."""
        for lane, part in self._split(ranges):
            lane.give_back(part)

    def set_aside(self, ranges: Ranges) -> None:
        """Unacked messages wait for something."""
        for lane, part in self._split(ranges):
            lane.set_aside(part)

    def put_back(self, ranges: Ranges) -> None:
        """What was set aside is ready again, at its place."""
        for lane, part in self._split(ranges):
            lane.put_back(part)

    def drop(self, ranges: Ranges) -> None:
        """What was set aside is done with."""
        for lane, part in self._split(ranges):
            lane.drop(part)

    def keep_aside(self, ranges: Ranges) -> Ranges:
        """As `Lane.keep_aside`."""
        return [found for lane, part in self._split(ranges) for found in lane.keep_aside(part)]

    def withdraw(self, count: int) -> Ranges:
        """Set ready messages aside, those that matter least: the oldest of the lowest lane first."""
        ranges: Ranges = []
        for lane in reversed(self.order):
            if count > 0 and lane.ready:
                part = lane.withdraw(count)
                count -= sum([end - start for start, end in part])
                ranges += part
        return ranges

    def withdraw_expired(self, now_ms: int) -> Ranges:
        """As `Lane.withdraw_expired`, of all lanes."""
        return [expired for lane in self.order if lane.mortal for expired in lane.withdraw_expired(now_ms)]

    @property
    def next_expiry_ms(self) -> int | None:
        """When the first message at the head of a lane expires."""
        times = [due for lane in self.order if lane.mortal and (due := lane.next_expiry_ms) is not None]
        return min(times) if times else None

    def purge(self) -> int:
        """Remove what is ready; returns how many messages that were."""
        return sum([lane.purge() for lane in self.order])

    def peek(self, offset: int, count: int, room: int) -> list[Parcel]:
        """Ready messages in the order of delivery; nothing changes."""
        parcels: list[Parcel] = []
        for lane in self.order:
            ranges = lane.waiting(offset, count)
            offset -= min(offset, lane.ready)
            wanted = sum([end - start for start, end in ranges])
            for first, deliveries, run in self.read(ranges, room, alone=not parcels):
                parcels.append(Parcel(first, first < lane.cursor, deliveries, run))
                room -= len(run.records)
                wanted -= run.count
                count -= run.count
            if wanted or count <= 0:
                break
        return parcels

    def read(self, ranges: Ranges, room: int, alone: bool) -> list[tuple[int, int, Run]]:
        """Messages: as many as take `room` bytes, but one at least where `alone`; (first number, deliveries, run)."""
        pieces: list[tuple[int, int, Run]] = []
        for lane, part in self._split(ranges):
            found = lane.read(part, room, alone and not pieces)
            pieces += [piece for first, run in found for piece in self.divide(first, run)]
            room -= sum([len(run.records) for _, run in found])
            if sum([run.count for _, run in found]) < sum([end - start for start, end in part]):
                break
        return pieces

    def counts(self, ranges: Ranges) -> Iterator[Counted]:
        """How often messages were delivered in vain, where that is counted."""
        for lane, part in self._split(ranges):
            for segment, start, end in lane.places(part):
                yield from ((start, end, 0),) if segment.counts is None else segment.counts.pieces(start, end)

    def divide(self, first: int, run: Run) -> list[tuple[int, int, Run]]:
        """Cut a run where its messages were not delivered equally often: (first number, deliveries, run)."""
        groups = [(count, [*group]) for count, group in groupby(self.counts([(first, first + run.count)]), key=_count)]
        if len(groups) == 1:
            return [(first, groups[0][0], run)]
        cutter = Cutter()
        return [
            (group[0][0], count, cutter.cut(run, group[0][0] - first, group[-1][1] - first)) for count, group in groups
        ]

    def seal(self) -> None:
        """The pass ends; what comes next goes into other segments."""
        for lane in self._touched:
            lane.seal()
        self._touched.clear()

    def _make(self, number: int, mark: int = 0, segments: Iterable[Segment] = ()) -> Lane:
        lane = Lane(self._queue, self._durable, self._journal, number, mark, segments, self._ttl_ms)
        self._by_number[number] = lane
        if number != REFUSED_LANE:
            self.order.append(lane)
            self.order.sort(key=_number)
        return lane

    def _split(self, ranges: Ranges) -> Iterator[tuple[Lane, Ranges]]:
        """Neighbouring ranges of the same lane together."""
        if len(self._by_number) == 1:
            yield self.order[0], ranges
            return
        for number, group in groupby(ranges, key=_lane_of_range):
            lane = self._by_number.get(number)
            if lane is not None:
                yield lane, list(group)


def _number(lane: Lane) -> int:
    return lane.number


def _count(counted: Counted) -> int:
    return counted[2]


def _lane_of(segment: Segment) -> int:
    return segment.first >> LANE_BITS


def _lane_of_range(range: tuple[int, int]) -> int:
    return range[0] >> LANE_BITS
