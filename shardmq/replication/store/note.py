"""How far a replica is. It is written in the same commit as the edits, so that it is never wrong.

    notes       "note"      msgpack [Note, clock, moment of the commit]

A store without a note is one of a broker on one machine; an empty one becomes a newcomer's. A store with a note belongs
to a group for good, and is not opened without it.
"""

from pathlib import Path
from typing import Final

import msgspec

from shardmq.errors import StoreRefused
from shardmq.replication.core.note import Note
from shardmq.runtime.clock import Moment
from shardmq.storage.engine import Edit, Engine, Layout, ReplicaLayout
from shardmq.storage.lmdb_engine import LmdbEngine

NOTE: Final = b"note"


class NoteRow(msgspec.Struct, array_like=True, frozen=True):
    """What is in the row.

    Attributes:
        note: how far the replica is.
        clock: seconds of the group's clock, as of the last commit.
        at: when that was, by this host's clock; None where an earlier version wrote the note.
    """

    note: Note
    clock: float = 0.0
    at: Moment | None = None


_encode: Final = msgspec.msgpack.Encoder().encode
decode_note: Final = msgspec.msgpack.Decoder(NoteRow).decode


def replicas_of(engine: Engine) -> ReplicaLayout:
    """Return what a store's layout says about replicas."""
    replicas = engine.layout.replicas
    assert replicas is not None, f"{engine.layout.format.decode()} is not a layout that replicas can have"
    return replicas


def note_edit(engine: Engine, note: Note, clock: float) -> Edit:
    """Return the edit that writes a note."""
    return replicas_of(engine).notes, NOTE, _encode((note, clock, Moment.now()))


def read_note(engine: Engine) -> NoteRow | None:
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
