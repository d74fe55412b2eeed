"""The part of the native protocol that Spark's processes speak (SPEC.md has it to the byte), with msgpack alone.

An executor has what one zip brings, and no compiled extension. So operations are plain lists here, where the broker
and the SDK have typed structs. A test compares numbers and fields with theirs.
"""

from enum import IntEnum
from struct import Struct
from typing import Any, Final

import msgpack

from shardmq.errors import ProtocolError, ReplyCode

PROTOCOL_VERSION: Final = 1

HEADER: Final = Struct(">II")
"""Type, and length of the payload."""

Buffer = bytes | memoryview


class Op(IntEnum):
    """Type numbers of the operations that are sent or received."""

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
    TOPOLOGY_LIST = 26
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
    TOPIC_PULL = 60
    GROUP_COMMIT = 61
    GROUP_OFFSETS = 62
    QUEUE_PLACES = 93


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
    Op.TOPOLOGY_LIST: ("request", "channel", "noun"),
    Op.BASIC_RETURN: ("channel", "request", "code", "text", "exchange", "routing_key", "flags", "count", "records"),
    Op.CONNECTION_BLOCKED: ("reason",),
    Op.CONNECTION_UNBLOCKED: (),
    Op.TRANSACTION_BEGIN: ("request", "channel", "transaction", "timeout_ms", "number"),
    Op.TRANSACTION_SEAL: ("request", "channel", "number", "attempt"),
    Op.TRANSACTION_COMMIT: ("request", "channel", "transaction", "number", "attempts"),
    Op.TRANSACTION_ABORT: ("request", "channel", "transaction", "number"),
    Op.QUEUE_SLICES: ("request", "channel", "queue", "count", "reservation"),
    Op.QUEUE_READ: ("request", "channel", "queue", "first", "end", "count", "reservation"),
    Op.QUEUE_RESERVE: ("request", "channel", "queue", "reservation", "messages_max", "lease_ms", "ranges", "again"),
    Op.RESERVATION_END: ("request", "channel", "queue", "reservation", "acknowledge", "ranges"),
    Op.TOPIC_PULL: (
        "request",
        "channel",
        "topic",
        "partition",
        "begin",
        "number",
        "count",
        "bytes_max",
        "wait_ms",
        "tags",
        "has_untagged",
    ),
    Op.GROUP_COMMIT: ("request", "channel", "topic", "group", "offsets"),
    Op.GROUP_OFFSETS: ("request", "channel", "topic", "group"),
    Op.QUEUE_PLACES: ("request", "channel", "queue"),
}
"""The fields of each operation in their order on the wire. All of them are sent.

A publish has one more, its growth. Messages of a transaction do without it: for them, topics have the partitions that
they had when it began."""

_PUBLISH_FIELDS: Final = bytes([0x90 | len(FIELDS[Op.BASIC_PUBLISH])])
_RECORDS: Final = FIELDS[Op.BASIC_PUBLISH].index("records")


def encode(operation: Op, *values: object) -> bytes:
    """Encode the frame of an operation.

    Args:
        operation: which one.
        values: all of its fields, in their order.
    """
    assert len(values) == len(FIELDS[operation]), f"{operation.name} has the fields {FIELDS[operation]}"
    payload: bytes = msgpack.packb(values)
    return HEADER.pack(operation, len(payload)) + payload


def encode_publish(*values: Any) -> list[Buffer]:
    """Encode the frame of a BASIC_PUBLISH in pieces. One of them is `records`, which is sent without a copy.

    Args:
        values: all of its fields, in their order.
    """
    assert len(values) == len(FIELDS[Op.BASIC_PUBLISH]), f"BASIC_PUBLISH has the fields {FIELDS[Op.BASIC_PUBLISH]}"
    records: Buffer = values[_RECORDS]
    size = len(records)
    head = msgpack.packb(values[:_RECORDS])
    tail = msgpack.packb(values[_RECORDS + 1 :])
    if size < 1 << 8:
        binary = bytes((0xC4, size))
    elif size < 1 << 16:
        binary = b"\xc5" + size.to_bytes(2, "big")
    else:
        binary = b"\xc6" + size.to_bytes(4, "big")
    # Head and tail begin with an array header of one byte, which the header of all fields replaces.
    total = len(head) + len(binary) + size + len(tail) - 1
    front = b"".join((HEADER.pack(Op.BASIC_PUBLISH, total), _PUBLISH_FIELDS, head[1:], binary))
    return [front, records, tail[1:]]


def decode(kind: int, payload: memoryview) -> tuple[Op, list[Any]]:
    """Decode a frame from the broker.

    Args:
        kind: the frame's type.
        payload: its bytes.

    Returns:
        The operation, and its fields in their order.

    Raises:
        ProtocolError: the frame is malformed, or of a type that Spark's side does not receive.
    """
    try:
        operation = Op(kind)
        values = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as fault:
        raise ProtocolError(
            f"the broker sent a frame of type {kind} that cannot be read: {fault}", ReplyCode.SYNTAX_ERROR
        ) from fault
    if type(values) is not list or len(values) != len(FIELDS[operation]):
        raise ProtocolError(
            f"the broker sent {operation.name} with other fields than {FIELDS[operation]}", ReplyCode.SYNTAX_ERROR
        )
    return operation, values
