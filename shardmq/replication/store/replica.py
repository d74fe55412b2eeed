"""The note and the touched keys of one store, and how a replica's store is opened."""

from typing import Final

from shardmq.errors import StoreRefused
from shardmq.replication.core.note import BEGINNING, Note
from shardmq.replication.store.note import damaged, note_edit, read_note, replicas_of
from shardmq.replication.store.touched_keys import TouchedKeys
from shardmq.storage.engine import Engine
from shardmq.storage.versions import REPLICAS_SINCE

NOTE_BYTES: Final = 256
"""About what a commit has beside a record and its keys: the note."""

KEY_BYTES: Final = 12
"""About what a key takes beside a record, of which it is a half: another is its database."""


class Replica:
    """One store as a replica.

    Args:
        engine: whose redo log is open, and which has a note.

    Attributes:
        note: how far it is, on disk.
        clock: seconds of the group's clock, as of the last commit.
        clock_at: when the last commit before the start was, by this host's clock; None where that is not known.
        touched: keys of records that may not be on all replicas.

    Raises:
        StoreRefused: it has no note, or a damaged one.
    """

    def __init__(self, engine: Engine) -> None:
        found = read_note(engine)
        if found is None:
            raise StoreRefused(
                f"{engine.file} is not a replica's; move its folder away, and this host gets a new one from the others"
            )
        self.note = found.note
        self.clock = found.clock
        self.clock_at = found.at
        self.engine = engine
        self.touched = TouchedKeys(engine, found.note.released)


def start_replica(engine: Engine) -> None:
    """Open the redo log of an engine; an empty store becomes that of a newcomer.

    One of an earlier version stays so until all hosts of its broker write a later one (node/format.py).

    Raises:
        StoreRefused: the store is damaged, or not a replica's.
        StoreUnwritable: the disk does not take it.
    """
    if engine.version < REPLICAS_SINCE:
        raise StoreRefused(
            f"{engine.file} has format version {engine.version}, in which no store is a replica's; move the folder "
            "away, and this host gets a new one from the others"
        )
    engine.start(_applied(engine), lambda: None)
    if read_note(engine) is None:
        names = [name.decode() for name in _filled(engine)]
        if names:
            raise StoreRefused(
                f"{engine.file} is the store of a broker on one machine (it has {', '.join(names)}), and would be "
                "replaced by a replica's; move the folder away first"
            )
        engine.apply([note_edit(engine, Note("", copied=BEGINNING), 0.0)])


def _applied(engine: Engine) -> int | None:
    """How far the redo log is in the databases."""
    if engine.layout.log_note is None:
        return None
    number, key = engine.layout.log_note
    value = engine.get(number, key)
    if value is None:
        return None
    content = replicas_of(engine).edit_value(number, key, value)
    if content is None:
        raise damaged(engine, "the number of the last commit in it is not what was written")
    return int.from_bytes(content, "big")


def _filled(engine: Engine) -> list[bytes]:
    """Names of the databases that have rows, but for the note of the redo log."""
    names = []
    for number, name in enumerate(engine.layout.databases):
        keys = (key for key in engine.keys(number) if (number, key) != engine.layout.log_note)
        if next(keys, None) is not None:
            names.append(name)
    return names
