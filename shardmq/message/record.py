"""One message packed: writing, reading and checking it.

A record is one message, msgpack `[properties | nil, body]`. Messages travel and lie as records, from the publisher's
socket to the consumer's. Records stand back to back; a record batch is a number of them under one header. Joining
batches is concatenation, and cutting one skips over records without decoding them.

    batch:    exchange, routing key, flags, time, id, count
    records:  92 c0 c4 03 'a' 'b' 'c'   92 81 .. .. c4 01 'd'   …
              └ [nil, b'abc'] ──────┘   └ [{…}, b'd'] ──────┘
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec.msgpack import Ext

from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import (
    MESSAGE_BYTES_HIGHEST,
    MESSAGE_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    RECORD_BATCH_PROPERTIES_BYTES_MAX,
    RECORD_BATCH_RECORDS_MAX,
)
from shardmq.message.properties import RECURSION_MAX, Properties
from shardmq.message.record_batch import DECIMAL, record_ends

ALONE_BYTES: Final = 1 << 20
"""A single record with more bytes is checked without a copy of it."""


class Record(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """One message, decoded."""

    properties: Properties | None
    body: bytes


def extension(code: int, data: memoryview) -> Any:
    """Decode an extension of msgpack: a decimal, or what clients make of theirs."""
    if code == DECIMAL:
        try:
            return Decimal(bytes(data).decode())
        except (InvalidOperation, UnicodeDecodeError):
            pass  # it is no decimal, and stays the extension that it is
    return Ext(code, bytes(data))


_encode = msgspec.msgpack.Encoder().encode
_decode_records = msgspec.msgpack.Decoder(list[Record], ext_hook=extension).decode
_decode_properties = msgspec.msgpack.Decoder(Properties | None, ext_hook=extension).decode
_decode_apart = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, bytes]]).decode
_decode_plain = msgspec.msgpack.Decoder(list[tuple[None, bytes]]).decode
_decode_lists = msgspec.msgpack.Decoder(list[tuple[bytes, bytes]]).decode
_decode_one = msgspec.msgpack.Decoder(tuple[msgspec.Raw, memoryview]).decode
_decode_raw = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw]]).decode
_decode_pieces = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_LOOKED_INTO: Final = frozenset((Decimal, dict, list, tuple))
_PLAIN: Final = b"\x92\xc0"
"""How a record without properties begins."""

ALIKE_MIN: Final = 48
"""Fewer records are decoded about as quickly as their headers are compared."""

_ARRAY_HEADER_BYTES: Final = {0xDC: 3, 0xDD: 5}


def pack(properties: Properties | None, body: bytes) -> bytes:
    """Encode a message as a record."""
    if properties is not None and properties.headers is not None:
        properties = _with_extensions(properties, properties.headers)
    return _encode((properties, body))


def pack_properties(properties: Properties | None) -> msgspec.Raw:
    """Encode properties as the first half of a record."""
    if properties is not None and properties.headers is not None:
        properties = _with_extensions(properties, properties.headers)
    return msgspec.Raw(_encode(properties))


def pack_raw(properties: bytes, body: bytes) -> bytes:
    """Encode a message with an AMQP property list as a record of a batch with the flag AMQP."""
    return _encode((properties, body))


def pack_many(bodies: Iterable[bytes], properties: Properties | None = None) -> bytes:
    """Encode messages that share their properties as records, back to back.

    They are encoded as one array, and its header is cut off: 54 ns a record, where one by one takes 100.
    """
    if properties is not None and properties.headers is not None:
        properties = _with_extensions(properties, properties.headers)
    return pack_packed([(properties, body) for body in bodies])


def pack_packed(contents: Sequence[tuple[Properties | msgspec.Raw | None, bytes]]) -> bytes:
    """Encode messages as records, back to back. `pack_properties` has to encode decimals in properties before."""
    array = _encode(contents)
    return array[_ARRAY_HEADER_BYTES.get(array[0], 1) :]


def _with_extensions(properties: Properties, headers: dict[str, Any]) -> Properties:
    """Properties as msgpack can encode them; takes 0.1 µs for three headers and no decimal."""
    if not _has_decimals(headers):
        return properties
    return msgspec.structs.replace(properties, headers=_extended(headers))


def _has_decimals(headers: dict[str, Any]) -> bool:
    if _LOOKED_INTO.isdisjoint(map(type, headers.values())):
        return False
    nested: list[Iterable[Any]] = [headers.values()]
    for values in nested:  # the list grows meanwhile
        for value in values:
            kind = type(value)
            if kind is Decimal:
                return True
            if kind is dict:
                nested.append(value.values())
            elif kind is list or kind is tuple:
                nested.append(value)
    return False


def _extended(value: Any) -> Any:
    if isinstance(value, Decimal):
        return Ext(DECIMAL, str(value).encode())
    if isinstance(value, dict):
        return {key: _extended(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_extended(inner) for inner in value]
    return value


def unpack(records: bytes, count: int) -> list[Record]:
    """Decode `count` records that were checked when they came in.

    Raises:
        InvalidRequest: these bytes are not `count` records.
    """
    try:
        return _decode_records(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(records, count, error) from error


def pieces(records: bytes, count: int) -> list[msgspec.Raw]:
    """Each of `count` records by itself, not decoded: 50 ns a record, where to skip and cut takes 300."""
    array = b"\xdd%b%b" % (count.to_bytes(4, "big"), records)
    try:
        return _decode_pieces(array)
    except RecursionError:
        with deeper():
            return _decode_pieces(array)


def unpack_raw(records: bytes, count: int) -> list[tuple[bytes, bytes]]:
    """Decode `count` records of a batch with the flag AMQP: property list and body of each."""
    return _decode_lists(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))


def unpack_bodies(records: bytes, count: int) -> list[tuple[None, bytes]] | None:
    """Decode `count` records that were checked and have no properties; returns None where one has."""
    if not records.startswith(_PLAIN):
        return None
    try:
        return _decode_plain(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))
    except msgspec.DecodeError:
        return None


def unpack_apart(records: bytes, count: int) -> list[tuple[msgspec.Raw, bytes]]:
    """Decode `count` records that were checked, but not their properties, which `unpack_properties` decodes."""
    return _decode_apart(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))


def unpack_properties(packed: bytes) -> Properties | None:
    """Decode the first half of a record that was checked when it came in."""
    properties: Properties | None
    try:
        properties = _decode_properties(packed)
    except RecursionError:
        with deeper():
            properties = _decode_properties(packed)
    return properties


@contextmanager
def deeper() -> Iterator[None]:
    """Raise the limit of recursion to `RECURSION_MAX` meanwhile, where it is lower."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, RECURSION_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _unpack_checked(records: bytes, count: int) -> list[Record]:
    if len(records) > PROPERTIES_BYTES_MAX:
        _check_properties(records, count)
    return unpack(records, count)


def _check_properties(records: bytes, count: int) -> None:
    """Make sure that the properties may be decoded, which takes up to 70 times their size in memory.

    Looking at their sizes takes 0.1 µs a record.
    """
    sizes = _properties_sizes(records, count)
    if max(sizes) > PROPERTIES_BYTES_MAX:
        raise ContentTooLarge(f"a message with {max(sizes)} bytes of properties; the limit is {PROPERTIES_BYTES_MAX}")
    if sum(sizes) > RECORD_BATCH_PROPERTIES_BYTES_MAX:
        raise ContentTooLarge(
            f"a publish with {sum(sizes)} bytes of properties; the limit is "
            f"{RECORD_BATCH_PROPERTIES_BYTES_MAX}: publish fewer messages at a time"
        )


def _properties_sizes(records: bytes, count: int) -> list[int]:
    try:
        return [len(properties) for properties, _ in _decode_raw(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))]
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(records, count, error) from error


def properties_bytes(records: bytes, count: int) -> int:
    """The size of the properties of all records, checked or not, in bytes.

    Raises:
        InvalidRequest: these bytes are not `count` records.
    """
    return sum(_properties_sizes(records, count))


class BodySizes(Protocol):
    """Where sizes of bodies are noted."""

    noted: list[int]

    def add(self, size: int, count: int) -> None:
        """Note as many bodies of one size."""


def check_plain(records: bytes, count: int, bytes_max: int = MESSAGE_BYTES_MAX, sizes: BodySizes | None = None) -> bool:
    """Check records as `check` does if they have no properties; returns False if one has, or they are malformed.

    Raises:
        InvalidRequest: a publish may not have so many records.
        ContentTooLarge: a body is over the limit.
    """
    if not records.startswith(_PLAIN):
        return False
    size = alike_size(records, count)
    if size is not None:
        _note_alike(size, count, bytes_max, sizes)
        return True
    try:
        plain = _decode_plain(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))
    except (msgspec.DecodeError, OverflowError):
        return False
    check_count(count)
    _check_sizes(records, count, bytes_max)
    if sizes is not None:
        sizes.noted += [len(body) for _, body in plain]
    return True


def alike_size(records: bytes, count: int) -> int | None:
    """The size of each body, where these are `count` well-formed records without properties, with bodies of one size.

    If every header says that the next one follows `size` bytes later, and it does, there is nothing else to check. It
    takes 3 ns a record; to decode them takes 50, and as much again for a copy and the garbage collector. Other records
    are most often told by the first two that differ.
    """
    size, rest = divmod(len(records), count) if ALIKE_MIN <= count <= RECORD_BATCH_RECORDS_MAX else (0, 1)
    if rest:
        return None
    if size < 4 + (1 << 8):
        body, header = size - 4, b"\xc4"
    elif size < 5 + (1 << 16):
        body, header = size - 5, b"\xc5"
    else:
        body, header = size - 7, b"\xc6"
    if body < 0:
        return None
    header = _PLAIN + header + body.to_bytes((1, 2, 4)[header[0] - 0xC4], "big")
    if not records.startswith(header, size):  # the second one
        return None
    is_alike = all(records[place::size] == header[place : place + 1] * count for place in range(len(header)))
    return body if is_alike else None


def _note_alike(size: int, count: int, bytes_max: int, sizes: BodySizes | None) -> None:
    """Make sure that bodies of one size are not over the limit, and note them."""
    if size > bytes_max:
        raise too_large(size, bytes_max)
    if sizes is not None:
        sizes.add(size, count)


def check_count(count: int) -> None:
    """Make sure that a publish may have so many records.

    Raises:
        InvalidRequest: it may not.
    """
    if not 1 <= count <= RECORD_BATCH_RECORDS_MAX:
        raise InvalidRequest(f"a publish carries 1 to {RECORD_BATCH_RECORDS_MAX} records, not {count}")


def _check_sizes(records: bytes, count: int, bytes_max: int) -> None:
    if len(records) <= bytes_max:
        return
    start = 0
    for end in record_ends(records, count):
        if end - start > bytes_max and (size := len(_decode_one(records[start:end])[1])) > bytes_max:
            raise too_large(size, bytes_max)
        start = end


def malformed(records: bytes, count: int, error: Exception, shape: str = "[properties | nil, body]") -> InvalidRequest:
    """The error for bytes that are not `count` records."""
    return InvalidRequest(f"{len(records)} bytes are no {count} records {shape}: {error}")


def too_large_text(size: int, bytes_max: int) -> str:
    """RabbitMQ's text for a message whose body is over the limit."""
    configured = "" if bytes_max == MESSAGE_BYTES_HIGHEST else "configured "
    return f"message size {size} is larger than {configured}max size {bytes_max}"


def too_large(size: int, bytes_max: int) -> ContentTooLarge:
    """The error for a message whose body is over the limit."""
    return ContentTooLarge(f"{too_large_text(size, bytes_max)} (--message-size-max of the broker)")


def check(
    records: bytes, count: int, bytes_max: int = MESSAGE_BYTES_MAX, sizes: BodySizes | None = None
) -> list[Record] | None:
    """Make sure that a publisher's bytes are `count` well-formed records, so that no other process has to check them.

    Decoding is the cheapest full check: 50 ns a record without properties. (It takes 70 with the decoder for all
    records; skipping with msgpack takes as long, and does not look at types.) A large record that comes alone is not
    copied.

    Args:
        records: the bytes.
        count: how many records they should be.
        bytes_max: the largest body, in bytes.
        sizes: where those of bodies are noted; None for nowhere.

    Returns:
        The records, if one has properties; None if none has.

    Raises:
        InvalidRequest: the bytes are not `count` records.
        ContentTooLarge: a body, or the properties of a message or of all of them, are over the limit.
    """
    check_count(count)
    if count == 1 and len(records) > ALONE_BYTES:
        return _check_large(records, bytes_max, sizes)
    size = alike_size(records, count) if count >= ALIKE_MIN else None
    if size is not None:
        _note_alike(size, count, bytes_max, sizes)
        return None
    decoded, found = None, list[int]()
    if not records.startswith(_PLAIN):
        decoded = _unpack_checked(records, count)
    else:
        try:
            found = [len(body) for _, body in _decode_plain(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))]
        except msgspec.DecodeError:
            decoded = _unpack_checked(records, count)
    _check_sizes(records, count, bytes_max)
    if sizes is not None:
        sizes.noted += found if decoded is None else [len(record.body) for record in decoded]
    return decoded


def _check_large(records: bytes, bytes_max: int, sizes: BodySizes | None) -> list[Record] | None:
    """Check one record without a copy; the body of the record it returns is a view of `records`."""
    try:
        packed, body = _decode_one(records)
        size = len(packed)
        if size > PROPERTIES_BYTES_MAX:
            raise ContentTooLarge(f"a message with {size} bytes of properties; the limit is {PROPERTIES_BYTES_MAX}")
        properties = _decode_properties(packed)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(records, 1, error) from error
    if len(body) > bytes_max:
        raise too_large(len(body), bytes_max)
    if sizes is not None:
        sizes.noted.append(len(body))
    return None if properties is None else [Record(properties, cast(bytes, body))]
