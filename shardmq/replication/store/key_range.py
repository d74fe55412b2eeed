"""The rows that replicas share: those from a key on, which a join copies, and what of them is sent."""

from collections.abc import Generator
from contextlib import closing

from shardmq.errors import RowDamaged
from shardmq.replication.core.note import BEGINNING, Key
from shardmq.replication.store.note import replicas_of
from shardmq.storage.engine import Engine

SharedRow = tuple[int, bytes, memoryview]
"""Database, key, and the value as it is stored."""


def shared_databases(engine: Engine) -> list[int]:
    """Return the numbers of the databases that replicas share."""
    replicas = replicas_of(engine)
    private = {replicas.notes, *replicas.local}
    return [number for number in range(len(engine.layout.databases)) if number not in private]


def within(number: int, start: Key, end: Key | None) -> tuple[bytes, bytes | None] | None:
    """Return from which key on, and to before which, a database is in a range; None where it is not."""
    if number < start[0] or (end is not None and (number > end[0] or end == (number, b""))):
        return None
    first = start[1] if number == start[0] else b""
    return first, end[1] if end is not None and number == end[0] else None


def shared_rows(engine: Engine, start: Key = BEGINNING) -> Generator[SharedRow]:
    """Yield the rows from a key on that replicas share. A view is good until the next step.

    Close the generator (`contextlib.closing`) when you leave it early.
    """
    log_note = engine.layout.log_note
    for number in shared_databases(engine):
        keys = within(number, start, None)
        if keys is None:
            continue
        with closing(engine.scan(number, *keys)) as rows:
            for key, value in rows:
                if log_note != (number, key):
                    yield number, key, value


def checked_value(engine: Engine, number: int, key: bytes, stored: memoryview) -> memoryview:
    """Return the edit's value of a stored one.

    Raises:
        RowDamaged: it is not what was written.
    """
    value = replicas_of(engine).edit_value(number, key, stored)
    if value is None:
        name = engine.layout.databases[number].decode()
        what = "the row is not what was written, and is not copied to another host; repair the store first"
        raise RowDamaged(engine.file, name, key, what)
    return value
