"""The store of a shard: what a start finds, commits, and segments read back. The schema is in schema.py.

It writes what it is told and decides nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import error as StructError
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from shardmq.errors import RowDamaged, StoreUnreadable
from shardmq.message.record_batch import RecordBatch
from shardmq.replication.store.note import refuse_replica
from shardmq.runtime.clock import ClockNote
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.segments.shared_batch import BY_REFERENCE, reference_of, shared_batch, with_records
from shardmq.shards.storage import decoding
from shardmq.shards.storage.identity import StoreIdentity, identified
from shardmq.shards.storage.key_check import KeyCheck
from shardmq.shards.storage.recovery import StoredState, check_owners, read_state
from shardmq.shards.storage.rows import Rows
from shardmq.shards.storage.schema import (
    APPLIED,
    BODIES_APART,
    DATABASES,
    FORGOTTEN,
    IDENTITY,
    LAYOUT,
    NUMBER,
    QUEUES,
    SEGMENTS,
    SHARED,
    SPILLED,
    SPILLED_TIMERS,
    STATE,
    Edits,
    number_of,
    segment_key,
    shared_of,
    size_of,
)
from shardmq.shards.storage.shared_bodies import SharedBodies, missing_bodies
from shardmq.shards.storage.staging_table import StagingTable
from shardmq.shards.storage.timer_table import TimerTable
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.engine import Engine, Room
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.store_copy import StoreCopy
from shardmq.storage.versions import CHECKSUMS_SINCE, VERSION
from shardmq.topology.entities import Queue

_PAGE_BYTES: Final = 4096

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_batches: Final = msgspec.msgpack.Decoder(list[NumberedBatch]).decode


class Store:
    """A shard's store on an open engine.

    Args:
        engine: of the layout LAYOUT.
        shard: its number.
        key_damage: what is wrong with keys, as was found when the engine was opened.
        clock: what time it is, where the store's own note is of another machine's clock; None to believe that.

    Attributes:
        engine: what the store lies in.
        file: the data file, for error texts.
        space: the room under it.
        identity: whose the store is.
        timers: delayed messages.
        staging: staged batches of transactions.
        bodies: that several queues share.
        rest: the engine's, bound here because every pass calls it.

    Raises:
        StoreRefused: it is another shard's, a replica's, or damaged.
    """

    def __init__(
        self,
        engine: Engine,
        shard: int = 0,
        key_damage: Sequence[RowDamaged] = (),
        clock: ClockNote | None = None,
    ) -> None:
        self.engine = engine
        self.file = engine.file
        self.space = engine.space
        self.rest: Callable[[float, bool], None] = engine.rest
        refuse_replica(engine)
        self._rows = rows = Rows(engine)
        self.timers = TimerTable(engine, rows)
        self.staging = StagingTable(engine, rows)
        self.bodies = SharedBodies()
        self._edits = Edits()
        self._key_damage = key_damage
        self._clock = clock
        rows.all(STATE, lambda key, _: key, [])  # a row whose key is damaged is not found under its own
        applied = rows.state(APPLIED, number_of)
        identity = identified(self.file, *self._whose(), shard, applied is None or engine.is_replicated)
        engine.start(applied, self._contents)
        stored = rows.state(IDENTITY, decoding.decode_identity)  # the redo log may have had a newer one
        if stored is None:
            engine.apply([(STATE, IDENTITY, _encode(identity))])  # from here on, the redo log must be there
        self.identity = stored or identity

    @classmethod
    def open(cls, folder: Path, shard: int = 0) -> Self:
        """Open a store on disk, or make one where there is none.

        Args:
            folder: of this shard alone.
            shard: its number.

        Raises:
            StoreRefused: in use, damaged, of another program, format or shard. Nothing in it was touched.
            StoreUnwritable: its disk does not take anything.
        """
        engine, keys = cls.opened(folder)
        try:
            refuse_replica(engine)
            damage = keys.check(engine)
            if engine.version < CHECKSUMS_SINCE:  # bodies stay as they are, and what was spilled is forgotten
                engine.upgrade(set(range(len(DATABASES))) - BODIES_APART - {SPILLED_TIMERS})
            elif engine.version < VERSION:  # it has no shared bodies yet
                engine.upgrade(())
            return cls(engine, shard, damage)
        except BaseException:
            engine.close()
            raise

    @staticmethod
    def opened(folder: Path, new_version: int = VERSION) -> tuple[LmdbEngine, KeyCheck]:
        """Open the engine of a store on disk, or make one; returns with it what was seen of its keys.

        Args:
            folder: of this shard alone.
            new_version: of the format of a store that is made.

        Raises:
            StoreRefused: in use, damaged, of another program or format. Nothing in it was touched.
            StoreUnwritable: its disk does not take anything.
        """
        keys = KeyCheck()
        return LmdbEngine(folder, LAYOUT, keys.heads, keys.keys, new_version=new_version), keys

    def damaged_cursors(self, written: bytes) -> list[tuple[bytes, bytes]]:
        """Return the rows that are damaged and were written at a cursor's key, keys and values as they are now."""
        return self._rows.damaged_cursors(written)

    def _whose(self) -> tuple[StoreIdentity | None, list[Queue]]:
        queues = self._rows.all(QUEUES, decoding.declaration_of, [])
        return self._rows.state(IDENTITY, decoding.decode_identity), queues

    def load(self) -> StoredState:
        """Read the index; what was spilled before is forgotten.

        Raises:
            StoreRefused: records that no shard wrote. Nothing was touched.
        """
        contents = self._contents()
        contents.damaged += missing_bodies(contents.segments, self.engine.keys(SHARED), self._rows)
        staged, is_certain = self.staging.references()
        self.bodies.load(contents.bodies_noted, contents.segments, staged, contents.is_index_whole and is_certain)
        self.engine.clear(*FORGOTTEN)
        if not self.engine.is_replicated:  # a replica's is compacted before it follows: nobody waits for it then
            self.engine.compact_at_start()
        if self._clock is not None:
            least = 0 if contents.clock is None else contents.clock.steady_ms
            contents.clock = replace(self._clock, steady_ms=max(least, self._clock.steady_ms))
        return contents

    def _contents(self) -> StoredState:
        contents = read_state(self._rows, self._key_damage)
        check_owners(contents, self._rows)
        return contents

    def write(self, writes: WriteBatch) -> None:
        """Make changes durable, all or none of them.

        Raises:
            StoreUnwritable: they may not be, as where the disk is full. The process must end.
        """
        if writes.put or writes.delete or writes.staged or writes.unstaged:
            self.bodies.account(writes)
        touched = sum([_PAGE_BYTES if segment.shared else segment.bytes for segment in writes.delete])
        if writes.timers or writes.unreferred or writes.staged or writes.unstaged:
            touched += (len(writes.timers) + len(writes.unreferred)) * _PAGE_BYTES  # each may lie on a page of its own
            touched += sum([place.bytes for place in writes.unstaged])
            touched += sum([staged.place.bytes for staged in writes.staged])
        self.engine.apply(self._edits.of(writes), size_of(writes), touched)

    @property
    def is_pending(self) -> bool:
        """Whether there are edits in the redo log that are not in the databases."""
        return self.engine.is_pending

    def read(self, segment: Segment, resident: Callable[[int], bytes | None] = lambda _: None) -> list[NumberedBatch]:
        """Read the bodies of a stored segment.

        Args:
            segment: it.
            resident: called with the number of a shared body; returns its records, where they are in memory.

        Raises:
            RowDamaged: they are not what was written.
        """
        number, key = SEGMENTS if segment.durable else SPILLED, segment_key(segment)
        value = self.engine.get(number, key, segment.bytes)
        if value is None:
            raise self._rows.damage(number, key, f"{segment!r} is not there")
        batches = self._rows.body(number, key, value, _decode_batches, segment)
        if segment.shared is None:
            return batches
        return [
            (first, self._resolved(segment, batch, resident) if batch.flags & BY_REFERENCE else batch)
            for first, batch in batches
        ]

    def _resolved(self, segment: Segment, batch: RecordBatch, resident: Callable[[int], bytes | None]) -> RecordBatch:
        """Return a batch that was stored by reference, with its records."""
        try:
            reference = reference_of(batch)
        except StructError as fault:
            key = segment_key(segment)
            raise self._rows.damage(SEGMENTS, key, f"{segment!r} cannot be read: {fault}") from fault
        assert reference is not None
        body = resident(reference.body)
        if body is None:
            key = NUMBER.pack(reference.body)
            body = bytes(self._rows.shared_records(shared_of(segment.durable), key, segment.queue))
        end = reference.begin + reference.bytes
        if end > len(body):
            key = NUMBER.pack(reference.body)
            what = f"it has {len(body)} bytes, and messages of this queue are to end at {end}"
            raise self._rows.damage(shared_of(segment.durable), key, what, segment.queue)
        records = body if reference.bytes == len(body) else body[reference.begin : end]
        whole = with_records(batch, batch.flags & ~BY_REFERENCE, records)
        return shared_batch(whole, reference.body, reference.begin, len(body))

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was written so far into a folder that is not there yet.

        Raises:
            OSError: it cannot be made.
        """
        return self.engine.copy(folder, bytes_per_second)

    def sizes(self) -> dict[str, int]:
        """Return bytes of the file, of what in it holds something, of what is free on the disk, and of the map."""
        return self.engine.sizes()

    def has_room(self, size: int) -> bool:
        """Tell whether so many bytes can be written before the disk is full.

        Of what is free in the file, half counts: much of it may be in pieces that are too small.
        """
        room = self.space.room()
        return room.free >= size or room.free + room.inside // 2 >= size

    def give_back(self, now: float, room: Room, is_pressed: bool) -> None:
        """Give free space back to the file system, where that is due: see `Engine.give_back`."""
        self.engine.give_back(now, room, is_pressed)

    def close(self) -> None:
        """Bring everything into the databases and let go of the files."""
        self.engine.close()


@contextmanager
def meeting_damage() -> Iterator[None]:
    """Have damage that is met at work, and is no queue's, end the process as any fault does: it is started again.

    A start that is refused for damage is not tried again, and `shardmq up` ends with it.

    Raises:
        StoreUnreadable: such damage was met.
    """
    try:
        yield
    except RowDamaged as damage:
        raise StoreUnreadable(
            f"{damage.text}; this process ends, and its next start looks through the file"
        ) from damage
