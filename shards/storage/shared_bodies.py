"""Bodies that are stored once for several queues: their numbers, who refers to them, and which a commit writes.

Segments refer to them (segments/shared_batch.py), and staged batches of transactions, whose messages join their queues
without being written again. How many do is counted in memory; a start counts again, from the index of segments and the
entries of staged batches, and reads no body. The commit that writes the first reference writes the body, and the one
that deletes the last reference deletes it.

What survives a restart and what does not is apart: a body that segments of both kinds refer to is stored twice.
"""

from collections.abc import Iterable, Iterator, Mapping
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
from shardmq.shards.storage.entries import StagedPlace
from shardmq.shards.storage.rows import Rows
from shardmq.shards.storage.schema import NUMBER, ROWS, SHARED
from shardmq.shards.storage.write_batch import WriteBatch

NUMBERS_LEAP: Final = 1 << 20
"""How far ahead numbers are noted as given. It costs one small write per so many; a restart passes over what is left.
A number is never given again: where a count was wrong because of damage, a queue must not get another's messages."""


STAGED_BYTES_MIN: Final = 16 << 10
"""Staged batches with fewer bytes of records have them themselves: a body is a row more, on pages of its own."""


class SharedBodies:
    """The shared bodies of a store."""

    def __init__(self) -> None:
        self._next = self._noted = 0
        self._counts = {True: ReferenceCounts(), False: ReferenceCounts()}  # by whether they are durable
        self._staged: dict[StagedPlace, int] = {}
        self._keeps_all = False

    def load(
        self, noted: int, segments: Iterable[Segment], staged: Mapping[StagedPlace, int], is_certain: bool
    ) -> None:
        """Count references at a start.

        Args:
            noted: as stored: every number ever given is below it.
            segments: that are stored.
            staged: numbers of bodies that staged batches refer to, by their places.
            is_certain: whether those are all; where some may be missing, no body is deleted.
        """
        shared = [each.shared for each in segments if each.shared is not None]
        shared += [RangeSet([(body, body + 1)]) for body in staged.values()]
        self._next = self._noted = max(noted, max([each.end for each in shared], default=0))
        self._counts[True] = ReferenceCounts.of(shared)
        self._staged = dict(staged)
        self._keeps_all = not is_certain

    def share(self, batch: RecordBatch) -> RecordBatch:
        """Return a batch that several queues get, as they get it: one whose records are stored once, or itself."""
        if len(batch.records) < SHARED_BYTES_MIN:
            return batch
        number = self._next
        self._next += 1
        return shared_batch(batch, number, 0, len(batch.records))

    def share_staged(self, batch: RecordBatch) -> RecordBatch:
        """Return a batch as it is staged: one whose records its queues' segments can refer to later, or itself.

        So they are written once. They are read once more at the commit, to see that they are what was written.
        """
        return self.share(batch) if len(batch.records) >= STAGED_BYTES_MIN else batch

    def account(self, writes: WriteBatch) -> None:
        """Count what a commit writes and deletes; notes in it which bodies it is to write and delete.

        Segments that were filled in one pass mostly refer to the same bodies. They have one set of numbers, and are
        counted together: one by one, a quarter of a pass to 25 queues went there.
        """
        filled: dict[tuple[bool, tuple[int, ...]], list[Segment]] = {}
        for segment in writes.put:
            if segment.bytes >= SHARED_BYTES_MIN:
                assert segment.batches is not None
                shared = [batch for _, batch in segment.batches if type(batch) is SharedBatch]
                if shared:
                    writes.referred_bytes += sum([len(batch.records) - REFERENCE_BYTES for batch in shared])
                    filled.setdefault((segment.durable, tuple([batch.body for batch in shared])), []).append(segment)
        for (durable, bodies), segments in filled.items():
            self._refer(durable, bodies, segments, writes)
        unstaged = [self._staged.pop(place) for place in writes.unstaged if place in self._staged]
        for staged in writes.staged:
            if type(staged.batch) is SharedBatch:
                self._stage(staged.place, staged.batch, writes)
        emptied: dict[int, list[Segment]] = {}
        for segment in writes.delete:
            if segment.shared is not None:
                emptied.setdefault(id(segment.shared), []).append(segment)
        for segments in emptied.values():
            self._release(segments[0].shared or (), segments[0].durable, len(segments), writes)
        for body in unstaged:  # behind all that refers to it from here on
            self._release([(body, body + 1)], True, 1, writes)
        if writes.bodies and self._next > self._noted:
            self._noted = writes.bodies_noted = self._next + NUMBERS_LEAP

    def _refer(self, durable: bool, bodies: tuple[int, ...], segments: list[Segment], writes: WriteBatch) -> None:
        """Some segments refer to the same bodies."""
        counts, numbers = self._counts[durable], RangeSet([(number, number + 1) for number in bodies])
        new = {number for number in bodies if number not in counts}
        for _, batch in segments[0].batches or ():
            if type(batch) is SharedBatch and batch.body in new:
                assert batch.is_whole, f"only a part of shared body {batch.body} is here to be written"
                new.remove(batch.body)
                writes.bodies.append((durable, batch.body, batch.records))
        for start, end in numbers:
            counts.refer(start, end, len(segments))
        for segment in segments:
            segment.shared = numbers

    def _stage(self, place: StagedPlace, batch: SharedBatch, writes: WriteBatch) -> None:
        counts, body = self._counts[True], batch.body
        if body not in counts:
            writes.bodies.append((True, body, batch.records))
        writes.referred_bytes += len(batch.records) - REFERENCE_BYTES
        self._staged[place] = body
        counts.refer(body, body + 1, 1)

    def _release(self, bodies: Iterable[tuple[int, int]], durable: bool, times: int, writes: WriteBatch) -> None:
        """So many references to the same bodies are deleted."""
        for start, end in bodies:
            for first, stop in self._counts[durable].release(start, end, times):
                if not (durable and self._keeps_all):
                    writes.unreferred += [(durable, number) for number in range(first, stop)]


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
