"""Messages of one priority, in order: taken in, delivered, settled, requeued, held.

Messages are numbered in the order they came. Which of them are ready, and in which order, is in ready_messages.py. The
counts are kept as things happen.

A message is in one of four states, or settled:

    fresh, returned     ready
    unacked             delivered
    held                neither: it waits for a time to pass, or for its way out (a dead letter)

A plain queue is one subqueue. A queue with priorities has one for each priority in use; the number of the subqueue is
in the upper bits of its messages' numbers, so that all of a queue's messages have one order.
"""

from collections.abc import Iterable
from typing import Final

from shardmq.limits import RECORD_BATCH_RECORDS_MAX
from shardmq.message.record_batch import PERSISTENT, RecordBatch, can_join, join
from shardmq.ranges import RangeSet
from shardmq.shards.queues.delivery import ALL_BATCHES, EXPIRE_BYTES, Delivery, make_delivery
from shardmq.shards.queues.ready_messages import ReadyMessages
from shardmq.shards.queues.segment_log import COMPACT_TOTAL_MIN, MERGE_SEGMENTS
from shardmq.shards.segments.segment import SEGMENT_BYTES, Ranges, Segment
from shardmq.shards.segments.steps import RANGE_COST_BYTES, SEGMENT_COST_BYTES, Steps
from shardmq.shards.storage.write_buffer import WriteBuffer

JOIN_BYTES_MAX: Final = 4096
"""Batches up to this size are joined on delivery where they continue one another; larger ones cost more to copy than to
send by themselves."""


EXPIRE_BATCHES: Final = 20_000
"""Batches that expire in one go, which takes some 0.1 s; where a million fell due together, others have their turns."""


class Subqueue(ReadyMessages):
    """State of one subqueue.

    Args:
        queue: id of the queue it belongs to.
        durable: whether that queue is.
        buffer: where its changes are written down.
        number: of the subqueue; its messages' numbers begin at `number << SUBQUEUE_BITS`.
        mark: as stored: every number handed out to anybody, ever, is below it.
        segments: as stored, in order.
        ttl_ms: how long any message may wait here.

    Attributes:
        unacked, held: how many are delivered and not settled; how many are held.
        can_expire: whether something in it may expire.
        published, delivered, acked, redelivered: since start.
    """

    __slots__ = (
        "_arrived",
        "_expired_ms",
        "_expiry",
        "_expiry_of",
        "acked",
        "held",
        "delivered",
        "can_expire",
        "published",
        "redelivered",
        "ttl_ms",
        "unacked",
    )

    def __init__(
        self,
        queue: int,
        durable: bool,
        buffer: WriteBuffer,
        number: int = 0,
        mark: int = 0,
        segments: Iterable[Segment] = (),
        ttl_ms: int | None = None,
    ) -> None:
        super().__init__(queue, durable, buffer, number, mark)
        self.unacked = self.held = 0
        self.published = self.delivered = self.acked = self.redelivered = 0
        self._expiry: int | None = None
        self.limit_life(ttl_ms)
        self._expired_ms = 0  # what expires by then and is at the head is gone
        for segment in segments:
            self._adopt(segment)
        self._arrived = self.next
        self.look()

    @property
    def valid(self) -> int:
        """Return how many messages are not settled."""
        return self.fresh + self.returned.count + self.unacked + self.held

    def append(self, batch: RecordBatch, _credit: int = 0, /) -> int:
        """Put a batch at the end; returns its count. There is no length limit that credit could widen."""
        count = batch.count
        size = len(batch.records)
        durable = self._durable and batch.flags & PERSISTENT != 0
        segment = self._open
        if segment is None or segment.durable is not durable or segment.bytes >= SEGMENT_BYTES:
            segment = self._open = Segment(self.id, self.next, durable, self._buffer.now)
            self.index.append(segment)
            self.young += 1
            self._buffer.open(segment)
        if batch.ttl_ms is not None:
            self.can_expire = segment.can_expire = True
            self._stamp(batch)
        assert segment.batches is not None
        segment.batches.append((self.next, batch))
        self.next = segment.end = self.next + count
        segment.count += count
        segment.live += count
        segment.bytes += size
        self.fresh += count
        self.total += count
        self.bytes += size
        self.published += count
        return count

    def seal(self) -> None:
        """The pass ends; what comes next goes into another segment."""
        self._open = None
        self._arrived = self.next  # as `offered` says
        if self.young >= MERGE_SEGMENTS or self.total >= COMPACT_TOTAL_MIN:
            self.look()

    def limit_life(self, ttl_ms: int | None) -> None:
        """Give all messages another time to live, from when they came; None for none but their own."""
        self.ttl_ms, self._expiry_of = ttl_ms, -1
        self.can_expire = ttl_ms is not None or any(segment.can_expire for segment in self.index.segments)

    def offered(self) -> None:
        """Consumers have had their chance at all that is here: what has expired of it may go."""
        self._arrived = self.next

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Hand out ready messages, in order; they are unacked from here on.

        Args:
            limit: so many at most.
            room: bytes they may take together.
            alone: whether a first message larger than `room` may go nevertheless, by itself.
        """
        only = None if self.can_expire else self._pass_only_batch(limit, room)
        if only is None:
            return self._take_pieces(limit, room, alone)
        first, batch = only
        self.unacked += batch.count
        self.delivered += batch.count
        return [make_delivery((first, False, 0, batch))]

    def _take_pieces(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        deliveries: list[tuple[int, bool, list[RecordBatch]]] = []
        end = taken = joined = 0
        returned = self.returned
        while limit > 0:
            if self.can_expire and not self._clear_head():
                break
            redelivered = returned.count > 0
            if redelivered:
                first, count, place, batch = self._next_returned()
            elif self.fresh:
                first, count, place, batch = self._next_fresh()
            else:
                break
            if count > limit:  # noqa: PLR1730 - as in _next_fresh
                count = limit
            piece = batch
            if count < batch.count or len(batch.records) > room:
                slicer = self._slicer or self._new_slicer()
                count = min(count, slicer.fitting(batch, place, room)) or (alone and not deliveries)
                if not count:
                    break
                piece = slicer.view(batch, place, place + count)
            if redelivered:
                returned.remove(first, first + count)
                self.redelivered += count
            else:
                self.fresh -= count
                self._pass(first + count, batch, place + count)
            size = len(piece.records)
            room -= size
            limit -= count
            taken += count
            if (
                first == end
                and size <= JOIN_BYTES_MAX
                and deliveries
                and deliveries[-1][1] is redelivered
                and joined + count <= RECORD_BATCH_RECORDS_MAX
                and can_join(deliveries[-1][2][-1], piece)
            ):
                deliveries[-1][2].append(piece)
                joined += count
            else:
                deliveries.append((first, redelivered, [piece]))
                joined = count
            end = first + count
        self.unacked += taken
        self.delivered += taken
        return [
            make_delivery((first, again, 0, batches[0] if len(batches) == 1 else join(batches)))
            for first, again, batches in deliveries
        ]

    def settle(self, ranges: Ranges) -> None:
        """Settle unacked messages."""
        for start, end in ranges:
            self.unacked -= end - start
            self.acked += end - start
            self._settle(start, end)

    def requeue(self, ranges: Ranges) -> None:
        """Make unacked messages ready again, at their place."""
        for start, end in ranges:
            self.unacked -= self.returned.add(start, end)

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Make unacked messages ready again that nobody has seen since they were taken."""
        count, others = self._step_back(ranges, fresh_from)
        self.unacked -= count + self.returned.unite(others)

    def purge(self) -> tuple[int, Steps]:
        """Remove what is ready: it is held at once, however much it is, and settled step by step.

        Returns:
            How many messages that is, and the steps.
        """
        count, fresh_from = self.ready, self.cursor
        returned, self.returned = self.returned, RangeSet()
        self.held += count
        if self.fresh:
            self.cursor = self.next
            self.fresh = 0
            self._reading = None
            if self._slicer is not None:
                self._slicer.forget()
            if self._durable and self.delivered_mark < self.cursor:
                # Below the mark, what is not stored as gone is taken to be alive; above, it is fresh.
                self._raise_mark(self.cursor)
        return count, self._drop_all(returned, fresh_from, self.cursor)

    def _drop_all(self, returned: RangeSet, fresh_from: int, fresh_to: int) -> Steps:
        """Settle what a purge holds; between two steps, the compactor may have been at work."""
        for start, end in returned.walk(0, self.next):
            while start < end:
                stop = min(end, self.extent(start)[0])
                yield self._drop_part(start, stop)
                start = stop
        while fresh_from < fresh_to:
            place = self.index.place(fresh_from)
            if place == len(self.index.segments) or self.index.segments[place].first >= fresh_to:
                break
            segment = self.index.segments[place]
            stop = min(fresh_to, segment.end)
            if fresh_from <= segment.first and stop == segment.end:
                self.held -= segment.live
                self._remove(place, segment)
                yield max(segment.bytes, SEGMENT_COST_BYTES)
            else:
                yield sum([self._drop_part(*part) for part in segment.living(fresh_from, stop)])
            fresh_from = stop
        self.look()

    def _drop_part(self, start: int, end: int) -> int:
        """Settle held messages, all of one segment; returns what that counts for, in bytes."""
        before = self.bytes
        self.held -= end - start
        self._settle(start, end)
        freed = before - self.bytes
        return max(freed, SEGMENT_COST_BYTES) if freed else RANGE_COST_BYTES

    def hold(self, ranges: Ranges) -> None:
        """Hold unacked messages."""
        for start, end in ranges:
            self.unacked -= end - start
            self.held += end - start

    def release_held(self, ranges: Ranges) -> None:
        """Make held messages ready again, at their place."""
        self.held -= self.returned.unite(ranges)

    def drop(self, ranges: Ranges) -> None:
        """Settle held messages."""
        for start, end in ranges:
            self.held -= end - start
            self._settle(start, end)

    def keep_held(self, ranges: Ranges) -> Ranges:
        """At start: hold what was held before; returns those of them that are still here."""
        found = self.returned.extract(list(RangeSet(ranges)))
        self.held += sum([end - start for start, end in found])
        return found

    def withdraw(self, count: int) -> Ranges:
        """Set the first `count` ready messages aside, handed out to nobody and not read."""
        ranges: Ranges = []
        for start, end in self.returned.walk(0, self.cursor):
            if count <= 0:
                break
            end = min(end, start + count)
            count -= end - start
            ranges.append((start, end))
        if ranges:
            self.returned.remove(ranges[0][0], ranges[-1][1])
        place = self.index.place(self.cursor)
        while count > 0 and self.fresh:
            segment = self.index.segments[place]
            place += 1
            for first, stop in segment.living(self.cursor, segment.end):
                end = min(stop, first + count)
                if end <= first:
                    break
                count -= end - first
                self.fresh -= end - first
                self._advance(end, segment.durable)
                ranges.append((first, end))
        self.held += sum([end - start for start, end in ranges])
        return ranges

    def withdraw_expired(self, now_ms: int, batches_max: int = ALL_BATCHES) -> Ranges:
        """Hold what has waited for too long, at the head: so many batches at most, and about EXPIRE_BYTES then.

        What came in this very pass stays: it may still be delivered at once, which is what a time of 0 allows.
        """
        ranges: Ranges = []
        self._expired_ms = now_ms
        room = EXPIRE_BYTES if batches_max < ALL_BATCHES else ALL_BATCHES
        for _ in range(batches_max):
            due_ms = self.next_expiry_ms
            if due_ms is None or due_ms > now_ms or room <= 0:
                break
            first, count, _, batch = self._next_returned() if self.returned else self._next_fresh()
            if first >= self._arrived:
                break
            room -= len(batch.records)
            ranges += self.withdraw(count)
        return ranges

    @property
    def next_expiry_ms(self) -> int | None:
        """When the message at the head expires, ms since 1970; None when it does not, or nothing is ready."""
        if not self.can_expire:
            return None
        returned = self.returned
        if returned:
            head = returned.first()[0]
        elif self.fresh:
            head = self.cursor
        else:
            return None
        if head != self._expiry_of:
            _, _, _, batch = self._next_returned() if returned else self._next_fresh()
            ttls = [ttl for ttl in (self.ttl_ms, batch.ttl_ms) if ttl is not None]
            self._expiry = batch.timestamp_ms + min(ttls) if ttls else None
            self._expiry_of = head
        return self._expiry

    @property
    def is_sparse(self) -> bool:
        """Whether less than half of what it stores is valid, and it matters."""
        return self.total >= COMPACT_TOTAL_MIN and self.valid * 2 < self.total

    def look(self) -> None:
        """Have the compactor look at it, if that may be worth while."""
        if self.young >= MERGE_SEGMENTS or self.is_sparse:
            self._buffer.compactable[self] = None

    def close(self) -> None:
        """Delete the subqueue with its queue."""
        self._open = None
        self._buffer.compactable.pop(self, None)
        if self._durable:
            self._buffer.unmark(self.id, self.number)

    def _adopt(self, segment: Segment) -> None:
        """Take over a stored segment: what is live below the mark may have been handed out, and is ready again."""
        self.index.append(segment)
        self.young += 1
        self.total += segment.count
        self.bytes += segment.bytes
        self.can_expire = self.can_expire or segment.can_expire
        self.next = max(self.next, segment.end)
        if segment.first >= self.cursor:
            self.fresh += segment.live
            return
        for start, end in segment.living(segment.first, self.cursor):
            self.returned.add(start, end)
        self.fresh += sum(end - start for start, end in segment.living(self.cursor, segment.end))

    def _stamp(self, batch: RecordBatch) -> None:
        """For a queue that is a subqueue itself: a batch's time to live begins."""

    def _clear_head(self) -> bool:
        """Whether what is at the head may be handed out; what has expired must not, but is the queue's to remove."""
        due_ms = self.next_expiry_ms
        return due_ms is None or due_ms > self._expired_ms or self._expiry_of >= self._arrived
