"""Which messages of a subqueue are ready, in which order, and where the next one lies.

All below the cursor were handed out at least once, or held; of those, the ones that came back are ready again, at
their place, before the fresh ones.

    0 ............. settled ...............|.. handed out ..|. returned .|.. handed out ..| fresh .......... next
                                                                                          ^ cursor       ^ mark (stored)
"""

from collections.abc import Iterator
from typing import Final

from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.queues.segment_log import SegmentLog
from shardmq.shards.segments.segment import NumberedBatch, Ranges, place_of
from shardmq.shards.storage.write_buffer import WriteBuffer

MARK_LEAP: Final = 16_384
"""How far the mark is raised ahead of the cursor. It costs one 16-byte write per so many messages; after a crash, up to
so many messages are called redelivered though they were not."""


class ReadyMessages(SegmentLog):
    """The ready messages of a subqueue.

    Args:
        queue: id of the queue it belongs to.
        durable: whether that queue is.
        buffer: where its changes are written down.
        number: of the subqueue; its messages' numbers begin at `number << SUBQUEUE_BITS`.
        mark: as stored: every number handed out to anybody, ever, is below it.

    Attributes:
        next: the number the next message gets.
        cursor: below it, everything was handed out or held once.
        delivered_mark: the mark, as it was last raised.
        fresh: how many messages were never handed out.
        returned: handed out before, and ready again.
    """

    __slots__ = ("_durable", "_reading_place", "cursor", "fresh", "delivered_mark", "next", "number", "returned")

    def __init__(self, queue: int, durable: bool, buffer: WriteBuffer, number: int, mark: int) -> None:
        super().__init__(queue, buffer)
        self.number = number
        self.cursor = self.next = self.delivered_mark = max(mark, number << SUBQUEUE_BITS)
        self.returned = RangeSet()
        self.fresh = 0
        self._durable = durable
        self._reading_place = 0

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        return self.fresh + self.returned.count

    def stored_bytes(self) -> int:
        """Return the bytes of the next message, where it is not in memory and its size is known; else 0."""
        if self.returned.count:
            segment = self.index.segments[self.index.place(self.returned.first()[0])]
        elif self.fresh:
            reading = self._reading
            if reading is not None and reading.batches is not None and self._reading_place < len(reading.batches):
                return 0
            segment = self.index.segments[self.index.place(self.cursor)]
        else:
            return 0
        return segment.bytes if segment.batches is None and segment.count == 1 else 0

    def head_bytes(self) -> int:
        """Return the bytes of the next message; 0 where none is ready."""
        if not self.ready:
            return 0
        _, _, place, batch = self._next_returned() if self.returned else self._next_fresh()
        slicer = self._slicer or self._new_slicer()
        return slicer.size(batch, place)

    def extent(self, number: int) -> tuple[int, int]:
        """Return the end of the segment a live message is in, and about how many bytes a message of it has."""
        segment = self.index.segments[self.index.place(number)]
        return segment.end, segment.bytes // segment.count

    def mark_exactly(self) -> None:
        """At a clean stop: set the mark to the cursor, so that only what was delivered is called redelivered."""
        if self._durable and self.delivered_mark != self.cursor:
            self._raise_mark(self.cursor)

    def waiting(self, offset: int, count: int) -> Ranges:
        """Ready messages in the order of delivery: those from `offset` on, `count` at most."""
        ranges: Ranges = []
        for start, end in self.between(0, self.next):
            skipped = min(offset, end - start)
            offset -= skipped
            end = min(end, start + skipped + count)
            if start + skipped < end:
                ranges.append((start + skipped, end))
                count -= end - start - skipped
            if count <= 0:
                break
        return ranges

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ready messages numbered [start, end), range by range in order; the subqueue must not change meanwhile."""
        yield from self.returned.walk(start, end)
        if self.fresh:
            start = max(start, self.cursor)
            segments = self.index.segments
            for place in range(self.index.place(start), len(segments)):
                if segments[place].first >= end:
                    break
                yield from segments[place].living(start, end)

    def _next_returned(self) -> tuple[int, int, int, RecordBatch]:
        first, end = self.returned.first()
        batches = self._buffer.batches(self.index.segments[self.index.place(first)])
        batch_first, batch = batches[place_of(batches, first)]
        return first, min(end, batch_first + batch.count) - first, first - batch_first, batch

    def _next_fresh(self) -> tuple[int, int, int, RecordBatch]:
        segment = self._reading
        batches = segment.batches if segment is not None else None
        if batches is None or self._reading_place >= len(batches):
            batches = self._locate()
        batch_first, batch = batches[self._reading_place]
        first = self.cursor
        if first < batch_first:  # noqa: PLR1730 - max() would take four times as long
            first = batch_first
        place = first - batch_first
        return first, batch.count - place, place, batch

    def _locate(self) -> list[NumberedBatch]:
        """Find the batch that holds the first fresh message."""
        segment = self._reading = self.index.segments[self.index.place(self.cursor)]
        batches = self._buffer.batches(segment)
        self._reading_place = place_of(batches, self.cursor)
        return batches

    def _pass(self, end: int, batch: RecordBatch, place: int) -> None:
        """The fresh messages up to number `end`, which is `place` in its batch, are handed out."""
        self.cursor = end
        if place == batch.count:
            self._reading_place += 1
        if end > self.delivered_mark and self._durable and batch.flags & PERSISTENT:
            self._raise_mark(end + MARK_LEAP)

    def _pass_only_batch(self, limit: int, room: int) -> NumberedBatch | None:
        """Hand out the batch that is all that is ready, as in most of many queues; None where it is not so simple."""
        if not self.fresh or self.returned:
            return None
        first, count, place, batch = self._next_fresh()
        if place or count != self.fresh or count > limit or len(batch.records) > room:
            return None
        self.fresh = 0
        self._pass(first + count, batch, count)
        return first, batch

    def _step_back(self, ranges: Ranges, fresh_from: int) -> tuple[int, Ranges]:
        """Make the last of some unacked messages fresh again, as far as they were, and nothing behind them went out.

        Returns:
            How many those are, and the others.
        """
        start, end = ranges[-1]
        start = max(start, fresh_from)
        if end != self.cursor or start >= end:
            return 0, ranges
        self.cursor = start
        self._reading = None
        self.fresh += end - start
        return end - start, [*ranges[:-1], *([(ranges[-1][0], start)] if ranges[-1][0] < start else [])]

    def _advance(self, end: int, durable: bool) -> None:
        """The fresh messages up to number `end` are held, wherever batches begin and end."""
        self.cursor = end
        self._reading = None
        if end > self.delivered_mark and self._durable and durable:
            self._raise_mark(end + MARK_LEAP)

    def _raise_mark(self, mark: int) -> None:
        self.delivered_mark = mark
        self._buffer.mark(self.id, self.number, mark)
