"""Edits as bytes with a checksum, and back: as they go from host to host, in messages that say what they are.

    checksum u64 | kind u8 | msgpack [[edit, ...], nil], where the list of edits has a length of four bytes

The checksum is xxh3_64 of all that is behind it. A value is copied once, when the envelope is made: what comes out of
one are views into it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, overload

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.replication.store.faults import EnvelopeDamaged
from shardmq.replication.store.note import replicas_of
from shardmq.storage.engine import KEY_BYTES_MAX, Bytes, Edit, Engine

ENVELOPE_BYTES_MAX: Final = 1 << 30
"""A pass takes 8 MB of records and one message more, and the compactor some segments."""

KIND: Final = 4
"""There is one kind. The byte stays, so that hosts of different versions understand one another."""

Content = list[tuple[int, bytes, memoryview | None]]
"""Edits whose values are views into their envelope."""

_PREFIX: Final = Struct(">QB")
_CHECKSUM: Final = Struct(">Q")
_PARTS: Final = Struct(">BBI")
_BEGIN: Final = Struct(">QBBBI")
_PAIR: Final = 0x92
_LIST: Final = 0xDD
_encode_into: Final[Callable[[object, bytearray, int], None]] = msgspec.msgpack.Encoder().encode_into
_decode: Final = msgspec.msgpack.Decoder(tuple[Content, None]).decode


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
        append, buffer = _encode_into, bytearray(_BEGIN.size)
        count = 0
        for edit in edits:
            append(edit, buffer, -1)
            count += 1
        append(None, buffer, -1)
        buffer[_CHECKSUM.size] = KIND
        _PARTS.pack_into(buffer, _PREFIX.size, _PAIR, _LIST, count)
        with memoryview(buffer) as view:
            _CHECKSUM.pack_into(buffer, 0, xxh3_64_intdigest(view[_CHECKSUM.size :]))
        return SealedEdits(buffer)

    @staticmethod
    def opened(data: Bytes, engine: Engine) -> "SealedEdits":
        """Check an envelope, and take it apart.

        Args:
            data: of another process, maybe of another host.
            engine: the store that its edits are for.

        Raises:
            EnvelopeDamaged: it is not what was sent, or none for this store.
        """
        view = memoryview(data)
        try:
            if len(view) > ENVELOPE_BYTES_MAX:
                raise ValueError(f"they are more than {ENVELOPE_BYTES_MAX:,} bytes")
            checksum, kind = _PREFIX.unpack_from(view)
            if checksum != xxh3_64_intdigest(view[_CHECKSUM.size :]):
                raise ValueError("their checksum is not that of their bytes")
            if kind != KIND:
                raise ValueError(f"they are of kind {kind}")
            edits = _decode(view[_PREFIX.size :])[0]
            _check_edits(edits, engine)
        except (ValueError, StructError, msgspec.DecodeError) as fault:
            raise EnvelopeDamaged(
                f"edits of {len(view):,} bytes for {engine.file} were refused: {fault}; the link begins anew, and "
                "sends them again"
            ) from fault
        return SealedEdits(data, edits)

    @property
    def edits(self) -> Content:
        """The edits, in order."""
        if self._edits is None:
            self._edits = _decode(memoryview(self.data)[_PREFIX.size :])[0]
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


def _check_edits(edits: Content, engine: Engine) -> None:
    layout, replicas = engine.layout, replicas_of(engine)
    private = {replicas.notes, *replicas.local}
    log_note = layout.log_note
    databases = len(layout.databases)
    for number, key, _ in edits:
        if not 0 <= number < databases or number in private:
            raise ValueError(f"database {number} is none that replicas share")
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise ValueError(f"they have a key of {len(key)} bytes")
        if log_note == (number, key):
            raise ValueError("they have the note of a redo log")
