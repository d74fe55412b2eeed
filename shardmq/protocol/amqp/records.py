"""Records made of AMQP messages, packed and unpacked by the batch: msgpack [property list as bin, body as bin].

    92 c4 03 90 00 02 c4 64 ···· 92 c4 03 90 00 02 c4 64 ···· 92 …
    └──── the same ───────┘ body └──── the same ───────┘ body

Most programs that send in bulk send messages with the same property list and bodies of one size. Those bodies are
joined with what their records have in common: 0.05 µs a message, where encoding them takes 0.14. (Unpacking in such a
way is no faster than decoding, 0.11.)
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

import msgspec

from shardmq.message.record import pack_raw, unpack_raw

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_one: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode
_ARRAY_HEADER_BYTES: Final = {0xDC: 3, 0xDD: 5}
_EMPTY_ENDS: Final = 2
"""Bytes of an empty bin."""


def pack_alike(properties: bytes, bodies: Sequence[bytes]) -> bytes:
    """Pack messages that share their property list."""
    if len(bodies) == 1:
        return pack_raw(properties, bodies[0])
    if len(set(map(len, bodies))) == 1:
        head = _encode((properties, b""))[:-_EMPTY_ENDS] + _bin_header(len(bodies[0]))
        return head.join((b"", *bodies))
    return pack(repeat(properties, len(bodies)), bodies)


def pack(lists: Iterable[bytes], bodies: Sequence[bytes]) -> bytes:
    """Pack messages, each with a property list of its own."""
    array = _encode(list(zip(lists, bodies, strict=False)))
    return array[_ARRAY_HEADER_BYTES.get(array[0], 1) :]


def pack_each(lists: Iterable[bytes], bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Pack messages, each by itself: 45 ns less a message than `pack_raw` for each."""
    return map(_encode, zip(lists, bodies, strict=True))


def unpack(records: bytes, count: int) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Unpack `count` records into property lists and bodies."""
    if count == 1:
        properties, body = _decode_one(records)
        return (properties,), (body,)
    lists, bodies = zip(*unpack_raw(records, count), strict=True)
    return lists, bodies


def _bin_header(size: int) -> bytes:
    """The msgpack header of `size` bytes."""
    if size < 1 << 8:
        return b"\xc4%c" % size
    return b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xc6" + size.to_bytes(4, "big")
