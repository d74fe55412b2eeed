"""What several readers of a partition get: whole chunks, which are put together and sent to their gateway once.

Small segments are read by each reader by itself: they are many, and are joined to larger batches.
"""

from shardmq.shards.queues.segment_log import SegmentLog
from shardmq.shards.segments.chunks import chunk_at
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.storage.write_buffer import WriteBuffer


def read_shared(log: SegmentLog, buffer: WriteBuffer, start: int, end: int, room: int) -> list[NumberedBatch]:
    """Return messages [start, end) for one of several readers: as many as take `room` bytes.

    Only the first batch is cut to fit: what is whole is the same for all.

    Args:
        log: the partition.
        buffer: its bodies, and the chunks made of them.
        start: offset of the first message.
        end: one past the offset of the last.
        room: bytes.

    Raises:
        RowDamaged: a segment that had to be read is not what was written.
    """
    pieces: list[NumberedBatch] = []
    segments, chunks = log.index.segments, buffer.chunks
    place = log.index.place(start)
    while start < end:
        stop, behind = start, place
        while behind < len(segments) and stop < end and not chunks.takes(segments[behind]):
            stop, behind = min(end, segments[behind].end), behind + 1
        if stop > start:
            found = log.read([(start, stop)], room, alone=False)
        else:
            stop, behind = min(end, segments[place].end), place + 1
            found = _chunks(segments[place], buffer, start, stop, room, may_cut=not pieces)
        pieces += found
        if not found or found[-1][0] + found[-1][1].count < stop:
            break
        room -= sum([len(batch.records) for _, batch in found])
        start, place = stop, behind
    return pieces


def _chunks(
    segment: Segment, buffer: WriteBuffer, start: int, end: int, room: int, *, may_cut: bool
) -> list[NumberedBatch]:
    """Return messages [start, end), which are in a segment, as far as there is room for its chunks."""
    cache = buffer.chunks
    chunks = cache.find(segment) or cache.make(segment, buffer.read_once(segment))
    pieces: list[NumberedBatch] = []
    for chunk in chunks[chunk_at(chunks, start) :]:
        if start >= end or (len(chunk.batch.records) > room and not may_cut):
            break
        stop = min(end, chunk.end)
        batch = chunk.part(start, stop, room)
        if batch is None:
            break
        pieces.append((start, batch))
        start += batch.count
        if start < stop:
            break
        room -= len(batch.records)
        may_cut = False
    return pieces
