"""The newcomer's side of a join: ranges are put, and what is not in them is deleted.

The store is marked as not complete before the first one, and where the join is is written with each: it goes on there
after a restart, if the records in between are to be had.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Final

from msgspec.structs import replace

from shardmq.replication.core.messages import Touched
from shardmq.replication.core.note import BEGINNING, Note
from shardmq.replication.store.faults import OutOfOrder, ReplicaFull, TermRefused
from shardmq.replication.store.key_range import KeyRange, shared_databases, within
from shardmq.replication.store.replica import Replica
from shardmq.storage.engine import Edit, Engine

DELETED_MAX: Final = 10_000
"""Rows deleted in one commit, of those that are not in a range."""

_ROOM: Final = 2
"""A range needs this many times its bytes: LMDB copies the pages above what it writes."""


def begin_join(replica: Replica, origin: Note, touched: Sequence[Touched]) -> None:
    """Mark a store as not complete; its rows are to be replaced by the primary's.

    Args:
        replica: the newcomer's.
        origin: the primary's note, as of now: the records behind its last one follow.
        touched: what the primary's records touched that are not known to be released.

    Raises:
        TermRefused: a higher term is promised.
    """
    if origin.promised < replica.note.promised:
        raise TermRefused(replica.engine.file, origin.promised, replica.note.promised)
    edits = replica.touched.drop_above(-1)
    for index, keys in touched:
        edits += replica.touched.edits(index, keys)
    replica.write(replace(origin, copied=BEGINNING), edits, None)
    replica.touched.release(origin.released)


def put_range(replica: Replica, found: KeyRange) -> None:
    """Have the rows of a range, and no others there; they are on disk when this returns.

    Raises:
        OutOfOrder: it is not the next range, or not as of this store's last record. Nothing was written.
        ReplicaFull: the disk has no room for it. Nothing was written.
        StoreUnwritable: it may not be on disk. The process must end.
    """
    head, note, engine = found.head, replica.note, replica.engine
    if (head.start, head.term, head.index) != (note.copied, note.term, note.index):
        raise OutOfOrder(
            f"{engine.file} is at record {note.index} of term {note.term}, and its join at {_text(note)}; it cannot "
            f"take a range from {head.start} on, as of record {head.index} of term {head.term}"
        )
    size = found.size
    engine.space.look()
    if engine.space.left < _ROOM * size:
        raise ReplicaFull(engine.file, size)
    present = {(number, key) for number, key, _ in found.edits}
    for number in shared_databases(engine):
        _delete_others(engine, number, found, present)
    replica.write(replace(note, copied=head.end), found.edits, None)


def _delete_others(engine: Engine, number: int, found: KeyRange, present: set[tuple[int, bytes]]) -> None:
    """Delete the rows of a database that lie in a range and are not among its rows."""
    keys = within(number, found.head.start, found.head.end)
    if keys is None:
        return
    start, end = keys
    while True:
        with closing(engine.keys(number, start, end)) as stored:
            others = (key for key in stored if (number, key) not in present and engine.layout.log_note != (number, key))
            gone: list[Edit] = [(number, key, None) for key in islice(others, DELETED_MAX)]
        if not gone:
            return
        engine.apply(gone)
        if len(gone) < DELETED_MAX:
            return
        start = gone[-1][1]


def _text(note: Note) -> str:
    return "its end" if note.copied is None else str(note.copied)
