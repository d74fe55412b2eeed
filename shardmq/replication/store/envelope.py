"""Edits as bytes with a checksum, and back: records, ranges and tails are envelopes, each with a head of its own.

    checksum u64 | kind u8 | msgpack [[edit, ...], head], where the list of edits has a length of four bytes

Sealed edits have no head: they are part of a message that says what they are.

The checksum is xxh3_64 of all that is behind it. A value is copied once, when the envelope is made: what comes out of
one are views into it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, Final, overload

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.replication.store.note import replicas_of
from shardmq.storage.engine import KEY_BYTES_MAX, Bytes, Edit, Engine

ENVELOPE_BYTES_MAX: Final = 1 << 30
"""A pass takes 8 MB of records and one message more, and the compactor some segments."""

Content = list[tuple[int, bytes, memoryview | None]]
"""Edits whose values are views into their envelope."""


class Kind(IntEnum):
    """What is in an envelope."""

    RECORD = 1
    KEY_RANGE = 2
    TAIL = 3
    EDITS = 4


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

    def sealed(self, head: msgspec.Struct | None, count: int) -> bytearray:
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


_decode_edits: Final = msgspec.msgpack.Decoder(tuple[Content, None]).decode


class SealedEdits(Sequence[Edit]):
    """Edits of one commit, as they go from host to host: encoded once for all of them, and checked where they come.

    Args:
        data: the envelope, of this process or checked.
        edits: what is in it, where that is known.

    Attributes:
        data: the envelope; it does not change any more. Values of edits are views into it.
    """

    __slots__ = ("_edits", "data")

    def __init__(self, data: Bytes, edits: Content | None = None) -> None:
        self.data = data
        self._edits = edits

    @staticmethod
    def sealed(edits: Iterable[Edit]) -> "SealedEdits":
        """Encode edits. A value need only be good until the next one is asked for."""
        writer = EnvelopeWriter(Kind.EDITS)
        append, buffer = writer.append, writer.buffer
        count = 0
        for edit in edits:
            append(edit, buffer, -1)
            count += 1
        return SealedEdits(writer.sealed(None, count))

    @staticmethod
    def opened(data: Bytes, engine: Engine) -> "SealedEdits":
        """Check an envelope, and take it apart.

        Args:
            data: of another process, maybe of another host.
            engine: the store that its edits are for.

        Raises:
            EnvelopeDamaged: it is not what was sent, or none for this store.
        """
        return SealedEdits(data, opened(Kind.EDITS, data, _decode_edits, engine)[1])

    @property
    def edits(self) -> Content:
        """The edits, in order."""
        if self._edits is None:
            self._edits = _decode_edits(content(self.data))[0]
        return self._edits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.edits == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.edits)

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)

    @overload
    def __getitem__(self, place: int) -> Edit: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Edit]: ...
    def __getitem__(self, place: int | slice) -> Edit | Sequence[Edit]:
        return self.edits[place]
