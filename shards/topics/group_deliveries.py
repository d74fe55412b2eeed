"""What a group's members have of a partition, and what they get next.

    offset    floor ... unsettled: delivered, returned, delayed or dying ... |  run of fresh messages  | ....... next
                                                                             ^ offset

Messages that came back are delivered first, at their place, then fresh ones. In an ordered group nothing is delivered
past a message that was returned with a delay, until that is over.
"""

from bisect import insort
from typing import Final, Protocol

from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.queues.dead_letter_outbox import DELIVERY_LIMIT, REJECTED
from shardmq.shards.queues.delivery import Delivery, make_delivery
from shardmq.shards.queues.ready_messages import MARK_LEAP
from shardmq.shards.segments.delivery_counts import DeliveryCounts
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.storage.entries import GroupSettings
from shardmq.shards.topics.fresh_messages import FreshMessages
from shardmq.shards.topics.group_letters import GroupLetters, new_producer
from shardmq.shards.topics.partition import Partition
from shardmq.shards.topics.tag_filter import TagFilter

RANGES_MAX: Final = 8192
"""Ranges of messages that are delivered and not settled, returned or delayed. With more, fresh messages wait until
some are settled: a cursor's row is written in some milliseconds, whatever members leave unacknowledged."""

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
    letters: int
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
        unsettled: messages that were delivered and are not acknowledged.
        returned: those of them that are ready again.
        delays: those of them that were returned with a delay, in the order they are due.
        letters: those of them that have died; None where the group has no dead-letter exchange.
        expected_ms: when it is looked whether the first delay is over; None where it is not.
    """

    __slots__ = (
        "_again_until",
        "_fresh",
        "_group",
        "_is_ordered",
        "_limit",
        "_oldest",
        "_partition",
        "_slicer",
        "delays",
        "expected_ms",
        "letters",
        "returned",
        "unsettled",
    )

    def __init__(self, group: Group, offset: int) -> None:
        self._group = group
        self._partition = group.partition
        self._slicer = BatchSlicer()  # members with a small prefetch take a batch piece by piece
        self._fresh = FreshMessages(group.partition, offset, group.acked)
        self.unsettled = RangeSet()
        self.returned = RangeSet()
        self.delays: list[Delay] = []
        self.expected_ms: int | None = None
        self._oldest = 0  # below it, nothing is ready or delayed
        self._again_until = group.mark  # what is below may have been delivered before
        self.learn(group.settings)

    def learn(self, settings: GroupSettings | None) -> None:
        """Take over what the first member said of the group."""
        self.letters: GroupLetters | None = None
        self._limit: int | None = None
        self._is_ordered = True
        if settings is None:
            return
        self._is_ordered = not settings.is_shared
        self._limit = settings.delivery_limit
        if settings.tags is not None:
            self._fresh.tags = TagFilter(settings.tags, settings.has_untagged)
        if settings.dead_letter_exchange is not None:
            self.letters = GroupLetters(self._partition, self, self._group.letters)

    def adopt(self, delays: list[Delay]) -> None:
        """Take over delays that a start found, of messages at or above the offset."""
        self.delays = sorted(delays)
        passed = self._fresh.passed = self._fresh.passed or RangeSet()
        for _, start, end in delays:
            self.unsettled.add(start, end)
            passed.add(start, end)

    @property
    def floor(self) -> int:
        """Return the lowest message that is not acknowledged; the next fresh one where there is none."""
        offset = self._fresh.offset
        return min(self.unsettled.first()[0], offset) if self.unsettled else offset

    @property
    def reached(self) -> int:
        """Return where everything that may have been delivered ends."""
        return max(self._fresh.offset, self._again_until)

    @property
    def ranges(self) -> int:
        """Return how many ranges are kept of it."""
        return len(self.unsettled) + len(self.returned) + len(self.delays)

    @property
    def delayed(self) -> int:
        """Return how many messages wait for a delay to be over."""
        return sum([end - start for _, start, end in self.delays])

    @property
    def is_idle(self) -> bool:
        """Return whether all that is unsettled is ready again, so that nothing is to be remembered but that."""
        return self.unsettled.count == self.returned.count

    def acked_above(self) -> Ranges:
        """Return what is acknowledged above the floor."""
        unsettled, offset = self.unsettled, self._fresh.offset
        if unsettled.end > offset:
            acked = unsettled.gaps(self.floor, offset)
        else:
            acked = unsettled.between()
            if unsettled and unsettled.end < offset:
                acked.append((unsettled.end, offset))
        for passed in self._fresh.passed or ():
            for start, end in unsettled.gaps(*passed):
                if acked and acked[-1][1] == start:
                    start = acked.pop()[0]
                acked.append((start, end))
        return acked

    @property
    def has_nothing(self) -> bool:
        """Return whether nothing can be delivered, as is soon seen: a pass asks all groups of a partition."""
        is_dropped = self._partition.first > self._oldest and bool(self.unsettled)
        return not (self._fresh.offset != self._partition.next or self.returned or is_dropped)

    @property
    def is_behind(self) -> bool:
        """Return whether there may be messages for it, though none is ready: more has to be looked through first."""
        return self._fresh.is_behind and self._may_go_on and not self.returned

    @property
    def _may_go_on(self) -> bool:
        """Return whether fresh messages may be delivered."""
        return self.ranges < RANGES_MAX and not (self.delays and self._is_ordered)

    @property
    def ready(self) -> int:
        """Return how many messages wait in a row: those that came back, or fresh ones where none did."""
        oldest = self._partition.first
        if oldest > self._oldest:
            self._lose_below(oldest)
        if self.returned:
            if not (self.delays and self._is_ordered):
                return self.returned.count
            waits = min([start for _, start, _ in self.delays])
            return sum([end - start for start, end in self.returned.walk(0, waits)])
        if not self._may_go_on:
            return 0
        start, end = self._run()
        return end - start

    def _run(self) -> tuple[int, int]:
        """Return fresh messages in a row."""
        before = self._fresh.offset
        run = self._fresh.run()
        if run[0] != before and not self.unsettled:  # what was passed over has moved the floor
            self._group.moved()
        return run

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver what is ready, in order; it is unsettled from here on."""
        while (ready := self.ready) > 0:
            if self.returned:
                return self._take_returned(min(limit, ready), room, alone)
            deliveries = self._take_fresh(min(limit, ready), room, alone)
            if deliveries is not None:
                return deliveries
        return []

    def _take_fresh(self, limit: int, room: int, alone: bool) -> list[Delivery] | None:
        """Deliver fresh messages; None where there were some, and all have died again."""
        start, end = self._run()
        is_again = start < self._again_until
        end = min(end, start + limit, self._again_until if is_again else end)
        pieces = self._partition.read_on(start, end, room, alone, self._slicer)
        if not pieces:
            return []
        first, batch = pieces[-1]
        end = self._fresh.offset = first + batch.count
        self.unsettled.add(start, end)
        group = self._group
        if end > group.mark:
            group.mark = end + MARK_LEAP
            group.keep()
        if is_again:
            return self._living([part for first, batch in pieces for part in self.counted(first, batch)]) or None
        return [make_delivery((first, False, 0, batch)) for first, batch in pieces]

    def _living(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Let those die again that were dying when the shard was ended; return the others."""
        limit = self._limit
        if limit is None or all(delivery.delivery_count <= limit for delivery in deliveries):
            return deliveries
        spent = [each for each in deliveries if each.delivery_count > limit]
        self._die([(each.first, each.first + each.batch.count) for each in spent], DELIVERY_LIMIT)
        return [each for each in deliveries if each.delivery_count <= limit]

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
        self._oldest = 0
        for start, end in self._count(ranges):
            self.returned.add(start, end)

    time_out = requeue

    def reject(self, ranges: Ranges) -> None:
        """Dead-letter messages that no member wants, or settle them."""
        self._die(ranges, REJECTED)

    def _die(self, ranges: Ranges, reason: str) -> None:
        if self.letters is None:
            self.settle(ranges)
        else:
            self.letters.add(ranges, reason)
            self._partition.letters[self._group.name] = self.letters

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make delivered messages ready again that nobody has seen: it counts for no delivery."""
        self._oldest = 0
        *others, (first, end) = ranges
        start = max(first, fresh_from)
        if end == self._fresh.offset and start < end:
            self.unsettled.remove(start, end)
            self._fresh.go_to(start)
            end = start
        for start, stop in [*others, (first, end)]:
            self.returned.add(start, stop)

    def delay(self, ranges: Ranges, due_ms: int) -> None:
        """Make delivered messages ready again at a time."""
        self._oldest = 0
        for start, end in self._count(ranges):
            insort(self.delays, (due_ms, start, end))
        self._group.moved()

    def end_delays(self, now_ms: int) -> None:
        """Make messages whose delay is over ready again."""
        self._oldest = 0
        over = [delay for delay in self.delays if delay[0] <= now_ms]
        for _, start, end in over:
            self.returned.add(start, end)
        if over:
            del self.delays[: len(over)]
            self._group.moved()

    def advance(self, offset: int) -> None:
        """Acknowledge all messages below an offset; those that are dying do so nevertheless."""
        dying = self.letters.ranges() if self.letters is not None else []
        self.unsettled.remove(0, offset)
        for start, end in dying:
            self.unsettled.add(start, end)
        self._forget(offset)

    def reset(self, offset: int) -> None:
        """Read on from an offset; everything that was unsettled is forgotten."""
        self.unsettled.clear()
        self.returned.clear()
        self.delays.clear()
        self._oldest = 0
        self._fresh.passed = self._group.counts = None
        self._fresh.go_to(offset)
        self._again_until = self._group.mark = offset
        self._partition.letters.pop(self._group.name, None)
        if self.letters is not None:
            self._group.letters = new_producer()  # what died before may die again
            self.letters = GroupLetters(self._partition, self, self._group.letters)

    def lose(self, ranges: Ranges) -> None:
        """Forget messages that retention dropped."""
        for start, end in ranges:
            self._group.lost += self.unsettled.remove(start, end)
        self._group.moved()

    def _forget(self, oldest: int) -> None:
        """Nothing below an offset is ready or waits any more."""
        self.returned.remove(0, oldest)
        self.delays = [(due, max(start, oldest), end) for due, start, end in self.delays if end > oldest]
        if self._group.counts:
            self._group.counts.remove(0, oldest)
        self._fresh.leave(oldest)

    def _lose_below(self, oldest: int) -> None:
        """Retention has dropped messages, read or not; what members hold of them is theirs."""
        self._oldest = oldest
        lost = self.returned.within(0, oldest)
        lost += [(start, min(end, oldest)) for _, start, end in self.delays if start < oldest]
        if lost:
            self.lose(lost)
        fresh = self._fresh
        if fresh.offset < oldest:
            unread = fresh.passed.gaps(fresh.offset, oldest) if fresh.passed else [(fresh.offset, oldest)]
            self._group.lost += sum([end - start for start, end in unread])
            self._group.moved()
        self._forget(oldest)

    def _head(self) -> int | None:
        """Return the message that comes next; None where none is ready."""
        return None if not self.ready else self.returned.first()[0] if self.returned else self._run()[0]

    def _take_returned(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        ranges: Ranges = []
        for start, end in self.returned.walk(0, self._partition.next):
            end = min(end, start + limit)
            ranges.append((start, end))
            limit -= end - start
            if not limit or len(ranges) == RETURNED_AT_ONCE:
                break
        deliveries: list[Delivery] = []
        for first, batch in self._partition.read(ranges, room, alone, slicer=self._slicer):
            self.returned.remove(first, first + batch.count)
            deliveries += self.counted(first, batch)
        return deliveries

    def counted(self, first: int, batch: RecordBatch) -> list[Delivery]:
        """Return redelivered messages, cut where they were not returned equally often."""
        counts = self._group.counts
        if not counts:
            return [Delivery(first, True, 0, batch)]
        slicer = BatchSlicer()
        pieces = counts.pieces(first, first + batch.count)
        return [Delivery(start, True, n, slicer.cut(batch, start - first, end - first)) for start, end, n in pieces]

    def _count(self, ranges: Ranges) -> Ranges:
        """Messages were delivered in vain; returns those that may be delivered again."""
        limit = self._limit
        if limit is None:
            return ranges
        counts = self._group.counts = self._group.counts or DeliveryCounts()
        again, spent = Ranges(), Ranges()
        for start, end in ranges:
            for first, stop, count in counts.add(start, end):
                (again if count <= limit else spent).append((first, stop))
        self._group.moved()
        if spent:
            self._die(spent, DELIVERY_LIMIT)
        return again
