"""Records that have routing keys of their own: writing, reading, checking and taking them apart.

A batch with the flag KEYED holds messages of one exchange with different routing keys, msgpack `[properties | nil,
body, key]`, or with the flag AMQP `[list as bin, body as bin, key]`:

    93 c0 c4 03 'a' 'b' 'c' a2 'k' '1'   93 81 .. .. c4 01 'd' a2 'k' '2'   …
    └ [nil, b'abc', 'k1'] ────────────┘   └ [{…}, b'd', 'k2'] ─────────┘

The key lies in the record, so joining batches is concatenation, and cutting one skips over records, as ever. Who reads
messages takes them apart by `contents`, or gets batches with one key each by `runs`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec

from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX, PROPERTIES_BYTES_MAX, RECORD_BATCH_PROPERTIES_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.message.record import (
    BodySizes,
    Record,
    check_count,
    deeper,
    extension,
    malformed,
    pieces,
    too_large,
    unpack_apart,
    unpack_raw,
)
from shardmq.message.record_batch import AMQP, KEYED, RecordBatch


class KeyedRecord(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """One message, decoded, with its key."""

    properties: Properties | None
    body: bytes
    key: str


Content = tuple[Properties | msgspec.Raw | bytes | None, bytes, str]
"""Properties, body and routing key of a message."""

_encode = msgspec.msgpack.Encoder().encode
_decode_records = msgspec.msgpack.Decoder(list[KeyedRecord], ext_hook=extension).decode
_decode_plain = msgspec.msgpack.Decoder(list[tuple[None, bytes, str]]).decode
_decode_apart = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, bytes, str]]).decode
_decode_lists = msgspec.msgpack.Decoder(list[tuple[bytes, bytes, str]]).decode
_decode_one = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw, str]).decode
_decode_pair = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_decode_raw = msgspec.msgpack.Decoder(list[tuple[msgspec.Raw, msgspec.Raw, msgspec.Raw]]).decode
_PLAIN: Final = b"\x93\xc0"
"""How a record without properties begins."""

_SHAPE: Final = "[properties | nil, body, key]"
_HEADER: Final = b"\x93"
_HEADER_WITHOUT: Final = b"\x92"

_SHORT_KEY: Final = NAME_BYTES_MAX // 4
"""A key of so many characters is short enough, whatever they are."""

_ARRAY_HEADER_BYTES: Final = {0xDC: 3, 0xDD: 5}


def pack(contents: Sequence[Content]) -> bytes:
    """Encode messages as records, back to back. `pack_properties` has to encode decimals in properties before."""
    array = _encode(contents)
    return array[_ARRAY_HEADER_BYTES.get(array[0], 1) :]


def packed_key(key: str) -> bytes:
    """A key as it lies behind a record's body."""
    return _encode(key)


def with_packed_key(record: bytes, key: bytes) -> bytes:
    """A record of a gateway's own without a key, with that key."""
    return b"%b%b%b" % (_HEADER, record[1:], key)


def with_key(record: bytes, key: str) -> bytes:
    """A record without a key, with that key."""
    return b"%b%b%b" % (_HEADER, _inside(record), _encode(key))


def with_keys(records: bytes, count: int, key: str) -> bytes:
    """Records without keys, each with that key."""
    behind = _encode(key)
    return b"".join([b"%b%b%b" % (_HEADER, _inside(bytes(piece)), behind) for piece in pieces(records, count)])


def _inside(record: bytes) -> bytes:
    """What is behind a record's array header, which has one byte unless the publisher's encoder is odd."""
    if record.startswith(_HEADER_WITHOUT):
        return record[1:]
    first, second = _decode_pair(record)
    return b"%b%b" % (first, second)


def without_keys(records: bytes, count: int) -> list[bytes]:
    """Each of some records with keys, without its key."""
    array = b"\xdd%b%b" % (count.to_bytes(4, "big"), records)
    with deeper():
        return [b"%b%b%b" % (_HEADER_WITHOUT, first, second) for first, second, _ in _decode_raw(array)]


def apart(record: bytes) -> tuple[bytes, str]:
    """A single record, checked or not, without its key, and the key; a large body is copied once.

    Raises:
        InvalidRequest: that is no record with a key.
    """
    try:
        first, second, key = _decode_one(record)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(record, 1, error, _SHAPE) from error
    _checked_keys([key])
    return b"%b%b%b" % (_HEADER_WITHOUT, first, second), key


def check(
    records: bytes, count: int, bytes_max: int = MESSAGE_BYTES_MAX, sizes: BodySizes | None = None
) -> tuple[list[str], list[Record] | None]:
    """Make sure that a publisher's bytes are `count` well-formed records with keys.

    Args:
        records: the bytes.
        count: how many records they should be.
        bytes_max: the largest body, in bytes.
        sizes: where those of bodies are noted; None for nowhere.

    Returns:
        The keys; and the messages decoded, where one has properties.

    Raises:
        InvalidRequest: the bytes are not `count` records, or a key is too long.
        ContentTooLarge: a body, or the properties of a message or of all of them, are over the limit.
    """
    check_count(count)
    array = b"\xdd%b%b" % (count.to_bytes(4, "big"), records)
    if records.startswith(_PLAIN):
        try:
            plain = _decode_plain(array)
        except msgspec.DecodeError:
            pass  # one has properties, or they are malformed
        else:
            _check_bodies([len(body) for _, body, _ in plain], bytes_max, sizes)
            return _checked_keys([key for _, _, key in plain]), None
    if len(records) > PROPERTIES_BYTES_MAX:
        _check_properties(records, count)
    try:
        decoded = _decode_records(array)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(records, count, error, _SHAPE) from error
    _check_bodies([len(record.body) for record in decoded], bytes_max, sizes)
    keys = _checked_keys([record.key for record in decoded])
    return keys, [Record(record.properties, record.body) for record in decoded]


def is_plain(records: bytes, count: int) -> bool:
    """Whether these are `count` well-formed records without properties."""
    try:
        _decode_plain(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))
    except (msgspec.DecodeError, OverflowError):
        return False
    return True


def properties_bytes(records: bytes, count: int) -> int:
    """The size of the properties of all records, checked or not, in bytes.

    Raises:
        InvalidRequest: these bytes are not `count` records.
    """
    return sum(_properties_sizes(records, count))


def _properties_sizes(records: bytes, count: int) -> list[int]:
    array = b"\xdd%b%b" % (count.to_bytes(4, "big"), records)
    try:
        return [len(properties) for properties, _, _ in _decode_raw(array)]
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(records, count, error, _SHAPE) from error


def _check_bodies(found: list[int], bytes_max: int, sizes: BodySizes | None) -> None:
    longest = max(found)
    if longest > bytes_max:
        raise too_large(longest, bytes_max)
    if sizes is not None:
        sizes.noted += found


def _checked_keys(keys: list[str]) -> list[str]:
    if max(map(len, keys)) > _SHORT_KEY:
        for key in keys:
            if len(key.encode()) > NAME_BYTES_MAX:
                raise InvalidRequest(f"routing key '{key[:32]}…' of a message is over {NAME_BYTES_MAX} bytes")
    return keys


def _check_properties(records: bytes, count: int) -> None:
    """Make sure that the properties may be decoded, which takes up to 70 times their size in memory."""
    sizes = _properties_sizes(records, count)
    if max(sizes) > PROPERTIES_BYTES_MAX:
        raise ContentTooLarge(f"a message with {max(sizes)} bytes of properties; the limit is {PROPERTIES_BYTES_MAX}")
    if sum(sizes) > RECORD_BATCH_PROPERTIES_BYTES_MAX:
        raise ContentTooLarge(
            f"a publish with {sum(sizes)} bytes of properties; the limit is "
            f"{RECORD_BATCH_PROPERTIES_BYTES_MAX}: publish fewer messages at a time"
        )


def unpack(records: bytes, count: int) -> list[KeyedRecord]:
    """Decode `count` records that were checked when they came in.

    Raises:
        InvalidRequest: these bytes are not `count` records.
    """
    try:
        return _decode_records(b"\xdd%b%b" % (count.to_bytes(4, "big"), records))
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise malformed(records, count, error, _SHAPE) from error


def contents(batch: RecordBatch) -> tuple[list[bytes], list[bytes], list[str]]:
    """Take the records of a batch with keys apart: first halves (property lists with the flag AMQP), bodies, keys."""
    array = b"\xdd%b%b" % (batch.count.to_bytes(4, "big"), batch.records)
    if batch.flags & AMQP:
        lists, bodies, keys = zip(*_decode_lists(array), strict=True)
        return [*lists], [*bodies], [*keys]
    with deeper():
        packed, bodies, keys = zip(*_decode_apart(array), strict=True)
    return [bytes(each) for each in packed], [*bodies], [*keys]


def properties_of(batch: RecordBatch) -> list[bytes]:
    """The first half of each record of a batch, with keys or without: its property list with the flag AMQP."""
    if batch.flags & KEYED:
        return contents(batch)[0]
    if batch.flags & AMQP:
        return [raw for raw, _ in unpack_raw(batch.records, batch.count)]
    return [bytes(packed) for packed, _ in unpack_apart(batch.records, batch.count)]


def keys_of(batch: RecordBatch) -> list[str]:
    """The routing key of each message of a batch."""
    return contents(batch)[2] if batch.flags & KEYED else [batch.routing_key] * batch.count


def runs(batch: RecordBatch) -> Iterator[RecordBatch]:
    """The messages of a batch as batches with one key each, in order: neighbours with the same key together."""
    if not batch.flags & KEYED:
        yield batch
        return
    members = zip(keys_of(batch), without_keys(batch.records, batch.count), strict=True)
    place = 0
    for key, run in groupby(members, key=itemgetter(0)):
        records = [record for _, record in run]
        yield RecordBatch(
            batch.exchange,
            key,
            batch.flags & ~KEYED,
            batch.timestamp_ms,
            batch.origin,
            batch.serial + place,
            len(records),
            b"".join(records),
            batch.priority,
            batch.ttl_ms,
        )
        place += len(records)


def unkeyed(batch: RecordBatch) -> RecordBatch:
    """A batch of messages that all have the same key, as one without keys in its records."""
    if not batch.flags & KEYED:
        return batch
    (found,) = runs(batch)
    return found
