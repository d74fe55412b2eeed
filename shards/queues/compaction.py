"""Keeping segments few and full. Both jobs copy live messages into new segments and remove the old in one transaction.

merge     small neighbours become one, so that messages published one by one cost no index entry each
collect   when less than half of a subqueue's stored messages are valid, its sparse segments are copied

Records that several queues share are not copied: the references to them are.

Only subqueues that said they changed are looked at: there may be ten thousand that did not. Segments younger than a
second are left alone: in a flow they are gone before it would pay.
"""

from collections.abc import Callable
from typing import Final

from shardmq.errors import RowDamaged
from shardmq.message.record_batch import RecordBatch, can_join, join
from shardmq.ranges import RangeSet
from shardmq.shards.queues.segment_log import MERGE_SEGMENTS
from shardmq.shards.segments.compactable import Compactable
from shardmq.shards.segments.delivery_counts import DeliveryCounts
from shardmq.shards.segments.segment import SEGMENT_BYTES, NumberedBatch, Segment, body_sizes
from shardmq.shards.segments.shared_batch import SharedBatch, shared_batch
from shardmq.shards.segments.slicer import BatchSlicer
from shardmq.shards.segments.tag_summary import union
from shardmq.shards.segments.timed_segment import TimedSegment
from shardmq.shards.storage.write_buffer import WriteBuffer

PASS_BYTES: Final = 8 << 20
"""Bytes copied in one pass; publishers that wait for a confirm wait for them, too."""

_SMALL_BYTES: Final = 64 << 10
_TINY_BYTES: Final = 4 << 10
_AGE_SECONDS: Final = 1.0


def _raised(damage: RowDamaged) -> None:
    raise damage


class Compactor:
    """Does the work of both jobs in portions.

    Args:
        buffer: of the shard.
        damaged: called with what is found damaged, which takes that subqueue's queue out of service.
    """

    def __init__(self, buffer: WriteBuffer, damaged: Callable[[RowDamaged], None] = _raised) -> None:
        self._buffer = buffer
        self._damaged = damaged
        self._slicer = BatchSlicer()

    def work(self) -> bool:
        """Carry out one portion.

        Returns:
            Whether there is more to do at once.
        """
        left = PASS_BYTES
        compactable = self._buffer.compactable
        for subqueue in list(compactable):
            if subqueue not in compactable:  # another of its queue's was damaged
                continue
            try:
                left -= self._compact(subqueue, left)
            except RowDamaged as damage:
                self._damaged(damage)
                compactable.pop(subqueue, None)
                continue
            if left <= 0:
                return True
            if subqueue.young < MERGE_SEGMENTS and not subqueue.is_sparse:
                del compactable[subqueue]
        return False

    def _compact(self, subqueue: Compactable, budget: int) -> int:
        """Both jobs for one subqueue; returns how many bytes were copied."""
        spent = 0
        if subqueue.is_sparse:
            spent += self._copy_sparse(subqueue, budget)
        if subqueue.young >= MERGE_SEGMENTS and spent < budget:
            spent += self._merge(subqueue, budget - spent)
        return spent

    def _copy_sparse(self, subqueue: Compactable, budget: int) -> int:
        """Copy what lives out of segments that are less than half alive, neighbours together."""
        spent = place = 0
        segments = subqueue.index.segments
        while place < len(segments) and spent < budget:
            stop = place
            size = 0
            while stop < len(segments) and self._sparse(segments[stop]) and _alike(segments[place], segments[stop]):
                size += segments[stop].bytes
                stop += 1
                if spent + size >= budget:
                    break
            if stop > place:
                place += self._rewrite(subqueue, place, stop)
                spent += size
            else:
                place += 1
        return spent

    def _sparse(self, segment: Segment) -> bool:
        return segment.live * 2 < segment.count and segment.born + _AGE_SECONDS <= self._buffer.now

    def _merge(self, subqueue: Compactable, budget: int) -> int:
        """Merge what is small, from the newest backwards, up to a segment that is not."""
        segments = subqueue.index.segments
        spent = 0
        stop = len(segments)
        old = self._buffer.now - _AGE_SECONDS  # of thousands, each is looked at ten times before it is
        while stop and segments[stop - 1].born > old:
            stop -= 1
        subqueue.young = len(segments) - stop
        while stop and spent < budget:
            newest = segments[stop - 1]
            least, below = _size_class(newest.bytes)
            if not below:
                break
            start = stop - 1
            size = newest.bytes
            while start and size < budget:
                left = segments[start - 1]
                if not least <= left.bytes < below or left.born > old or not _alike(left, newest):
                    break  # what was copied a moment ago is left alone, too
                start -= 1
                size += left.bytes
            if stop - start >= MERGE_SEGMENTS:
                self._rewrite(subqueue, start, stop)
                spent += size
            stop = start
        return spent

    def _rewrite(self, subqueue: Compactable, start: int, stop: int) -> int:
        """Put the live messages of some neighbours into new segments; returns how many those are."""
        old = subqueue.index.segments[start:stop]
        live: list[NumberedBatch] = []
        for segment in old:
            batches = segment.batches
            if batches is None:
                batches = self._buffer.store.read(segment, self._buffer.cache.shared)
            live += batches if segment.gone is None else self._living(segment, batches)
        new = _pack(old[0], _joined(live), self._buffer.now)
        _carry_counts(old, new)
        _carry_tags(old, new)
        subqueue.replace(start, stop, new)
        return len(new)

    def _living(self, segment: Segment, batches: list[NumberedBatch]) -> list[NumberedBatch]:
        pieces = []
        for first, batch in batches:
            for begin, end in segment.living(first, first + batch.count):
                piece = self._slicer.cut(batch, begin - first, end - first)
                if type(batch) is SharedBatch and piece is not batch and segment.stored:
                    piece = self._part(batch, begin - first, piece)
                pieces.append((begin, piece))
        self._slicer.forget()
        return pieces

    def _part(self, batch: SharedBatch, start: int, piece: RecordBatch) -> RecordBatch:
        """Messages from `start` on of a shared batch, as they are to be stored.

        Where they are less than half of the body they are copied, so that it can be deleted: as little as one message
        would keep all of it otherwise.
        """
        if len(piece.records) * 2 < batch.body_bytes:
            return piece
        begin = batch.begin + self._slicer.offset(batch, start)
        return shared_batch(piece, batch.body, begin, batch.body_bytes)


def _alike(left: Segment, right: Segment) -> bool:
    return left.durable is right.durable and left.stored is right.stored


def _size_class(size: int) -> tuple[int, int]:
    """Least size, and the size above all, of segments that are merged with one of `size` bytes; (0, 0) for none."""
    if size < _TINY_BYTES:
        return 0, _TINY_BYTES
    return (_TINY_BYTES, _SMALL_BYTES) if size < _SMALL_BYTES else (0, 0)


def _joined(batches: list[NumberedBatch]) -> list[NumberedBatch]:
    """The same messages in fewer batches, of up to _SMALL_BYTES."""
    groups: list[tuple[int, list[RecordBatch]]] = []
    end = -1
    size = 0
    for first, batch in batches:
        size += len(batch.records)
        is_joined = first == end and size <= _SMALL_BYTES and type(batch) is not SharedBatch
        if is_joined and type(groups[-1][1][-1]) is not SharedBatch and can_join(groups[-1][1][-1], batch):
            groups[-1][1].append(batch)
        else:
            groups.append((first, [batch]))
            size = len(batch.records)
        end = first + batch.count
    return [(first, group[0] if len(group) == 1 else join(group)) for first, group in groups]


def _pack(model: Segment, batches: list[NumberedBatch], now: float) -> list[Segment]:
    """Segments of about SEGMENT_BYTES with these batches; the numbers that are missing count as gone."""
    segments: list[Segment] = []
    segment = None
    for first, batch in batches:
        if segment is None or segment.bytes >= SEGMENT_BYTES:
            segment = type(model)(model.queue, first, model.durable, now)
            segments.append(segment)
        if first > segment.end:
            if segment.gone is None:
                segment.gone = RangeSet()
            segment.gone.add(segment.end, first)
        if type(segment) is TimedSegment:
            segment.cover(batch)
        assert segment.batches is not None
        segment.batches.append((first, batch))
        segment.end = first + batch.count
        segment.count += batch.count
        segment.live += batch.count
        segment.bytes += len(batch.records)
        segment.can_expire = segment.can_expire or batch.ttl_ms is not None
        if model.body_bytes is not None:
            segment.body_bytes = (segment.body_bytes or 0) + sum(body_sizes(batch))
    return segments


def _carry_counts(old: list[Segment], new: list[Segment]) -> None:
    counts = DeliveryCounts(counted for segment in old if segment.counts is not None for counted in segment.counts)
    if counts:
        for segment in new:
            counted = [piece for piece in counts.pieces(segment.first, segment.end) if piece[2]]
            segment.counts = DeliveryCounts(counted) if counted else None


def _carry_tags(old: list[Segment], new: list[Segment]) -> None:
    tags = union(segment.tags if isinstance(segment, TimedSegment) else None for segment in old)
    for segment in new:
        if isinstance(segment, TimedSegment):
            segment.tags = tags
