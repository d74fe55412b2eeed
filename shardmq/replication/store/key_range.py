"""The rows between two places of a store: what a join copies, and a digest is made of.

A read takes as many rows as are about so many bytes, and lets go of the store's pages again: between two reads the
owner goes on, and nothing keeps LMDB from using freed pages.
"""

from collections.abc import Generator
from contextlib import closing
from typing import Final

import msgspec

from shardmq.errors import RowDamaged
from shardmq.replication.core.note import Key, Note, Number
from shardmq.replication.store.envelope import Content, EnvelopeWriter, Kind, opened
from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.replication.store.note import replicas_of
from shardmq.storage.engine import Engine

RANGE_BYTES: Final = 1 << 20
"""About how much one range has: large against a commit of it, small against a pass."""

SharedRow = tuple[int, bytes, memoryview]
"""Database, key, and the value as it is stored."""


class RangeHead(msgspec.Struct, array_like=True, frozen=True):
    """Which range it is.

    Attributes:
        term: of the last record that is in it.
        index: of that record.
        start: its first place.
        end: the first place behind it; None for the end of the store.
    """

    term: Number
    index: Number
    start: Key
    end: Key | None


class KeyRange:
    """The rows between two places, as of a record.

    Attributes:
        head: which range it is.
        edits: its rows, as the edits that put them.
        size: bytes of the envelope.
    """

    __slots__ = ("edits", "head", "size")

    def __init__(self, head: RangeHead, edits: Content, size: int) -> None:
        self.head = head
        self.edits = edits
        self.size = size


_decode: Final = msgspec.msgpack.Decoder(tuple[Content, RangeHead]).decode


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


def shared_rows(engine: Engine, start: Key, end: Key | None = None) -> Generator[SharedRow]:
    """Yield the rows between two places that replicas share. A view is good until the next step.

    Close the generator (`contextlib.closing`) when you leave it early.
    """
    log_note = engine.layout.log_note
    for number in shared_databases(engine):
        keys = within(number, start, end)
        if keys is None:
            continue
        with closing(engine.scan(number, *keys)) as rows:
            for key, value in rows:
                if log_note != (number, key):
                    yield number, key, value


def read_range(engine: Engine, note: Note, start: Key, bytes_max: int = RANGE_BYTES) -> tuple[bytearray, Key | None]:
    """Read the rows from a place on, as of now.

    Args:
        engine: the primary's.
        note: as of now.
        start: the first place.
        bytes_max: about how many bytes to read; a larger row is a range of its own.

    Returns:
        The envelope, and where the next range begins; None where this is the last one.

    Raises:
        RowDamaged: a row is not what was written: it is not sent, and the join cannot go on.
    """
    writer = EnvelopeWriter(Kind.KEY_RANGE)
    append, buffer = writer.append, writer.buffer
    count = 0
    end: Key | None = None
    with closing(shared_rows(engine, start)) as rows:
        for number, key, stored in rows:
            if count and len(buffer) + len(stored) > bytes_max:
                end = number, key
                break
            append((number, key, checked_value(engine, number, key, stored)), buffer, -1)
            count += 1
    return writer.sealed(RangeHead(note.term, note.index, start, end), count), end


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


def opened_range(engine: Engine, data: bytes | bytearray | memoryview) -> KeyRange:
    """Check the bytes of a range.

    Args:
        engine: the newcomer's.
        data: as they came.

    Raises:
        EnvelopeDamaged: they are not what was sent, or none for this store.
    """
    head, edits = opened(Kind.KEY_RANGE, data, _decode, engine)
    last = (-1, b"")
    for number, key, value in edits:
        place = (number, key)
        if value is None or place <= last or place < head.start or (head.end is not None and place >= head.end):
            raise EnvelopeDamaged(f"a key range for {engine.file} was refused: row {key.hex()} has no place in it")
        last = place
    return KeyRange(head, edits, len(data))
