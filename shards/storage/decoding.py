"""Decoders of a shard's small rows, whose checksums were found to be right."""

from typing import Final

import msgspec

from shardmq.runtime.clock import ClockNote
from shardmq.shards.storage.entries import CursorRow, Reservation, Sealed, common_settings
from shardmq.shards.storage.identity import StoreIdentity
from shardmq.shards.storage.schema import NUMBER, PLACE, number_of
from shardmq.topology.entities import Queue as Declared

decode_identity: Final = msgspec.msgpack.Decoder(StoreIdentity).decode
decode_note: Final = msgspec.msgpack.Decoder(ClockNote).decode
_decode_queue: Final = msgspec.msgpack.Decoder(Declared).decode
decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_sealed: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_attempts: Final = msgspec.msgpack.Decoder(list[int]).decode
_decode_reservation: Final = msgspec.msgpack.Decoder(Reservation).decode
_decode_cursor: Final = msgspec.msgpack.Decoder(CursorRow).decode
_decode_damage: Final = msgspec.msgpack.Decoder(tuple[str, bytes, str]).decode


def declaration_of(_: bytes, content: bytes) -> Declared:
    """Decode a queue's declaration."""
    return _decode_queue(content)


def mark_of(key: bytes, content: bytes) -> tuple[tuple[int, int], int]:
    """Decode a mark: ((queue, subqueue), mark)."""
    return (number_of(key[:8]), number_of(key[8:])), number_of(content)


def producer_of(key: bytes, content: bytes) -> tuple[int, int, list[tuple[int, int]]]:
    """Decode the sequence numbers that a queue has of a producer: (queue, producer, ranges)."""
    queue, producer = PLACE.unpack(key)
    return queue, producer, decode_ranges(content)


def reservation_of(_: bytes, content: bytes) -> Reservation:
    """Decode a reservation."""
    return _decode_reservation(content)


def cursor_of(key: bytes, content: bytes) -> tuple[int, str, CursorRow]:
    """Decode a group's cursor: (queue, group, cursor)."""
    row = _decode_cursor(content)
    if row.settings is not None:
        row.settings = common_settings(row.settings)
    return number_of(key[: NUMBER.size]), key[NUMBER.size :].decode(), row


def sealed_of(key: bytes, content: bytes) -> tuple[tuple[int, int], Sealed]:
    """Decode a sealed attempt: ((transaction, attempt), what it has)."""
    transaction, attempt = PLACE.unpack(key)
    return (transaction, attempt), Sealed._make(_decode_sealed(content))


def concluding_of(key: bytes, content: bytes) -> tuple[int, list[int]]:
    """Decode a decided transaction, and its attempts that count."""
    return number_of(key), _decode_attempts(content)


def damage_of(content: bytes) -> tuple[str, bytes, str]:
    """Decode the note of a damaged row: database, key, what is wrong."""
    return _decode_damage(content)
