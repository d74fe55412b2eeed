"""A partition: a log on one shard. Its messages are numbered by offsets, and stay until retention drops them.

    offset    0 ........ dropped ........ first ............................ next
    segments             |  [first, 900)  |  [900, 1400)  |  [1400, next)  |
    cursors                     ^ reader A                ^ reader B       ^ reader C, at the tail

It is a queue (queues/queue.py) of which nothing is taken: readers have cursors of their own, and what they acknowledge
gives them credit alone. An AMQP client sees it as one of RabbitMQ's streams.

The segments, their merging and their storing are those of every queue. The last segment is never dropped, so that a
start knows which offset comes next.

Between its messages none is missing, but where the store was damaged: those that a repair could not keep left their
offsets, which are passed over.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from msgspec.structs import replace

from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.dead_letter_outbox import DeadLetterOutbox
from shardmq.shards.queues.delivery import ALL_BATCHES, Delivery
from shardmq.shards.queues.segment_log import MERGE_SEGMENTS
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.queues.tally import Tally
from shardmq.shards.segments.segment import SEGMENT_BYTES, NumberedBatch, Ranges, Segment, place_of
from shardmq.shards.segments.shared_batch import SharedBatch, shared_batch
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.segments.tag_summary import SUMMARY_BYTES, seems_tagged, summary_of, tags_in
from shardmq.shards.segments.timed_segment import TimedSegment
from shardmq.shards.storage.recovery import NOTHING_STORED, RecoveredQueue
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.kept_messages import KeptMessages
from shardmq.shards.topics.retention import Retention
from shardmq.shards.topics.shared_reading import read_shared
from shardmq.shards.topics.tag_filter import TagFilter
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue as Declared

PEEK_BYTES: Final = 4 << 20
"""Bytes of messages that one look shows."""


class Partition(KeptMessages):
    """A partition (`queue.Queue`).

    Args:
        declared: what it is.
        buffer: where its changes are written down.
        clock: the shard's, by which messages are too old.
        stored: what a start found of it.

    Attributes:
        next: the offset of the next message.
        is_shared: whether several readers have cursors here: what they get is put together once for all of them.
        published: since start.
        dropped: messages that retention dropped, since start.
        missing: offsets between messages which have none any more: they were damaged. None where there are no such.
        letters: dead letters of groups that are to be taken, by group.
    """

    __slots__ = (
        "_clock",
        "_durable",
        "_is_marked",
        "_last_ms",
        "_retention",
        "arguments",
        "declared",
        "dropped",
        "letters",
        "is_shared",
        "missing",
        "next",
        "published",
        "tally",
    )

    outbox: DeadLetterOutbox | None = None
    reserved = 0
    unacked = 0

    def __init__(
        self, declared: Declared, buffer: WriteBuffer, clock: SteadyClock, stored: RecoveredQueue = NOTHING_STORED
    ) -> None:
        super().__init__(declared.id, buffer)
        self.configure(declared)
        self.next = 0
        self.letters: dict[str, DeadLetterOutbox] = {}
        self.is_shared = False
        self.missing: RangeSet | None = None
        self.published = self.dropped = 0
        self.tally = Tally()
        self._durable = declared.durable
        self._clock = clock
        for segment in stored.segments:
            self._adopt(segment)
        self._is_marked = bool(stored.marks)  # a repair has lost the newest messages: their offsets are not given again
        self._go_on_at(stored.marks.get(0, 0))
        self._last_ms = self._segments[-1].last_ms if self.index.segments else 0

    def configure(self, declared: Declared) -> None:
        """Take in arguments; what they do not keep goes with this pass."""
        self.declared = declared
        self.arguments = QueueArguments.of(declared.effective)
        self._retention = Retention(self.arguments)

    def _adopt(self, segment: Segment) -> None:
        self._go_on_at(segment.first)
        for start, end in segment.gone or ():
            self._miss(start, end)
        self.index.append(segment)
        self.young += 1
        self.total += segment.count
        self.bytes += segment.bytes
        self.next = max(self.next, segment.end)

    def _go_on_at(self, offset: int) -> None:
        if self.index.segments and self.next < offset:
            self._miss(self.next, offset)
        self.next = max(self.next, offset)

    def _miss(self, start: int, end: int) -> None:
        self.missing = self.missing or RangeSet()
        self.missing.add(start, end)

    @property
    def _segments(self) -> Sequence[TimedSegment]:
        return cast(Sequence[TimedSegment], self.index.segments)

    @property
    def first(self) -> int:
        """Return the offset of the oldest message; `next` where there is none."""
        return self.index.segments[0].first if self.index.segments else self.next

    @property
    def subqueues(self) -> Sequence[Subqueue]:
        """Return nothing: consumers are served from cursors."""
        return ()

    @property
    def ready(self) -> int:
        """Return how many messages there are."""
        return self.total

    @property
    def valid(self) -> int:
        """Return how many messages there are."""
        return self.total

    @property
    def is_sparse(self) -> bool:
        """Return that nothing of what its segments hold is settled."""
        return False

    @property
    def next_expiry_ms(self) -> int | None:
        """Return when the oldest messages will be too old, ms since 1970; None when none will be."""
        return self._retention.next_ms(self._segments)

    def append(self, batch: RecordBatch, _credit: int = 0, /) -> int:
        """Put a batch at the end; returns its count. All of it survives a restart, as in RabbitMQ's streams."""
        batch = self._timed(batch)
        segment = self._open
        if segment is None or segment.bytes >= SEGMENT_BYTES:
            segment = self._open = TimedSegment(self.id, self.next, self._durable, self._buffer.now)
            self.index.append(segment)
            self.young += 1
            self._buffer.open(segment)
            self._buffer.withhold()
        assert segment.batches is not None
        cast(TimedSegment, segment).cover(batch)
        segment.batches.append((self.next, batch))
        count, size = batch.count, len(batch.records)
        self.next = segment.end = self.next + count
        segment.count += count
        segment.live += count
        segment.bytes += size
        self.total += count
        self.bytes += size
        self.published += count
        return count

    def _timed(self, batch: RecordBatch) -> RecordBatch:
        """Return a batch whose time is not before that of the one before it, and not to come."""
        time_ms = max(min(batch.timestamp_ms, self._clock.now_ms()), self._last_ms)
        self._last_ms = time_ms
        if time_ms == batch.timestamp_ms:
            return batch
        timed = replace(batch, timestamp_ms=time_ms)  # other queues may have it, too
        if type(batch) is SharedBatch:
            return shared_batch(timed, batch.body, batch.begin, batch.body_bytes)
        return timed

    def has_room(self, _batches: Sequence[RecordBatch], _credit: int) -> bool:
        """Tell that it takes everything."""
        return True

    def present(self, start: int, end: int) -> Ranges:
        """Return the offsets [start, end) as ranges in order, without those that are missing or not given yet."""
        return (self.missing or RangeSet()).gaps(start, min(end, self.next))

    def run(self, start: int, end: int) -> tuple[int, int]:
        """Return the first messages in a row of [start, end): (first, end), which are the same where there is none."""
        if self.missing is not None and start < end:
            for first, stop in self.missing.walk(start, end):
                if start < first:
                    return start, first
                start = stop
        return start, max(start, end)

    def offset_of(self, time_ms: int) -> int:
        """Return the offset of the first message that came at a time or later; `next` where none did.

        Raises:
            RowDamaged: a segment that had to be read is not what was written.
        """
        segments = self._segments
        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            if segments[middle].last_ms < time_ms:
                low = middle + 1
            else:
                high = middle
        if low == len(segments):
            return self.next
        if segments[low].first_ms >= time_ms:
            return segments[low].first
        batches = self._buffer.read_once(segments[low])
        return next(first for first, batch in batches if batch.timestamp_ms >= time_ms)

    def times(self) -> tuple[int, int]:
        """Return when the oldest and the newest message came, ms since 1970; 0 where there is none."""
        segments = self._segments
        return (segments[0].first_ms, segments[-1].last_ms) if segments else (0, 0)

    def last_batch(self) -> int:
        """Return the offset of the first message of the newest batch: of RabbitMQ's last chunk; `next` without any."""
        if not self.index.segments:
            return self.next
        first, _ = self._buffer.batches(self.index.segments[-1])[-1]
        return first

    def read_on(
        self, start: int, end: int, room: int, alone: bool, slicer: BatchSlicer | None = None
    ) -> list[NumberedBatch]:
        """Return messages [start, end) for a reader, in few batches: as many as take `room` bytes, as `read`.

        They are in a row: behind one that is missing, another call reads on.

        Raises:
            RowDamaged: a segment that had to be read is not what was written.
        """
        if self.missing is not None:
            start, end = self.run(start, end)
        if self.is_shared:
            pieces = read_shared(self, self._buffer, start, end, room)
            if pieces or not alone:
                return pieces
        return self.read([(start, end)], room, alone, slicer=slicer)

    def look_through(self, start: int, tags: TagFilter, room: int) -> tuple[int, list[NumberedBatch]]:
        """Return messages from `start` on that may have some tags: of one segment, and as many as take `room` bytes.

        Returns:
            The offset of the first of them, and themselves; segments without such tags are left out.

        Raises:
            RowDamaged: a segment that had to be read is not what was written.
        """
        segments, place = self._segments, self.index.place(start)
        skipped = place
        while skipped < len(segments) and not tags.may_want(segments[skipped].tags):
            skipped += 1
        if skipped == len(segments):
            return self.next, []
        segment = segments[skipped]
        start = max(start, segment.first)
        batches = self.read(self.present(start, segment.end), room)
        last, batch = batches[-1]
        is_whole = start == segment.first and last + batch.count == segment.end
        if segment.tags is None and is_whole and segment is not self._open:
            self._summarize(segment, batches)
            self._buffer.change(segment)
        return start, batches

    def _summarize(self, segment: TimedSegment, batches: list[NumberedBatch]) -> None:
        tags = set[bytes]().union(*[tags_in(batch) for _, batch in batches])
        segment.tags = summary_of(tags, self.arguments.filter_size_bytes or SUMMARY_BYTES)

    def size_at(self, offset: int) -> int:
        """Return the bytes of the message at an offset."""
        batches = self._buffer.batches(self.index.segments[self.index.place(offset)])
        first, batch = batches[place_of(batches, offset)]
        return (self._slicer or self._new_slicer()).size(batch, offset - first)

    def stored_at(self, offset: int) -> int:
        """Return the bytes of the message at an offset, where it is alone in a segment not in memory; else 0."""
        segment = self.index.segments[self.index.place(offset)]
        return segment.bytes if segment.batches is None and segment.count == 1 else 0

    def peek(self, offset: int, count: int) -> list[Delivery]:
        """Look at messages, from the one `offset` behind the oldest on."""
        ranges: Ranges = []
        for start, end in self.present(self.first, self.next):
            begin = min(start + offset, end)
            offset -= begin - start
            stop = min(begin + count, end)
            count -= stop - begin
            ranges.append((begin, stop))
        pieces = self.read(ranges, PEEK_BYTES)
        return [Delivery(first, False, 0, batch) for first, batch in pieces]

    def show(self, ranges: Ranges, _fresh_from: Mapping[int, int]) -> list[Delivery]:
        """Look at messages by their offsets."""
        return [Delivery(first, False, 0, batch) for first, batch in self.read(ranges, PEEK_BYTES, keep=False)]

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the messages [start, end): one range, where none is missing."""
        yield from self.present(max(start, self.first), end)

    def extent(self, number: int) -> tuple[int, int]:
        """Return the end of the segment a message is in, and about how many bytes a message of it has."""
        segment = self.index.segments[self.index.place(number)]
        return segment.end, segment.bytes // segment.count

    def expire(self, now_ms: int, _batches_max: int = ALL_BATCHES) -> None:
        """Drop segments that are too old or too much."""
        for _ in range(self._retention.surplus(self._segments, self.bytes, now_ms)):
            segment = self.index.segments[0]
            self.dropped += segment.count
            self._remove(0, segment)
            if self.missing is not None:
                self.missing.remove(0, self.first)
                self.missing = self.missing or None

    def catch_up(self) -> None:
        """Drop segments that are too old or too much."""
        self.expire(self._clock.now_ms())

    def seal(self) -> None:
        """End a pass: what comes next goes into another segment."""
        segment, self._open = self._open, None
        if segment is not None:
            assert segment.batches is not None
            if any(seems_tagged(batch) for _, batch in segment.batches):
                self._summarize(cast(TimedSegment, segment), segment.batches)
        self.catch_up()
        if self.young >= MERGE_SEGMENTS:
            self._buffer.compactable[self] = None

    def retire(self) -> list[Segment]:
        """Delete the partition; return its segments, which are to be ended."""
        self._open = None
        self._buffer.compactable.pop(self, None)
        if self._is_marked:
            self._buffer.unmark(self.id, 0)
        return self.index.segments

    @property
    def segments(self) -> int:
        """Return how many segments hold its messages."""
        return len(self.index.segments)

    def counts(self) -> tuple[int, ...]:
        """Return what was counted since start, as `tally.COUNTS` names it."""
        return self.tally.counts(self.published, self.tally.delivered, self.tally.acked, (0, 0, self.dropped, 0))

    def table(self, consumers: int) -> dict[str, Any]:
        """Return the counts that `shardmq status` shows."""
        return {
            "id": self.id,
            "vhost": self.declared.vhost,
            "name": self.declared.name,
            "durable": self.declared.durable,
            "total": self.total,
            "valid": self.valid,
            "ready": self.ready,
            "unacked": 0,
            "delayed": 0,
            "dying": 0,
            "reserved": 0,
            "consumers": consumers,
            "bytes": self.bytes,
            "segments": self.segments,
            "published": self.published,
            "delivered": 0,
            "acked": 0,
            "redelivered": 0,
            "expired": 0,
            "dropped": self.dropped,
            "dead_lettered": 0,
            "first_offset": self.first,
            "next_offset": self.next,
        }
