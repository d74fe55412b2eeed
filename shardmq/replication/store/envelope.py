"""Edits as bytes with a checksum, and back: records, ranges and tails are envelopes, each with a head of its own.

    checksum u64 | kind u8 | msgpack [[edit, ...], head], where the list of edits has a length of four bytes

The checksum is xxh3_64 of all that is behind it. A value is copied once, when the envelope is made: what comes out of
one are views into it.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, Final

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.replication.store.note import replicas_of
from shardmq.storage.engine import KEY_BYTES_MAX, Engine

ENVELOPE_BYTES_MAX: Final = 1 << 30
"""A pass takes 8 MB of records and one message more, and the compactor some segments."""

Content = list[tuple[int, bytes, memoryview | None]]
"""Edits whose values are views into their envelope."""


class Kind(IntEnum):
    """What is in an envelope."""

    RECORD = 1
    KEY_RANGE = 2
    TAIL = 3


_PREFIX: Final = Struct(">QB")
_CHECKSUM: Final = Struct(">Q")
_PARTS: Final = Struct(">BBI")
_BEGIN: Final = Struct(">QBBBI")
_PAIR: Final = 0x92
_LIST: Final = 0xDD
_encode_into: Final[Callable[[object, bytearray, int], None]] = msgspec.msgpack.Encoder().encode_into


class EnvelopeWriter:
    """An envelope that is being written.

    Args:
        kind: of it.

    Attributes:
        buffer: what is written so far; `append` adds to it.
    """

    __slots__ = ("buffer",)

    append = staticmethod(_encode_into)
    """Called with an edit, the buffer and -1: a method of our own around it would take as long as the encoding."""

    def __init__(self, kind: Kind) -> None:
        self.buffer = bytearray(_BEGIN.size)
        self.buffer[_CHECKSUM.size] = kind

    def sealed(self, head: msgspec.Struct, count: int) -> bytearray:
        """Return the envelope, in which there are so many edits."""
        buffer = self.buffer
        _encode_into(head, buffer, -1)
        _PARTS.pack_into(buffer, _PREFIX.size, _PAIR, _LIST, count)
        with memoryview(buffer) as view:
            _CHECKSUM.pack_into(buffer, 0, xxh3_64_intdigest(view[_CHECKSUM.size :]))
        return buffer


def content(data: bytes | bytearray | memoryview) -> memoryview:
    """Return what is behind an envelope's checksum and kind."""
    return memoryview(data)[_PREFIX.size :]


def opened(
    kind: Kind, data: bytes | bytearray | memoryview, decode: Callable[[memoryview], Any], engine: Engine
) -> Any:
    """Check an envelope and take it apart.

    Args:
        kind: what it is to be.
        data: of another process, maybe of another host.
        decode: of msgspec, for a tuple of a `Content` and a head.
        engine: the store that its edits are for.

    Returns:
        The head and the edits.

    Raises:
        EnvelopeDamaged: it is not what was sent, or none for this store.
    """
    view = memoryview(data)
    title = f"a {kind.name.lower().replace('_', ' ')} of {len(view):,} bytes for {engine.file}"
    try:
        if len(view) > ENVELOPE_BYTES_MAX:
            raise ValueError(f"it is larger than {ENVELOPE_BYTES_MAX:,} bytes")
        checksum, found = _PREFIX.unpack_from(view)
        if checksum != xxh3_64_intdigest(view[_CHECKSUM.size :]):
            raise ValueError("its checksum is not that of its bytes")
        if found != kind:
            raise ValueError(f"it is of kind {found}")
        edits, head = decode(view[_PREFIX.size :])
        _check_edits(edits, engine)
    except (ValueError, StructError, msgspec.DecodeError) as fault:
        raise EnvelopeDamaged(f"{title} was refused: {fault}; the link begins anew, and sends it again") from fault
    return head, edits


def _check_edits(edits: Content, engine: Engine) -> None:
    layout, replicas = engine.layout, replicas_of(engine)
    private = {replicas.notes, *replicas.local}
    log_note = layout.log_note
    databases = len(layout.databases)
    for number, key, _ in edits:
        if not 0 <= number < databases or number in private:
            raise ValueError(f"database {number} is none that replicas share")
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise ValueError(f"it has a key of {len(key)} bytes")
        if log_note == (number, key):
            raise ValueError("it has the note of a redo log")
