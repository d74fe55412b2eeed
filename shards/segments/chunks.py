"""Chunks: the messages of a segment as several readers get them, put together once and kept for a while.

    segment   | b0 b1 b2 b3 b4 b5 | b6 | ...    batches, as they were published
    chunks    |  c0  |  c1  |  c2  | c3 | ...    about CHUNK_BYTES each
    readers   A gets c0, c1, c2 …; B gets the same; C began in the middle of c1: a part of it, and then c2

A chunk is a `SharedBatch`, so it goes to a gateway once, and each reader is told which part of it is its own.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from itertools import count
from operator import attrgetter
from typing import Final

from shardmq.limits import RECORD_BATCH_RECORDS_MAX
from shardmq.message.record_batch import RecordBatch, can_join, join, record_ends
from shardmq.shards.segments.segment import BATCH_OVERHEAD_BYTES, NumberedBatch, Segment
from shardmq.shards.segments.shared_batch import SHARED_BYTES_MIN, SharedBatch, shared_batch

CHUNK_BYTES: Final = 128 << 10
"""About what a chunk has: few enough bytes to fit into what is free of most windows."""

NUMBER_OFFSET: Final = 1 << 62
"""Chunks are numbered from here, shared bodies that are stored from 1."""

_first = attrgetter("first")


class Chunk:
    """Messages that lie in a row.

    Args:
        first: offset of the first.
        batch: themselves.

    Attributes:
        first: offset of the first.
        batch: themselves.
        end: one past the offset of the last.
    """

    __slots__ = ("_ends", "batch", "end", "first")

    def __init__(self, first: int, batch: RecordBatch) -> None:
        self.first = first
        self.batch = batch
        self.end = first + batch.count
        self._ends: array[int] | None = None

    def part(self, start: int, end: int, room: int) -> RecordBatch | None:
        """Return messages [start, end), or as many of the first as take `room` bytes; None where none does."""
        batch = self.batch
        whole = start == self.first and end == self.end
        if whole and len(batch.records) <= room:
            return batch
        if batch.count == 1:
            return None
        ends = self._ends
        if ends is None:
            ends = self._ends = array("Q", record_ends(batch.records, batch.count))
        place = start - self.first
        begin = ends[place - 1] if place else 0
        stop = min(end - self.first, bisect_right(ends, begin + max(0, room)))
        if stop <= place:
            return None
        size = ends[stop - 1] - begin
        if isinstance(batch, SharedBatch):
            return batch.view(place, stop - place, begin, size)
        return RecordBatch(
            batch.exchange,
            batch.routing_key,
            batch.flags,
            batch.timestamp_ms,
            batch.origin,
            batch.serial + place,
            stop - place,
            batch.records[begin : begin + size],
            batch.priority,
            batch.ttl_ms,
        )


class ChunkCache:
    """The chunks of the segments that were read last.

    Args:
        bytes_max: about what they may take together.
        bytes_least: it does not pay to make chunks of a segment with fewer.
    """

    __slots__ = ("_bytes", "_bytes_least", "_bytes_max", "_kept", "_numbers")

    def __init__(self, bytes_max: int, bytes_least: int = SHARED_BYTES_MIN) -> None:
        self._bytes_max = bytes_max
        self._bytes_least = bytes_least
        self._bytes = 0
        self._kept: OrderedDict[Segment, tuple[int, int, list[Chunk]]] = OrderedDict()  # the last used at the end
        self._numbers = count(NUMBER_OFFSET)

    def takes(self, segment: Segment) -> bool:
        """Whether it pays to make chunks of a segment: not of few bytes, nor of more than are kept."""
        return self._bytes_least <= segment.bytes <= self._bytes_max // 2

    def find(self, segment: Segment) -> list[Chunk] | None:
        """Return the chunks of a segment, in order; None where they are not kept."""
        kept = self._kept.get(segment)
        if kept is None or kept[0] != segment.end:  # it has grown
            return None
        self._kept.move_to_end(segment)
        return kept[2]

    def make(self, segment: Segment, batches: list[NumberedBatch]) -> list[Chunk]:
        """Return the chunks of a segment, made of its batches, and keep them."""
        self._forget(segment)
        chunks = [self._chunk(first, parts) for first, parts in _grouped(batches)]
        cost = segment.bytes + 8 * segment.count + BATCH_OVERHEAD_BYTES * len(chunks)
        self._kept[segment] = segment.end, cost, chunks
        self._bytes += cost
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return chunks

    def _forget(self, segment: Segment) -> None:
        kept = self._kept.pop(segment, None)
        if kept is not None:
            self._bytes -= kept[1]

    def _chunk(self, first: int, parts: list[RecordBatch]) -> Chunk:
        batch = parts[0] if len(parts) == 1 else join(parts)
        if type(batch) is not SharedBatch and len(batch.records) >= SHARED_BYTES_MIN:
            batch = shared_batch(batch, next(self._numbers), 0, len(batch.records))
        return Chunk(first, batch)


def chunk_at(chunks: list[Chunk], offset: int) -> int:
    """Return the place of the chunk that holds an offset."""
    return bisect_right(chunks, offset, key=_first) - 1


def _grouped(batches: list[NumberedBatch]) -> list[tuple[int, list[RecordBatch]]]:
    """Return which batches make a chunk each, with the offset of the first message."""
    groups: list[tuple[int, list[RecordBatch]]] = []
    size = messages = end = 0
    for first, batch in batches:
        size += len(batch.records)
        messages += batch.count
        if (
            groups
            and first == end
            and size <= CHUNK_BYTES
            and messages <= RECORD_BATCH_RECORDS_MAX
            and can_join(groups[-1][1][-1], batch)
        ):
            groups[-1][1].append(batch)
        else:
            groups.append((first, [batch]))
            size, messages = len(batch.records), batch.count
        end = first + batch.count
    return groups
