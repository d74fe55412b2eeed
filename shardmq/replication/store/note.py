"""How far a replica is. It is written in the same commit as the edits, so that it is never wrong.

    notes       "note"      msgpack ReplicaNote

A store without a note is one of a broker on one machine. It can be adopted, which makes it the first replica of a
group; a store with a note belongs to a group for good, and is not opened without it.
"""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from shardmq.errors import StoreRefused
from shardmq.storage.engine import Edit, Engine, Layout, ReplicaLayout
from shardmq.storage.lmdb_engine import LmdbEngine

NOTE: Final = b"note"

HISTORY_MAX: Final = 64
"""Terms that are remembered. A replica that was away for more of them joins anew."""

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

History = tuple[tuple[Number, Number], ...]
"""Terms and the first index of each, oldest first."""

Place = tuple[Number, bytes]
"""Number of a database, and a key in it. Places have the order of tuples."""

BEGINNING: Final[Place] = (0, b"")
"""Before all rows of a store."""


class ReplicaNote(msgspec.Struct, array_like=True, frozen=True):
    """How far a replica is.

    Attributes:
        incarnation: of the group; an unclean election raises it. 0 for a store that holds nothing yet.
        promised: the highest term it has promised; it takes nothing of lower ones.
        term: of its last record; 0 where there is none.
        index: of its last record; 0 where there is none.
        released: every record up to this index is on all in-sync replicas, as far as it knows.
        history: the terms of its records, each with the index of its first one, from the oldest on.
        copied: where a join is: rows before it are there. None where the store is complete.
        clock: seconds of the group's clock, as of the last record.
    """

    incarnation: Number = 0
    promised: Number = 0
    term: Number = 0
    index: Number = 0
    released: Number = 0
    history: History = ()
    copied: Place | None = None
    clock: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether it has all rows: who has not may not be primary."""
        return self.copied is None

    def after(self, term: int, index: int, clock: float) -> "ReplicaNote":
        """Return the note after one more record."""
        history = self.history
        if term != self.term:
            history = (*history[1 - HISTORY_MAX :], (term, index))
        promised = term if term > self.promised else self.promised
        return ReplicaNote(self.incarnation, promised, term, index, self.released, history, self.copied, clock)


_encode: Final = msgspec.msgpack.Encoder().encode
decode_note: Final = msgspec.msgpack.Decoder(ReplicaNote).decode


def replicas_of(engine: Engine) -> ReplicaLayout:
    """Return what a store's layout says about replicas."""
    replicas = engine.layout.replicas
    assert replicas is not None, f"{engine.layout.format.decode()} is not a layout that replicas can have"
    return replicas


def note_edit(engine: Engine, note: ReplicaNote) -> Edit:
    """Return the edit that writes a note."""
    return replicas_of(engine).notes, NOTE, _encode(note)


def read_note(engine: Engine) -> ReplicaNote | None:
    """Read the note of a store; None where it has none.

    Raises:
        StoreRefused: it is not what was written.
    """
    replicas = replicas_of(engine)
    value = engine.get(replicas.notes, NOTE)
    if value is None:
        if next(iter(engine.keys(replicas.notes)), None) is not None:
            raise damaged(engine, "the note of how far this replica is is not at its key")
        return None
    content = replicas.edit_value(replicas.notes, NOTE, value)
    if content is None:
        raise damaged(engine, "the note of how far this replica is is not what was written")
    try:
        return decode_note(content)
    except msgspec.DecodeError as fault:
        raise damaged(engine, f"the note of how far this replica is cannot be read: {fault}") from fault


def adopt(engine: Engine, note: ReplicaNote) -> None:
    """Write the first note of a store, whose redo log is open. It is in the databases when this returns."""
    engine.apply([note_edit(engine, note)])


def refuse_replica(engine: Engine) -> None:
    """Make sure that a store is not a replica's, or that it is opened as one.

    Raises:
        StoreRefused: it is a replica's, and a broker on one machine would change it behind the others' backs.
    """
    if engine.is_replicated or engine.layout.replicas is None:
        return
    if next(iter(engine.keys(engine.layout.replicas.notes)), None) is not None:
        raise StoreRefused(
            f"{engine.file} is a replica's, of a broker on several hosts, and cannot be started as one machine's; "
            "start it as a host of that broker, or make a broker of its own of a backup with `shardmq restore`"
        )


def make_single(folder: Path, layout: Layout) -> None:
    """Make a replica's store, which has no redo log, one of a broker on one machine.

    Raises:
        StoreRefused: in use, damaged, or of another kind or version.
        StoreUnwritable: its disk does not take anything.
    """
    engine = LmdbEngine(folder, layout)
    try:
        engine.clear(replicas_of(engine).notes)
    finally:
        engine.close()


def damaged(engine: Engine, what: str) -> StoreRefused:
    """Return the error for a damaged row of what a replica notes."""
    return StoreRefused(
        f"{engine.file} is damaged: {what}; move the folder away, and this replica gets a new store from the others"
    )
