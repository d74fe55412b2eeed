"""What a shard's small rows say, once their checksums are found to be right."""

from typing import Final

import msgspec

from shardmq.runtime.clock import ClockNote
from shardmq.shards.storage.entries import Reservation, Sealed
from shardmq.shards.storage.identity import StoreIdentity
from shardmq.shards.storage.schema import PLACE, number_of
from shardmq.topology.entities import Queue as Declared

decode_identity: Final = msgspec.msgpack.Decoder(StoreIdentity).decode
decode_note: Final = msgspec.msgpack.Decoder(ClockNote).decode
_decode_queue: Final = msgspec.msgpack.Decoder(Declared).decode
decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_sealed: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_attempts: Final = msgspec.msgpack.Decoder(list[int]).decode
_decode_reservation: Final = msgspec.msgpack.Decoder(Reservation).decode
_decode_damage: Final = msgspec.msgpack.Decoder(tuple[str, bytes, str]).decode


def declaration_of(_: bytes, content: bytes) -> Declared:
    """A queue."""
    return _decode_queue(content)


def mark_of(key: bytes, content: bytes) -> tuple[tuple[int, int], int]:
    """Of which queue and subqueue, and the mark."""
    return (number_of(key[:8]), number_of(key[8:])), number_of(content)


def producer_of(key: bytes, content: bytes) -> tuple[int, int, list[tuple[int, int]]]:
    """Which numbers a queue has of a producer."""
    queue, producer = PLACE.unpack(key)
    return queue, producer, decode_ranges(content)


def reservation_of(_: bytes, content: bytes) -> Reservation:
    """A reservation."""
    return _decode_reservation(content)


def sealed_of(key: bytes, content: bytes) -> tuple[tuple[int, int], Sealed]:
    """Of which transaction and attempt, and what it has."""
    transaction, attempt = PLACE.unpack(key)
    return (transaction, attempt), Sealed._make(_decode_sealed(content))


def concluding_of(key: bytes, content: bytes) -> tuple[int, list[int]]:
    """A transaction, and its attempts that count."""
    return number_of(key), _decode_attempts(content)


def damage_of(content: bytes) -> tuple[str, bytes, str]:
    """Database and key of a damaged row, and what is wrong with it."""
    return _decode_damage(content)
