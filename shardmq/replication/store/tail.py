"""What brings a rejoining store to where the primary is: the rows that it lacks, or has otherwise.

Two stores whose records agree up to an index differ at most in the rows that records above it touched, on either side.
So the primary sends those rows as they are now, and the other one has its store in one commit: it is never half way.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from shardmq.replication.core.messages import Touched
from shardmq.replication.core.note import Note, Number
from shardmq.replication.store.envelope import Content, EnvelopeWriter, Kind, opened
from shardmq.replication.store.faults import OutOfOrder, ReplicaFull, TermRefused
from shardmq.replication.store.key_range import checked_value
from shardmq.replication.store.record_ring import RecordRing
from shardmq.replication.store.replica import Replica
from shardmq.storage.engine import Edit, Engine

TAIL_BYTES_MAX: Final = 64 << 20
"""A larger tail is none: the store joins, range by range. All of a tail is in memory, and one commit."""

KEYS_MAX: Final = 100_000
"""Keys of one tail."""


class TailHead(msgspec.Struct, array_like=True, frozen=True):
    """What a tail is of.

    Attributes:
        common: up to this index both stores have the same records.
        note: the primary's, as of now.
        clock: seconds of the group's clock.
        touched: keys of the primary's records above `common`.
    """

    common: Number
    note: Note
    clock: float
    touched: list[Touched]


class Tail:
    """A tail, opened.

    Attributes:
        head: what it is of.
        edits: the rows as they are at the primary; those that are not there are deleted.
        size: bytes of the envelope.
    """

    __slots__ = ("edits", "head", "size")

    def __init__(self, head: TailHead, edits: Content, size: int) -> None:
        self.head = head
        self.edits = edits
        self.size = size


_decode: Final = msgspec.msgpack.Decoder(tuple[Content, TailHead]).decode


def touched_since(replica: Replica, ring: RecordRing, index: int) -> list[Touched] | None:
    """Return what the records above an index touched; None where that is not known any more."""
    if ring.covers(index) and ring.last == replica.note.index:
        return [(record.index, record.keys) for record in ring.above(index)]
    return replica.touched.above(index) if replica.touched.covers(index) else None


def tail_of(replica: Replica, ring: RecordRing, common: int, theirs: Iterable[Touched]) -> bytearray | None:
    """Make the tail for a store that rejoins.

    Args:
        replica: the primary's.
        ring: recent records.
        common: up to this index both stores have the same records.
        theirs: what the other's records above that touched.

    Returns:
        Its bytes; None where the store has to join: what was touched is not known any more, or is too much.

    Raises:
        RowDamaged: a row is not what was written, and is not sent.
    """
    ours = touched_since(replica, ring, common)
    if ours is None:
        return None
    keys = {key for _, touched in (*ours, *theirs) for key in touched}
    if len(keys) > KEYS_MAX:
        return None
    note = replica.note
    writer = EnvelopeWriter(Kind.TAIL)
    for number, key in sorted(keys):
        writer.append(_row(replica.engine, number, key), writer.buffer, -1)
        if len(writer.buffer) > TAIL_BYTES_MAX:
            return None
    head = TailHead(common, note, replica.clock, [each for each in ours if each[0] > note.released])
    return writer.sealed(head, len(keys))


def _row(engine: Engine, number: int, key: bytes) -> Edit:
    """The edit that makes a row what it is now."""
    stored = engine.get(number, key)
    return number, key, None if stored is None else checked_value(engine, number, key, stored)


def opened_tail(engine: Engine, data: bytes | bytearray | memoryview) -> Tail:
    """Check the bytes of a tail.

    Args:
        engine: of the store that rejoins.
        data: as they came.

    Raises:
        EnvelopeDamaged: they are not what was sent, or none for this store.
    """
    head, edits = opened(Kind.TAIL, data, _decode, engine)
    return Tail(head, edits, len(data))


def rejoin(replica: Replica, tail: Tail) -> None:
    """Bring a store to where the primary was when it made a tail, in one commit.

    Raises:
        TermRefused: a higher term is promised.
        OutOfOrder: the tail is of another incarnation, or does not begin within this store's records.
        ReplicaFull: the disk has no room for it. Nothing was written.
        StoreUnwritable: it may not be on disk. The process must end.
    """
    head, note, engine = tail.head, replica.note, replica.engine
    origin = head.note
    if origin.promised < note.promised:
        raise TermRefused(engine.file, origin.promised, note.promised)
    if origin.incarnation != note.incarnation or head.common > note.index or head.common < note.released:
        raise OutOfOrder(
            f"{engine.file} has records up to {note.index} of incarnation {note.incarnation}, of which {note.released} "
            f"are released; a tail from {head.common} on, of incarnation {origin.incarnation}, does not fit"
        )
    engine.space.look()
    if engine.space.left < tail.size:
        raise ReplicaFull(engine.file, tail.size)
    behind = replica.touched.drop_above(head.common)
    for index, keys in head.touched:
        behind += replica.touched.edits(index, keys)
    released = max(note.released, min(origin.released, origin.index))
    copied = note.copied
    replica.write(replace(origin, released=released, copied=copied), (*tail.edits, *behind), None, head.clock)
    replica.touched.release(released)
