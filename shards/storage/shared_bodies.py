"""Bodies that are stored once for several queues: their numbers, who refers to them, and which a commit writes.

Segments refer to them (segments/shared_batch.py). How many do is counted in memory; a start counts again, from the
index of segments, and reads no body. The commit that writes the first reference writes the body, and the one that
deletes the last reference deletes it.

What survives a restart and what does not is apart: a body that segments of both kinds refer to is stored twice.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from shardmq.errors import RowDamaged
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.segments.reference_counts import ReferenceCounts
from shardmq.shards.segments.segment import Segment
from shardmq.shards.segments.shared_batch import (
    REFERENCE_BYTES,
    SHARED_BYTES_MIN,
    SharedBatch,
    shared_batch,
)
from shardmq.shards.storage.rows import Rows
from shardmq.shards.storage.schema import NUMBER, ROWS, SHARED
from shardmq.shards.storage.write_batch import WriteBatch

NUMBERS_LEAP: Final = 1 << 20
"""How far ahead numbers are noted as given. It costs one small write per so many; a restart passes over what is left.
A number is never given again: where a count was wrong because of damage, a queue must not get another's messages."""


class SharedBodies:
    """The shared bodies of a store."""

    def __init__(self) -> None:
        self._next = self._noted = 0
        self._counts = {True: ReferenceCounts(), False: ReferenceCounts()}  # by whether they are durable
        self._keeps_all = False

    def load(self, noted: int, segments: Iterable[Segment], is_certain: bool) -> None:
        """Count references at a start.

        Args:
            noted: as stored: every number ever given is below it.
            segments: that are stored.
            is_certain: whether those are all; where some may be missing, no body is deleted.
        """
        shared = [each.shared for each in segments if each.shared is not None]
        self._next = self._noted = max(noted, max([each.end for each in shared], default=0))
        self._counts[True] = ReferenceCounts.of(shared)
        self._keeps_all = not is_certain

    def share(self, batch: RecordBatch) -> RecordBatch:
        """Return a batch that several queues get, as they get it: one whose records are stored once, or itself."""
        if len(batch.records) < SHARED_BYTES_MIN:
            return batch
        number = self._next
        self._next += 1
        return shared_batch(batch, number, 0, len(batch.records))

    def account(self, writes: WriteBatch) -> None:
        """Count what a commit writes and deletes; notes in it which bodies it is to write and delete."""
        for segment in writes.put:
            if segment.bytes >= SHARED_BYTES_MIN:
                self._refer(segment, writes)
        for segment in writes.delete:
            if segment.shared is not None:
                self._release(segment, writes)
        if writes.bodies and self._next > self._noted:
            self._noted = writes.bodies_noted = self._next + NUMBERS_LEAP

    def _refer(self, segment: Segment, writes: WriteBatch) -> None:
        assert segment.batches is not None
        shared = [batch for _, batch in segment.batches if type(batch) is SharedBatch]
        if not shared:
            return
        counts, numbers = self._counts[segment.durable], RangeSet()
        for batch in shared:
            number = batch.body
            if numbers.add(number, number + 1) and number not in counts:
                assert batch.is_whole, f"only a part of shared body {number} is here to be written"
                writes.bodies.append((segment.durable, number, batch.records))
            writes.referred_bytes += len(batch.records) - REFERENCE_BYTES
        segment.shared = numbers
        for start, end in numbers:
            counts.add(start, end)

    def _release(self, segment: Segment, writes: WriteBatch) -> None:
        counts = self._counts[segment.durable]
        for start, end in segment.shared or ():
            for first, stop in counts.release(start, end):
                if not (segment.durable and self._keeps_all):
                    writes.unreferred += [(segment.durable, number) for number in range(first, stop)]


def missing_bodies(segments: Iterable[Segment], keys: Iterable[bytes], rows: Rows) -> Iterator[RowDamaged]:
    """Yield the damage where bodies are not there that segments refer to: once for each queue.

    Args:
        segments: that are stored.
        keys: of the bodies, in order.
        rows: of the store.
    """
    there = RangeSet()
    for key in keys:
        if len(key) == NUMBER.size:
            number = int.from_bytes(key, "big")
            there.add(number, number + 1)
    told: set[int] = set()
    for segment in segments:
        if segment.shared is None or segment.queue in told:
            continue
        for start, end in segment.shared:
            gap = next(iter(there.gaps(start, end)), None)
            if gap is not None:
                told.add(segment.queue)
                yield rows.damage(SHARED, NUMBER.pack(gap[0]), f"{ROWS[SHARED]} is not there", segment.queue)
                break
