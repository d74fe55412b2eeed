"""The segments of a subqueue: what lies where, what is read, what is settled, and what replaces them."""

from typing import Final

from shardmq.limits import RECORD_BATCH_RECORDS_MAX
from shardmq.message.record_batch import RecordBatch, can_join, join
from shardmq.shards.segments.segment import NumberedBatch, Ranges, Segment, SegmentIndex, place_of
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.storage.write_buffer import WriteBuffer

GAPS_SEGMENTS: Final = 64
"""Segments that are looked at for gaps: where the head of a queue moves on, the first one has them."""


class SegmentLog:
    """The segments of one subqueue, in order.

    Args:
        queue: id of the queue it belongs to.
        buffer: where its changes are written down.

    Attributes:
        index: the segments in order.
        total: messages in them, dead ones included.
        bytes: of their records.
        young: how many came since the compactor looked.
    """

    __slots__ = ("_slicer", "_buffer", "_open", "_reading", "bytes", "id", "index", "total", "young")

    def __init__(self, queue: int, buffer: WriteBuffer) -> None:
        self.id = queue
        self.index = SegmentIndex()
        self.total = self.bytes = self.young = 0
        self._buffer = buffer
        self._open: Segment | None = None
        self._reading: Segment | None = None
        self._slicer: BatchSlicer | None = None  # a subqueue in ten thousand idle ones needs none

    def read(
        self,
        ranges: Ranges,
        room: int,
        alone: bool = True,
        apart: int = -1,
        keep: bool = True,
        slicer: BatchSlicer | None = None,
    ) -> list[tuple[int, RecordBatch]]:
        """Messages, in few batches: as many as take `room` bytes, but one at least where `alone`.

        No batch has messages on both sides of number `apart`. Bodies stay in memory where `keep` says so; where not,
        and they lie far apart, fewer are read than there is room for. Who reads on in pieces gives its own `slicer`.
        """
        groups: list[tuple[int, list[RecordBatch]]] = []
        slicer = slicer or BatchSlicer()
        bodies = self._buffer.batches if keep else self._buffer.read_once
        batches: list[NumberedBatch] = []
        segment: Segment | None = None
        after = -1
        joined = 0
        enough = self._buffer.read_once_bytes + 2 * room
        for start, end in ranges:
            while start < end:
                if segment is None or not segment.first <= start < segment.end:
                    if groups and self._buffer.read_once_bytes >= enough:
                        return _joined(groups)
                    segment = self.index.segments[self.index.place(start)]
                    batches = bodies(segment)
                first, batch = batches[place_of(batches, start)]
                count = min(end, first + batch.count) - start
                if start < apart < start + count:
                    count = apart - start
                if len(batch.records) > room:
                    count = min(count, slicer.fitting(batch, start - first, room)) or (alone and not groups)
                if not count:
                    return _joined(groups)
                piece = slicer.cut(batch, start - first, start - first + count)
                room -= len(piece.records)
                if (
                    start == after
                    and start != apart
                    and joined + count <= RECORD_BATCH_RECORDS_MAX
                    and can_join(groups[-1][1][-1], piece)
                ):
                    groups[-1][1].append(piece)
                    joined += count
                else:
                    groups.append((start, [piece]))
                    joined = count
                start = after = start + count
        return _joined(groups)

    def gaps(self, start: int, end: int, most: int) -> Ranges:
        """Return ranges of [start, end) without a live message: the first ones, `most` at most.

        No further than a short look reaches: GAPS_SEGMENTS.
        """
        gaps: Ranges = []
        place = self.index.place(start)
        for segment in self.index.segments[place : place + GAPS_SEGMENTS]:
            for first, stop in segment.living(start, end):
                if start < first:
                    gaps.append((start, first))
                    if len(gaps) == most:
                        return gaps
                start = stop
            if segment.end >= end:
                break
        else:
            if place + GAPS_SEGMENTS < len(self.index.segments):
                return gaps
        return [*gaps, (start, end)] if start < end else gaps

    def places(self, ranges: Ranges) -> list[tuple[Segment, int, int]]:
        """Return where live messages lie: (segment, first number, end)."""
        places = []
        for start, end in ranges:
            place = self.index.place(start)
            while start < end:
                segment = self.index.segments[place]
                place += 1
                places.append((segment, start, min(end, segment.end)))
                start = segment.end
        return places

    def replace(self, start: int, stop: int, new: list[Segment]) -> None:
        """Segments `start` to `stop` give way to others with the same live messages."""
        old = self.index.segments[start:stop]
        for segment in old:
            self.total -= segment.count
            self.bytes -= segment.bytes
            if segment is self._reading:
                self._reading = None
        for segment in new:
            self.total += segment.count
            self.bytes += segment.bytes
        if self._slicer is not None:
            self._slicer.forget()
        self.index.replace(start, stop, new)
        self._buffer.rewrite(old, new)

    def _new_slicer(self) -> BatchSlicer:
        self._slicer = BatchSlicer()
        return self._slicer

    def _settle(self, start: int, end: int) -> None:
        """Settle live messages [start, end)."""
        index = self.index
        segments = index.segments
        place = index.place(start) if len(segments) > 1 else 0
        while start < end:
            segment = segments[place]
            stop = min(end, segment.end)
            segment.settle(start, stop)
            start = stop
            if segment.live:
                if segment.durable:
                    self._buffer.change(segment)
                place += 1
            else:
                self._remove(place, segment)

    def _remove(self, place: int, segment: Segment) -> None:
        self.index.remove(place)
        self.total -= segment.count
        self.bytes -= segment.bytes
        if segment is self._open:
            self._open = None
        if segment is self._reading:
            self._reading = None
        self._buffer.end(segment)


def _joined(groups: list[tuple[int, list[RecordBatch]]]) -> list[tuple[int, RecordBatch]]:
    return [(first, batches[0] if len(batches) == 1 else join(batches)) for first, batches in groups]


COMPACT_TOTAL_MIN: Final = 2000
"""Messages stored before a subqueue's share of valid ones matters to the compactor."""

MERGE_SEGMENTS: Final = 32
"""Neighbours of one size class that are merged; each message is copied about once per class."""
