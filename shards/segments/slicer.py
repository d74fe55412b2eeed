"""Cutting record batches by message."""

from bisect import bisect_right
from collections.abc import Iterable

from shardmq.message.record import pieces
from shardmq.message.record_batch import RecordBatch, record_ends
from shardmq.shards.segments.shared_batch import SharedBatch


class BatchSlicer:
    """Cuts pieces off one batch after another.

    It remembers where the records of the last batch end: a consumer with a prefetch of 1 would otherwise have a batch
    of 500 skipped through 500 times (10 to 25 us each).
    """

    __slots__ = ("_ends", "_batch")

    def __init__(self) -> None:
        self._batch: RecordBatch | None = None
        self._ends: list[int] = []

    def cut(self, batch: RecordBatch, start: int, stop: int) -> RecordBatch:
        """Messages [start, stop) of a batch, as a batch."""
        if start == 0 and stop == batch.count:
            if batch is self._batch:  # it may be a large one: each queue would keep its last
                self.forget()
            return batch
        offsets = self._offsets(batch)
        begin = offsets[start - 1] if start else 0
        piece = RecordBatch(
            batch.exchange,
            batch.routing_key,
            batch.flags,
            batch.timestamp_ms,
            batch.origin,
            batch.serial + start,
            stop - start,
            batch.records[begin : offsets[stop - 1]],
            batch.priority,
            batch.ttl_ms,
        )
        if stop == batch.count:
            self.forget()
        return piece

    def view(self, batch: RecordBatch, start: int, stop: int) -> RecordBatch:
        """Messages [start, stop) of a batch, to be delivered and not kept: what is shared is not copied."""
        if type(batch) is not SharedBatch or (start == 0 and stop == batch.count):
            return self.cut(batch, start, stop)
        offsets = self._offsets(batch)
        begin = offsets[start - 1] if start else 0
        piece = batch.view(start, stop - start, begin, offsets[stop - 1] - begin)
        if stop == batch.count:
            self.forget()
        return piece

    def fitting(self, batch: RecordBatch, start: int, room: int) -> int:
        """Return how many messages from `start` on take at most `room` bytes."""
        offsets = self._offsets(batch)
        begin = offsets[start - 1] if start else 0
        return max(0, bisect_right(offsets, begin + room) - start)  # room is below 0 behind a message larger than it

    def size(self, batch: RecordBatch, place: int) -> int:
        """Bytes of the message at a place of a batch."""
        if batch.count == 1:
            return len(batch.records)
        offsets = self._offsets(batch)
        return offsets[place] - (offsets[place - 1] if place else 0)

    def offset(self, batch: RecordBatch, place: int) -> int:
        """Return where the message at a place of a batch begins, in bytes."""
        return self._offsets(batch)[place - 1] if place else 0

    def forget(self) -> None:
        """Let go of the batch."""
        self._batch = None
        self._ends = []

    def _offsets(self, batch: RecordBatch) -> list[int]:
        if batch is not self._batch:
            self._ends = batch.ends() if type(batch) is SharedBatch else record_ends(batch.records, batch.count)
            self._batch = batch
        return self._ends


def single_batches(batch: RecordBatch) -> Iterable[RecordBatch]:
    """Each message of a batch as a batch of its own, to be delivered and not kept: 0.25 us each."""
    count = batch.count
    if count == 1:
        return (batch,)
    if isinstance(batch, SharedBatch):
        slicer = BatchSlicer()
        return [slicer.view(batch, place, place + 1) for place in range(count)]
    exchange, key, flags, timestamp_ms, origin = (
        batch.exchange,
        batch.routing_key,
        batch.flags,
        batch.timestamp_ms,
        batch.origin,
    )
    priority, ttl_ms = batch.priority, batch.ttl_ms
    return [
        RecordBatch(exchange, key, flags, timestamp_ms, origin, serial, 1, bytes(record), priority, ttl_ms)
        for serial, record in enumerate(pieces(batch.records, count), batch.serial)
    ]
