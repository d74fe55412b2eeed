"""What a group's members have of a partition, and what they get next.

    offset    floor ... unsettled: delivered, returned, delayed or dying ... |  run of fresh messages  | ....... next
                                                                             ^ offset

Messages that came back are delivered first, at their place, then fresh ones. In an ordered group nothing is delivered
past a message that was returned with a delay, until that is over.
"""

from bisect import insort
from collections import deque
from typing import Final, Protocol

from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.queues.delivery import Delivery, make_delivery
from shardmq.shards.queues.ready_messages import MARK_LEAP
from shardmq.shards.segments.delivery_counts import DeliveryCounts
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.storage.entries import GroupSettings
from shardmq.shards.topics.cursor import SCAN_BYTES
from shardmq.shards.topics.partition import Partition
from shardmq.shards.topics.tag_filter import TagFilter

RANGES_MAX: Final = 16_384
"""Ranges of messages that are delivered and not settled, returned or delayed. With more, fresh messages wait until
some are settled: a cursor's row and memory stay below a megabyte whatever members leave unacknowledged."""

RETURNED_AT_ONCE: Final = 256
"""Ranges of returned messages that are looked at for one delivery."""

Delay = tuple[int, int, int]
"""When messages are ready again, ms since 1970, the first and the end."""


class Group(Protocol):
    """The cursor that deliveries belong to (group_cursor.py)."""

    partition: Partition
    name: str
    settings: GroupSettings | None
    mark: int
    acked: RangeSet | None
    counts: DeliveryCounts | None
    lost: int

    def moved(self) -> None:
        """Have it written, as other acknowledgements are."""

    def keep(self) -> None:
        """Have it written with this pass."""


class GroupDeliveries:
    """The deliveries of a group, from which its members are served and with which they settle.

    Args:
        group: whose.
        offset: where it reads on.

    Attributes:
        offset: of the fresh message that comes next.
        unsettled: messages below it that are not acknowledged.
        returned: those of them that are ready again.
        delays: those of them that were returned with a delay, in the order they are due.
        expected_ms: when it is looked whether the first delay is over; None where it is not.
        settled: how many messages were settled since the deliveries began.
    """

    __slots__ = (
        "_again_until",
        "_group",
        "_is_ordered",
        "_partition",
        "_passed",
        "_runs",
        "_seen",
        "_tags",
        "delays",
        "expected_ms",
        "offset",
        "returned",
        "unsettled",
    )

    def __init__(self, group: Group, offset: int) -> None:
        self._group = group
        self._partition = group.partition
        self.offset = self._seen = offset
        self.unsettled = RangeSet()
        self.returned = RangeSet()
        self.delays: list[Delay] = []
        self.expected_ms: int | None = None
        self._passed = group.acked  # at or above the offset: acknowledged, or delayed when the shard was started
        self._again_until = group.mark  # what is below may have been delivered before
        self._runs: deque[tuple[int, int]] = deque()
        self.learn(group.settings)

    def learn(self, settings: GroupSettings | None) -> None:
        """Take over what the first member said of the group."""
        self._is_ordered = settings is None or not settings.is_shared
        self._tags: TagFilter | None = None
        if settings is not None and settings.tags is not None:
            self._tags = TagFilter(settings.tags, settings.has_untagged)

    def adopt(self, delays: list[Delay]) -> None:
        """Take over delays that a start found, of messages at or above the offset."""
        self.delays = sorted(delays)
        passed = self._passed = self._passed or RangeSet()
        for _, start, end in delays:
            self.unsettled.add(start, end)
            passed.add(start, end)

    @property
    def floor(self) -> int:
        """Return the lowest message that is not acknowledged; `offset` where there is none."""
        return min(self.unsettled.first()[0], self.offset) if self.unsettled else self.offset

    @property
    def reached(self) -> int:
        """Return where everything that may have been delivered ends."""
        return max(self.offset, self._again_until)

    @property
    def ranges(self) -> int:
        """Return how many ranges are kept of it."""
        return len(self.unsettled) + len(self.returned) + len(self.delays)

    @property
    def delayed(self) -> int:
        """Return how many messages wait for a delay to be over."""
        return sum([end - start for _, start, end in self.delays])

    @property
    def dying(self) -> int:
        """Return how many dead letters have not arrived."""
        return 0

    @property
    def is_idle(self) -> bool:
        """Return whether all that is unsettled is ready again, so that nothing is to be remembered but that."""
        return self.unsettled.count == self.returned.count

    def acked_above(self) -> Ranges:
        """Return what is acknowledged above the floor."""
        acked = self.unsettled.gaps(self.floor, self.offset)
        for passed in self._passed or ():
            for start, end in self.unsettled.gaps(*passed):
                if acked and acked[-1][1] == start:
                    start = acked.pop()[0]
                acked.append((start, end))
        return acked

    @property
    def is_behind(self) -> bool:
        """Return whether there may be messages for it, though none is ready: more has to be looked through first."""
        return (
            self._tags is not None
            and not self._runs
            and self._seen < self._partition.next
            and self._may_go_on
            and not self.returned
        )

    @property
    def _may_go_on(self) -> bool:
        """Return whether fresh messages may be delivered."""
        return self.ranges < RANGES_MAX and not (self.delays and self._is_ordered)

    @property
    def ready(self) -> int:
        """Return how many messages wait in a row: those that came back, or fresh ones where none did."""
        oldest = self._partition.first
        if self.offset < oldest or (self.returned and self.returned.first()[0] < oldest):
            self._lose(oldest)
        if self.returned:
            if not (self.delays and self._is_ordered):
                return self.returned.count
            waits = min([start for _, start, _ in self.delays])
            return sum([end - start for start, end in self.returned.walk(0, waits)])
        if not self._may_go_on:
            return 0
        start, end = self._run()
        return end - start

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver what is ready, in order; it is unsettled from here on."""
        limit = min(limit, self.ready)
        if limit <= 0:
            return []
        if self.returned:
            return self._take_returned(limit, room, alone)
        start, end = self._run()
        is_again = start < self._again_until
        end = min(end, start + limit, self._again_until if is_again else end)
        pieces = self._partition.read_on(start, end, room, alone)
        if not pieces:
            return []
        first, batch = pieces[-1]
        self.offset = first + batch.count
        self.unsettled.add(start, self.offset)
        group = self._group
        if self.offset > group.mark:
            group.mark = self.offset + MARK_LEAP
            group.keep()
        if is_again:
            return [part for first, batch in pieces for part in self._counted(first, batch)]
        return [make_delivery((first, False, 0, batch)) for first, batch in pieces]

    def stored_bytes(self) -> int:
        """Return the bytes of the next message, where it is alone in a segment not in memory; else 0."""
        head = self._head()
        return 0 if head is None else self._partition.stored_at(head)

    def head_bytes(self) -> int:
        """Return the bytes of the next message; 0 where none is ready."""
        head = self._head()
        return 0 if head is None else self._partition.size_at(head)

    def settle(self, ranges: Ranges) -> None:
        """Acknowledge messages."""
        counts = self._group.counts
        for start, end in ranges:
            self.unsettled.take(start, end)
            if counts:
                counts.remove(start, end)
        self._group.moved()

    def requeue(self, ranges: Ranges) -> None:
        """Make delivered messages ready again, at their place, unless the delivery limit is passed."""
        for start, end in self._count(ranges):
            self.returned.add(start, end)

    def reject(self, ranges: Ranges) -> None:
        """Settle messages that no member wants."""
        self.settle(ranges)

    def time_out(self, ranges: Ranges) -> None:
        """Make messages ready again that a member has held for too long."""
        self.requeue(ranges)

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make delivered messages ready again that nobody has seen: it counts for no delivery."""
        start, end = ranges[-1]
        start = max(start, fresh_from)
        if end == self.offset and start < end:
            self.unsettled.remove(start, end)
            self.offset = self._seen = start
            self._runs.clear()
            ranges = [*ranges[:-1], *([(ranges[-1][0], start)] if ranges[-1][0] < start else [])]
        for first, stop in ranges:
            self.returned.add(first, stop)

    def delay(self, ranges: Ranges, due_ms: int) -> None:
        """Make delivered messages ready again at a time."""
        for start, end in self._count(ranges):
            insort(self.delays, (due_ms, start, end))
        self._group.moved()

    def end_delays(self, now_ms: int) -> None:
        """Make messages whose delay is over ready again."""
        over = [delay for delay in self.delays if delay[0] <= now_ms]
        for _, start, end in over:
            self.returned.add(start, end)
        if over:
            del self.delays[: len(over)]
            self._group.moved()

    def advance(self, offset: int) -> None:
        """Acknowledge all messages below an offset."""
        self.unsettled.remove(0, offset)
        self._forget(offset)

    def reset(self, offset: int) -> None:
        """Read on from an offset; everything that was unsettled is forgotten."""
        self.unsettled.clear()
        self.returned.clear()
        self.delays.clear()
        self._passed = self._group.counts = None
        self._runs.clear()
        self.offset = self._seen = self._again_until = self._group.mark = offset

    def _forget(self, oldest: int) -> None:
        """Nothing below an offset is ready or waits any more."""
        self.returned.remove(0, oldest)
        self.delays = [(due, max(start, oldest), end) for due, start, end in self.delays if end > oldest]
        if self._group.counts:
            self._group.counts.remove(0, oldest)
        if self._passed:
            self._passed.remove(0, oldest)
        if self.offset < oldest:
            self.offset = oldest
            self._seen = max(self._seen, oldest)

    def _lose(self, oldest: int) -> None:
        """Retention has dropped messages that were not read; what members hold of them is theirs."""
        lost = self.returned.within(0, oldest)
        lost += [(start, min(end, oldest)) for _, start, end in self.delays if start < oldest]
        for start, end in lost:
            self.unsettled.remove(start, end)
        if self.offset < oldest:
            lost += self._passed.gaps(self.offset, oldest) if self._passed else [(self.offset, oldest)]
        self._group.lost += sum([end - start for start, end in lost])
        self._forget(oldest)
        self._group.moved()

    def _head(self) -> int | None:
        """Return the message that comes next; None where none is ready."""
        if not self.ready:
            return None
        return self.returned.first()[0] if self.returned else self._run()[0]

    def _take_returned(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        ranges: Ranges = []
        for start, end in self.returned.walk(0, self._partition.next):
            end = min(end, start + limit)
            ranges.append((start, end))
            limit -= end - start
            if not limit or len(ranges) == RETURNED_AT_ONCE:
                break
        deliveries: list[Delivery] = []
        for first, batch in self._partition.read(ranges, room, alone):
            self.returned.remove(first, first + batch.count)
            deliveries += self._counted(first, batch)
        return deliveries

    def _counted(self, first: int, batch: RecordBatch) -> list[Delivery]:
        """Return redelivered messages, cut where they were not returned equally often."""
        counts = self._group.counts
        if not counts:
            return [Delivery(first, True, 0, batch)]
        slicer = BatchSlicer()
        pieces = counts.pieces(first, first + batch.count)
        return [Delivery(start, True, n, slicer.cut(batch, start - first, end - first)) for start, end, n in pieces]

    def _count(self, ranges: Ranges) -> Ranges:
        """Messages were delivered in vain; returns those that may be delivered again."""
        settings = self._group.settings
        if settings is None or settings.delivery_limit is None:
            return ranges
        counts = self._group.counts = self._group.counts or DeliveryCounts()
        again: Ranges = []
        spent: Ranges = []
        for start, end in ranges:
            for first, stop, count in counts.add(start, end):
                (again if count <= settings.delivery_limit else spent).append((first, stop))
        self._group.moved()
        if spent:
            self.settle(spent)
        return again

    def _run(self) -> tuple[int, int]:
        """Return fresh messages in a row, from the one that comes next on; where tags count, it may look for them."""
        self._pass()
        end = self._partition.next if self._tags is None else self._wanted()
        if self._passed:
            end = min(end, self._passed.first()[0])
        return self.offset, max(self.offset, end)

    def _pass(self) -> None:
        """Pass over what is not fresh."""
        passed = self._passed
        while passed and passed.first()[0] <= self.offset:
            self.offset = max(self.offset, passed.first()[1])
            passed.remove(0, self.offset)

    def _wanted(self) -> int:
        """Go to the first fresh message that is wanted; return where those end that are."""
        runs = self._runs
        while True:
            while runs and runs[0][1] <= self.offset:
                runs.popleft()
            if not runs:
                self._scan()
            if not runs:
                if self._seen > self.offset:
                    self.offset = self._seen
                    self._group.moved()
                return self.offset
            self.offset = max(self.offset, runs[0][0])
            self._pass()
            if self.offset < runs[0][1]:
                return runs[0][1]

    def _scan(self) -> None:
        """Look through what follows, up to a batch with messages that are wanted."""
        assert self._tags is not None
        start = self._seen = max(self._seen, self.offset)
        if start < self._partition.next:
            for first, batch in self._partition.read([(start, self._partition.next)], SCAN_BYTES):
                self._runs.extend(self._tags.wanted(first, batch))
                self._seen = first + batch.count
