"""The part of the native protocol that Spark's processes speak, with msgpack alone (SPEC.md has it to the byte).

An executor has what one zip brings: no compiled extension. So operations are plain lists here, where the broker and the
SDK have typed structs; a test holds numbers and fields to theirs.
"""

from enum import IntEnum
from struct import Struct
from typing import Any, Final

import msgpack

from shardmq.errors import ProtocolError, ReplyCode

PROTOCOL_VERSION: Final = 1

HEADER: Final = Struct(">II")
"""type, length of the payload."""

Buffer = bytes | memoryview


class Op(IntEnum):
    """Type numbers of the operations that are sent or heard."""

    CHANNEL_OPEN = 1
    CHANNEL_CLOSE = 2
    BASIC_PUBLISH = 9
    CONNECTION_OPEN = 13
    CONNECTION_CLOSE = 14
    HEARTBEAT = 15
    OK = 16
    REFUSED = 17
    BASIC_CONFIRM = 18
    BASIC_REFUSED = 19
    BASIC_RETURN = 30
    CONNECTION_BLOCKED = 31
    CONNECTION_UNBLOCKED = 32
    TRANSACTION_BEGIN = 46
    TRANSACTION_SEAL = 47
    TRANSACTION_COMMIT = 48
    TRANSACTION_ABORT = 49
    QUEUE_SLICES = 50
    QUEUE_READ = 51
    QUEUE_RESERVE = 52
    RESERVATION_END = 53


FIELDS: Final[dict[Op, tuple[str, ...]]] = {
    Op.CHANNEL_OPEN: ("request", "channel"),
    Op.CHANNEL_CLOSE: ("request", "channel", "code", "text"),
    Op.BASIC_PUBLISH: (
        "request",
        "channel",
        "exchange",
        "routing_key",
        "flags",
        "count",
        "records",
        "delay_ms",
        "producer",
        "sequence",
        "transaction",
    ),
    Op.CONNECTION_OPEN: ("request", "version", "user", "password", "vhost", "heartbeat", "client"),
    Op.CONNECTION_CLOSE: ("code", "text"),
    Op.HEARTBEAT: (),
    Op.OK: ("request", "channel", "result"),
    Op.REFUSED: ("request", "channel", "code", "text"),
    Op.BASIC_CONFIRM: ("channel", "requests"),
    Op.BASIC_REFUSED: ("channel", "requests", "code", "text", "taken"),
    Op.BASIC_RETURN: ("channel", "request", "code", "text", "exchange", "routing_key", "flags", "count", "records"),
    Op.CONNECTION_BLOCKED: ("reason",),
    Op.CONNECTION_UNBLOCKED: (),
    Op.TRANSACTION_BEGIN: ("request", "channel", "transaction", "timeout_ms", "number"),
    Op.TRANSACTION_SEAL: ("request", "channel", "number", "attempt"),
    Op.TRANSACTION_COMMIT: ("request", "channel", "transaction", "number", "attempts"),
    Op.TRANSACTION_ABORT: ("request", "channel", "transaction", "number"),
    Op.QUEUE_SLICES: ("request", "channel", "queue", "count", "reservation"),
    Op.QUEUE_READ: ("request", "channel", "queue", "first", "end", "count", "reservation"),
    Op.QUEUE_RESERVE: ("request", "channel", "queue", "reservation", "messages_max", "lease_ms"),
    Op.RESERVATION_END: ("request", "channel", "queue", "reservation", "acknowledge", "ranges"),
}
"""Fields in their order on the wire. All of them are sent."""

_PUBLISH_FIELDS: Final = bytes([0x90 | len(FIELDS[Op.BASIC_PUBLISH])])


def encode(operation: Op, *values: object) -> bytes:
    """The frame of an operation.

    Args:
        operation: which.
        values: its fields in their order, all of them.
    """
    assert len(values) == len(FIELDS[operation]), f"{operation.name} has the fields {FIELDS[operation]}"
    payload: bytes = msgpack.packb(values)
    return HEADER.pack(operation, len(payload)) + payload


def encode_publish(
    request: int,
    channel: int,
    exchange: str,
    routing_key: str,
    flags: int,
    count: int,
    records: Buffer,
    delay_ms: int,
    producer: int,
    sequence: int,
    transaction: int,
) -> list[Buffer]:
    """The frame of a BasicPublish in pieces, of which `records` is one: it is sent from where it lies."""
    size = len(records)
    head = msgpack.packb((request, channel, exchange, routing_key, flags, count))
    tail = msgpack.packb((delay_ms, producer, sequence, transaction))
    if size < 1 << 8:
        binary = bytes((0xC4, size))
    elif size < 1 << 16:
        binary = b"\xc5" + size.to_bytes(2, "big")
    else:
        binary = b"\xc6" + size.to_bytes(4, "big")
    # Both begin with the header of an array of their own, one byte, in whose place stands the one of all fields.
    total = len(head) + len(binary) + size + len(tail) - 1
    front = b"".join((HEADER.pack(Op.BASIC_PUBLISH, total), _PUBLISH_FIELDS, head[1:], binary))
    return [front, records, tail[1:]]


def decode(kind: int, payload: memoryview) -> tuple[Op, list[Any]]:
    """What a frame from the broker says: the operation, and its fields in their order.

    Raises:
        ProtocolError: it is none that Spark's side of a connection hears, or malformed.
    """
    try:
        operation = Op(kind)
        values = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as fault:
        raise ProtocolError(
            f"the broker sent a frame of type {kind} that makes no sense here: {fault}", ReplyCode.SYNTAX_ERROR
        ) from fault
    if type(values) is not list or len(values) != len(FIELDS[operation]):
        raise ProtocolError(
            f"the broker sent {operation.name} with other fields than {FIELDS[operation]}", ReplyCode.SYNTAX_ERROR
        )
    return operation, values
