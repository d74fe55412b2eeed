"""The operations of the native protocol: what each frame's payload is, as a table of typed values. No I/O.

A payload is the msgpack array of an operation's fields in the order they stand here. SPEC.md says the same to the byte.
`request` numbers a client's requests, rising by at least one each on a connection; `channel` 0 is the connection.
"""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import CHANNELS_MAX, NAME_BYTES_MAX, PREFETCH_MAX, RUN_RECORDS_MAX
from shardmq.wire.frames import HEADER

PROTOCOL_VERSION: Final = 1

Request = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Channel = Annotated[int, Meta(ge=0, le=CHANNELS_MAX)]
Tag = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Arguments = dict[str, Any]
Ranges = list[tuple[Tag, Tag]]
"""Inclusive ranges [first, last], as delivery tags or request numbers."""


class Operation(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One frame's meaning."""


# --- the connection ---------------------------------------------------------------------------------------------


class ConnectionOpen(Operation, frozen=True):
    """First frame of a client. `heartbeat` in seconds, 0 for none. Answered by Ok with the server's properties:
    `{"product", "version", "protocol", "heartbeat", "frame_max", "channel_max"}`."""

    request: Request
    version: int
    user: str
    password: str
    vhost: str
    heartbeat: Annotated[int, Meta(ge=0, le=65_535)]
    client: Arguments = {}


class ConnectionClose(Operation, frozen=True):
    """Last frame of either side; from the server with the reason. Answered by closing the socket, once all is sent."""

    code: int
    text: str


class Heartbeat(Operation, frozen=True):
    """A sign of life; any other frame is one as well."""


class Ok(Operation, frozen=True):
    """A request was carried out. `result` depends on the request; nil where there is nothing to say."""

    request: Request
    channel: Channel
    result: Any = None


class Refused(Operation, frozen=True):
    """A request was not carried out; nothing else changed."""

    request: Request
    channel: Channel
    code: int
    text: str


# --- channels -------------------------------------------------------------------------------------------------------


class ChannelOpen(Operation, frozen=True):
    """Opens channel 1 to CHANNELS_MAX. Answered by Ok."""

    request: Request
    channel: Channel


class ChannelClose(Operation, frozen=True):
    """From the client: answered by Ok; what is unacked on it returns to its queues. From the server (request 0): the
    channel is gone, and why; the client need not answer."""

    request: Request
    channel: Channel
    code: int = 0
    text: str = ""


# --- topology -------------------------------------------------------------------------------------------------------


class ExchangeDeclare(Operation, frozen=True):
    """Answered by Ok."""

    request: Request
    channel: Channel
    exchange: Name
    type: Name
    durable: bool = False
    arguments: Arguments = {}


class ExchangeDelete(Operation, frozen=True):
    """Answered by Ok; its bindings go with it."""

    request: Request
    channel: Channel
    exchange: Name


class QueueDeclare(Operation, frozen=True):
    """Answered by Ok: `{"queue", "messages", "consumers"}`, messages being those ready."""

    request: Request
    channel: Channel
    queue: Name
    durable: bool = False
    arguments: Arguments = {}


class QueueDelete(Operation, frozen=True):
    """Answered by Ok: `{"messages"}` that went with it; its bindings go too, its consumers are cancelled."""

    request: Request
    channel: Channel
    queue: Name


class QueueBind(Operation, frozen=True):
    """Answered by Ok; binding twice is the same as once."""

    request: Request
    channel: Channel
    queue: Name
    exchange: Name
    routing_key: Name
    arguments: Arguments = {}


class QueueUnbind(Operation, frozen=True):
    """Answered by Ok, also when there was no such binding."""

    request: Request
    channel: Channel
    queue: Name
    exchange: Name
    routing_key: Name
    arguments: Arguments = {}


class QueuePurge(Operation, frozen=True):
    """Removes what is ready. Answered by Ok: `{"messages"}`."""

    request: Request
    channel: Channel
    queue: Name


class TopologyList(Operation, frozen=True):
    """What there is in the connection's virtual host. `noun` is "exchanges", "queues" or "bindings"; Ok's result is a
    list of tables."""

    request: Request
    channel: Channel
    noun: Name


class StatusGet(Operation, frozen=True):
    """Ok: the state of every process and queue, as `shardmq status` shows it."""

    request: Request
    channel: Channel


# --- publishing -----------------------------------------------------------------------------------------------------


class BasicPublish(Operation, frozen=True):
    """A run of `count` records to one exchange with one key. Never answered by Ok: confirmed by BasicConfirm or
    refused by BasicRefused, in any order."""

    request: Request
    channel: Channel
    exchange: Name
    routing_key: Name
    flags: Annotated[int, Meta(ge=0, le=1)]
    count: Annotated[int, Meta(ge=1, le=RUN_RECORDS_MAX)]
    records: bytes


class BasicConfirm(Operation, frozen=True):
    """Every message of these publishes is in every queue it was routed to, on disk where it is to be durable."""

    channel: Channel
    requests: Ranges


class BasicRefused(Operation, frozen=True):
    """These publishes were not taken, or not by all queues they were routed to."""

    channel: Channel
    requests: Ranges
    code: int
    text: str


# --- consuming ------------------------------------------------------------------------------------------------------


class BasicConsume(Operation, frozen=True):
    """Ok: `{"consumer"}`, its tag, made up by the server when "" was given. `prefetch` 0 is no limit."""

    request: Request
    channel: Channel
    queue: Name
    consumer: Name = ""
    auto_ack: bool = False
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)] = 0
    arguments: Arguments = {}


class BasicCancel(Operation, frozen=True):
    """No more deliveries after the Ok. What is unacked stays so until it is acked or the channel closes."""

    request: Request
    channel: Channel
    consumer: Name


class BasicCancelled(Operation, frozen=True):
    """From the server: the consumer's queue is gone."""

    channel: Channel
    consumer: Name


class BasicDeliver(Operation, frozen=True):
    """`count` messages for a consumer; message i has delivery tag `tag + i` and id (`origin`, `serial + i`)."""

    channel: Channel
    consumer: Name
    tag: Tag
    redelivered: bool
    exchange: Name
    routing_key: Name
    flags: int
    timestamp_ms: int
    origin: int
    serial: int
    count: int
    records: bytes


class BasicGet(Operation, frozen=True):
    """Ok: nil when the queue is empty, else the fields of a BasicDeliver (consumer "") and `messages` still ready."""

    request: Request
    channel: Channel
    queue: Name
    auto_ack: bool = False


class BasicAck(Operation, frozen=True):
    """These deliveries are done with."""

    channel: Channel
    tags: Ranges


class BasicNack(Operation, frozen=True):
    """These deliveries are not: back to their place in the queue with `requeue`, else dropped."""

    channel: Channel
    tags: Ranges
    requeue: bool = True


class BasicQos(Operation, frozen=True):
    """A consumer's prefetch, changed while it runs. Answered by Ok."""

    request: Request
    channel: Channel
    consumer: Name
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)]


OPERATIONS: Final[dict[int, type[Operation]]] = {
    1: ChannelOpen,
    2: ChannelClose,
    3: ExchangeDeclare,
    4: ExchangeDelete,
    5: QueueDeclare,
    6: QueueDelete,
    7: QueueBind,
    8: QueueUnbind,
    9: BasicPublish,
    10: BasicConsume,
    11: BasicAck,
    12: BasicDeliver,
    13: ConnectionOpen,
    14: ConnectionClose,
    15: Heartbeat,
    16: Ok,
    17: Refused,
    18: BasicConfirm,
    19: BasicRefused,
    20: BasicCancel,
    21: BasicCancelled,
    22: BasicGet,
    23: BasicNack,
    24: BasicQos,
    25: QueuePurge,
    26: TopologyList,
    27: StatusGet,
}
"""Type numbers; 1 to 12 are the design's. A number once given keeps its meaning."""

TYPES: Final = {operation: number for number, operation in OPERATIONS.items()}

FROM_SERVER: Final[frozenset[type[Operation]]] = frozenset(
    {BasicDeliver, ConnectionClose, Heartbeat, Ok, Refused, BasicConfirm, BasicRefused, BasicCancelled, ChannelClose}
)
FROM_CLIENT: Final[frozenset[type[Operation]]] = frozenset(OPERATIONS.values()) - (
    FROM_SERVER - {ConnectionClose, Heartbeat, ChannelClose}
)

_DECODERS: Final = {
    number: msgspec.msgpack.Decoder(operation).decode for number, operation in OPERATIONS.items()
}
_pack = msgspec.msgpack.Encoder().encode


def encode(operation: Operation) -> bytes:
    """The frame of an operation."""
    payload = _pack(operation)
    return HEADER.pack(TYPES[type(operation)], len(payload)) + payload


def decode(kind: int, payload: memoryview | bytes, senders: frozenset[type[Operation]]) -> Operation:
    """What a frame says.

    Args:
        kind: the frame's type.
        payload: its payload; copied from, not kept.
        senders: what the peer may send, FROM_CLIENT or FROM_SERVER.

    Raises:
        ProtocolError: COMMAND_INVALID for an unknown type or one that is not the peer's to send, SYNTAX_ERROR for
            a payload that is not that operation's.
    """
    try:
        operation = _DECODERS[kind](payload)
    except KeyError:
        raise ProtocolError(f"frame type {kind} is not known to protocol version {PROTOCOL_VERSION}",
                            ReplyCode.COMMAND_INVALID) from None  # fmt: skip
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as fault:
        raise ProtocolError(f"frame type {kind} ({OPERATIONS[kind].__name__}): {fault}",
                            ReplyCode.SYNTAX_ERROR) from fault  # fmt: skip
    if type(operation) not in senders:
        raise ProtocolError(f"{type(operation).__name__} goes the other way", ReplyCode.COMMAND_INVALID)
    return operation
