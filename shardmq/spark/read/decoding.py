"""Records cut into a column of bodies and their properties.

    92 c0 c4 03 'a' 'b' 'c'   92 81 .. .. c4 01 'd'        msgpack [properties | nil, body], back to back
       └ raw ┘  └── body ─┘      └─ raw ┘    └ body

Records that are all alike are cut without a step for each of them. Properties are never decoded here: neighbours
mostly have the same ones, byte for byte, so comparing is enough.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
from msgpack.fallback import Unpacker as PlainUnpacker

from shardmq.errors import ProtocolError, ReplyCode

PLAIN: Final = b"\x92\xc0"
"""The first bytes of a record without properties."""

KEYED: Final = 32
"""Flag of a delivery whose records have keys (`shardmq.message.record_batch`)."""

COLUMNS_MAX: Final = 48
"""Comparing one byte of all records at once takes 1.3 ns a record. From so many bytes on, comparing record by record
is faster, 80 ns each."""

_BODY_HEADER_BYTES: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}
_IS_COMPILED: Final = msgpack.Unpacker is not PlainUnpacker
"""Whether msgpack has its compiled part. An executor that has only the zip works without it."""


class Parts(NamedTuple):
    """Records cut apart.

    Attributes:
        bodies: a binary column.
        raws: the distinct properties as bytes; None stands for a record without any.
        of: each record's index in `raws`; None where record i has properties i.
    """

    bodies: pa.Array
    raws: list[bytes | None]
    of: pa.Array | None


def keys_apart(deliveries: Sequence[dict[str, Any]]) -> tuple[Sequence[dict[str, Any]], list[str]]:
    """Deliveries whose records have no keys, and the routing keys: of each, or of each message where some had keys.

    Args:
        deliveries: with the fields of basic.deliver; with bit 5 of `flags`, a record has a key behind its body.

    Raises:
        ProtocolError: the records cannot be decoded.
    """
    if not any(delivery["flags"] & KEYED for delivery in deliveries):
        return deliveries, [delivery["routing_key"] for delivery in deliveries]
    plain: list[dict[str, Any]] = []
    keys: list[str] = []
    for delivery in deliveries:
        if delivery["flags"] & KEYED:
            records, own = _without_keys(delivery["records"], delivery["count"])
            plain.append({**delivery, "records": records})
            keys += own
        else:
            plain.append(delivery)
            keys += [delivery["routing_key"]] * delivery["count"]
    return plain, keys


def _without_keys(records: bytes, count: int) -> tuple[bytes, list[str]]:
    after = _after_properties(records)
    pieces: list[bytes] = []
    keys: list[str] = []
    position = 0
    try:
        for _ in range(count):
            if records[position] != PLAIN[0] + 1:
                raise ValueError(f"no record with a key begins with the byte at {position}")
            _, end = _body(records, after(position + 1))
            behind = after(end)
            keys.append(msgpack.unpackb(records[end:behind]))
            pieces.append(PLAIN[:1] + records[position + 1 : end])
            position = behind
    except (IndexError, KeyError, ValueError, msgpack.UnpackException) as fault:
        raise ProtocolError(
            f"the broker sent {len(records)} bytes that are no {count} records [properties | nil, body, key]: {fault}",
            ReplyCode.SYNTAX_ERROR,
        ) from fault
    return b"".join(pieces), keys


def take_apart(records: bytes, count: int) -> Parts:
    """Cut records into bodies and properties.

    Records of one size with the same bytes before their bodies take 15 ns each, others 200. Where each has its own
    properties it takes 600 ns, and 1000 without the compiled msgpack.

    Args:
        records: the records, back to back.
        count: how many there are, at least 1.

    Raises:
        ProtocolError: the bytes are not `count` records.
    """
    try:
        return _alike(records, count) or _one_by_one(records, count)
    except (IndexError, KeyError, ValueError, msgpack.UnpackException) as fault:
        raise ProtocolError(
            f"the broker sent {len(records)} bytes that are no {count} records [properties | nil, body]: {fault}",
            ReplyCode.SYNTAX_ERROR,
        ) from fault


def _alike(records: bytes, count: int) -> Parts | None:
    """The parts where all records have the size and properties of the first one; None where they have not."""
    size, rest = divmod(len(records), count)
    if rest or records[0] != PLAIN[0]:
        return None
    after = 2 if records[:2] == PLAIN else _after_properties(records)(1)
    start, end = _body(records, after)
    if end != size:
        return None
    if not _have_one_front(records, count, records[:start], size):
        return None
    raw = None if records[:2] == PLAIN else records[1:after]
    whole = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(records)])
    if start == size:
        return Parts(pa.repeat(pa.scalar(b"", pa.binary()), count), [raw], _zeros(count))
    return Parts(pc.binary_slice(whole, start, size).cast(pa.binary()), [raw], _zeros(count))


def _have_one_front(records: bytes, count: int, front: bytes, size: int) -> bool:
    """Whether the bytes `front` are repeated every `size` bytes."""
    if len(front) > COLUMNS_MAX:
        return all(records.startswith(front, begin) for begin in range(0, len(records), size))
    # The last byte tells the body's size, where records differ most often.
    return all(records[place::size].count(front[place]) == count for place in range(len(front) - 1, -1, -1))


def _one_by_one(records: bytes, count: int) -> Parts:
    marks: list[int] = []  # where bodies begin and end
    of: list[int] = []
    places: dict[bytes | None, int] = {}
    after_properties = _after_properties(records)
    front, width, place = b"", 0, -1
    position, size = 0, len(records)
    begins, mark, belongs = records.startswith, marks.append, of.append
    while position < size:
        # A msgpack value ends by itself, so a record that begins with these bytes has these properties.
        if place < 0 or not begins(front, position):
            width = after_properties(position + 1) - position
            front = records[position : position + width]
            if front[0] != PLAIN[0]:
                raise ValueError(f"no record begins with the byte at {position}")
            raw = None if front == PLAIN else front[1:]
            place = places.setdefault(raw, len(places))
        position += width
        if records[position] == 0xC4:
            start = position + 2
            position = start + records[position + 1]
        else:
            start, position = _body(records, position)
        mark(start)
        mark(position)
        belongs(place)
    if len(of) != count or position != size:
        raise ValueError(f"there are {len(of)}, up to byte {position}")
    return Parts(_between(records, marks), list(places), None if len(places) == count else pa.array(of, pa.int32()))


def _body(records: bytes, position: int) -> tuple[int, int]:
    """Where the body with its header at `position` begins and ends."""
    width = _BODY_HEADER_BYTES[records[position]]
    start = position + width
    return start, start + int.from_bytes(records[position + 1 : start], "big")


def _between(records: bytes, marks: list[int]) -> pa.Array:
    """The bytes from the first mark to the second, from the third to the fourth, and so on.

    They are every other value of an array that also has what lies between the bodies.
    """
    pieces = len(marks) - 1
    offsets = pa.py_buffer(array("i", marks))
    whole = pa.Array.from_buffers(pa.binary(), pieces, [None, offsets, pa.py_buffer(records)])
    return whole.take(pa.array(range(0, pieces, 2), pa.int32()))


def _zeros(count: int) -> pa.Array | None:
    return pa.repeat(pa.scalar(0, pa.int32()), count) if count > 1 else None


def _after_properties(records: bytes) -> Callable[[int], int]:
    """A function from the position of a value to the position behind it, called with rising positions."""
    if not _IS_COMPILED:
        return lambda position: _skip(records, position)
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(records)

    def skip(position: int) -> int:
        unpacker.read_bytes(position - unpacker.tell())
        unpacker.skip()
        place: int = unpacker.tell()
        return place

    return skip


def _sizes() -> list[int]:
    """The length of a value by its first byte; 0 where more bytes tell it."""
    sizes = [0] * 256
    sizes[0x00:0x80] = [1] * 0x80  # small integers
    sizes[0xA0:0xC0] = range(1, 0x21)  # short strings
    sizes[0xE0:0x100] = [1] * 0x20  # small negative integers
    sizes[0xC0], sizes[0xC2], sizes[0xC3] = 1, 1, 1  # nil, false, true
    sizes[0xCA:0xD4] = (5, 9, 2, 3, 5, 9, 2, 3, 5, 9)  # floats, integers
    sizes[0xD4:0xD9] = (3, 4, 6, 10, 18)  # extensions of fixed size
    return sizes


_SIZES: Final = _sizes()

_LENGTHS: Final = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}
"""Strings, binaries and extensions by their first byte: the bytes of their length, and bytes that follow it besides."""

_MEMBERS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Arrays and maps by their first byte: the bytes of their length, and how many values a member has."""


def _skip(records: bytes, position: int) -> int:
    """Where the value at `position` ends, in a tenth of the time that msgpack takes in Python."""
    left = 1
    while left:
        left -= 1
        kind = records[position]
        size = _SIZES[kind]
        if size:
            position += size
        elif kind < 0xA0:
            position += 1
            left += (kind & 15) * (2 if kind < 0x90 else 1)
        elif kind in _LENGTHS:
            width, more = _LENGTHS[kind]
            behind = position + 1 + width
            position = behind + more + int.from_bytes(records[position + 1 : behind], "big")
        else:
            width, values = _MEMBERS[kind]
            behind = position + 1 + width
            left += values * int.from_bytes(records[position + 1 : behind], "big")
            position = behind
    return position
