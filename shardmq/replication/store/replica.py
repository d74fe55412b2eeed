"""The note and the touched keys of one store, and a commit with both."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from shardmq.errors import StoreRefused
from shardmq.replication.core.note import BEGINNING, Note
from shardmq.replication.core.timing import HISTORY_MAX
from shardmq.replication.store.faults import TermRefused
from shardmq.replication.store.note import adopt, damaged, note_edit, read_note, replicas_of
from shardmq.replication.store.record import Record
from shardmq.replication.store.touched_keys import TouchedKeys
from shardmq.storage.engine import REPLICAS_SINCE, Edit, Engine

NOTE_BYTES: Final = 256
"""About what a commit has beside a record and its keys: the note."""

KEY_BYTES: Final = 12
"""About what a key takes beside a record, of which it is a half: another is its database."""


class Replica:
    """One store as a replica.

    Args:
        engine: whose redo log is open, and which has a note.

    Attributes:
        note: as it is on disk, but for `released`, which may be ahead.
        clock: seconds of the group's clock, as of the last commit.
        touched: keys of records that may not be on all replicas.

    Raises:
        StoreRefused: it has no note, or a damaged one.
    """

    def __init__(self, engine: Engine) -> None:
        found = read_note(engine)
        if found is None:
            raise StoreRefused(
                f"{engine.file} is not a replica's; adopt it as the first of a group, or move its folder away, and "
                "this host gets a new store from the others"
            )
        self.note = found.note
        self.clock = found.clock
        self.engine = engine
        self.touched = TouchedKeys(engine, found.note.released)

    def promise(self, term: int) -> None:
        """Take nothing of a lower term from here on; that is on disk when this returns.

        Raises:
            TermRefused: a higher one is promised already.
        """
        note = self.note
        if term < note.promised:
            raise TermRefused(self.engine.file, term, note.promised)
        if term > note.promised:
            self.write(replace(note, promised=term))

    def write(
        self, note: Note, edits: Iterable[Edit] = (), size: int | None = NOTE_BYTES, clock: float | None = None
    ) -> None:
        """Write another note, and edits with it.

        Args:
            note: the new one.
            edits: in order.
            size: see `Engine.apply`; None where edits put what may be there already.
            clock: seconds of the group's clock; None to leave it.
        """
        if clock is not None:
            self.clock = clock
        self.engine.apply(chain(edits, (note_edit(self.engine, note, self.clock),)), size)
        self.note = note

    def release(self, index: int) -> None:
        """Note that all records up to an index are on all in-sync replicas. It is written with the next commit."""
        note = self.note
        index = min(index, note.index)
        if index > note.released:
            self.note = replace(note, released=index)
            self.touched.release(index)

    def commit(
        self, records: Sequence[Record], own: Sequence[Edit] = (), size: int | None = 0, touched: int = 0
    ) -> None:
        """Write records that follow the last one, in one commit; they are on disk when this returns.

        Args:
            records: in order, one or more.
            own: edits that are this replica's alone.
            size: about how many bytes all of it is; None to have it in the databases at once.
            touched: see `Engine.apply`.

        Raises:
            StoreUnwritable: they may not be on disk. The process must end.
        """
        note = self.note
        behind: list[Edit] = []
        for record in records:
            note = _after(note, record)
            keys = record.keys
            behind += self.touched.edits(record.index, keys)
            if size is not None:
                size += NOTE_BYTES + KEY_BYTES * len(keys)
        behind.append(note_edit(self.engine, note, records[-1].clock))
        edits: Iterable[Edit] = chain(records[0].edits, own, behind)
        if len(records) > 1:
            edits = chain(chain.from_iterable([record.edits for record in records]), own, behind)
        self.engine.apply(edits, size, touched)
        self.note, self.clock = note, records[-1].clock


def _after(note: Note, record: Record) -> Note:
    """The note after one more record."""
    history = note.history
    if record.term != note.term:
        history = (*history, (record.term, record.index))[-HISTORY_MAX:]
    promised = max(record.term, note.promised)
    return Note(note.incarnation, promised, record.term, record.index, note.released, history, note.copied)


def start_replica(engine: Engine) -> None:
    """Open the redo log of an engine; an empty store becomes that of a newcomer.

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
        adopt(engine, Note("", copied=BEGINNING))


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
