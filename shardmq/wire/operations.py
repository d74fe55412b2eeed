"""The operations of the native protocol: what each frame's payload is, as a table of typed values. No I/O.

A payload is the msgpack array of an operation's fields in the order they stand here. SPEC.md says the same to the byte.
`request` numbers a client's requests, rising by at least one each on a connection; `channel` 0 is the connection.
"""

# ruff: noqa: RUF012 - structs copy their empty defaults; ruff does not see that operations are structs

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import DELAY_MS_MAX, PREFETCH_MAX, RUN_RECORDS_MAX
from shardmq.wire.administration import (
    BackupBegin,
    BackupLook,
    ConnectionExpel,
    DefinitionsExport,
    DefinitionsImport,
    LimitsPut,
    PermissionDelete,
    PermissionPut,
    UserDelete,
    UserPut,
    VhostDelete,
    VhostPut,
)
from shardmq.wire.fields import Arguments, Channel, Name, Request, Tag
from shardmq.wire.fields import Operation as Operation  # noqa: PLC0414 - whoever uses operations finds these two here
from shardmq.wire.fields import Ranges as Ranges  # noqa: PLC0414
from shardmq.wire.frames import HEADER
from shardmq.wire.snapshots import QueueRead, QueueReserve, QueueSlices, ReservationEnd
from shardmq.wire.transactions import TransactionAbort, TransactionBegin, TransactionCommit, TransactionSeal

PROTOCOL_VERSION: Final = 1

# --- the connection ---------------------------------------------------------------------------------------------


class ConnectionOpen(Operation, frozen=True):
    """First frame of a client. `heartbeat` in seconds, 0 for none. Without user and password (both ""), the client is
    the user that is the common name of the certificate it has shown. Answered by Ok with the server's properties:
    `{"product", "version", "protocol", "heartbeat", "frame_max", "channel_max", "message_max"}`: a publish may have
    `frame_max` bytes, the body of a message `message_max`."""

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
    """Answered by Ok. `passive` only asks whether it is there. With `auto_delete` it goes with its last binding; to an
    `internal` one only other exchanges publish."""

    request: Request
    channel: Channel
    exchange: Name
    type: Name
    durable: bool = False
    arguments: Arguments = {}
    auto_delete: bool = False
    internal: bool = False
    passive: bool = False


class ExchangeDelete(Operation, frozen=True):
    """Answered by Ok; its bindings go with it. With `if_unused` refused (406) where something is bound to it."""

    request: Request
    channel: Channel
    exchange: Name
    if_unused: bool = False


class QueueDeclare(Operation, frozen=True):
    """Answered by Ok: `{"queue", "messages", "consumers"}`, messages being those ready.

    The server makes up a name for "". `passive` only asks. An `exclusive` queue is this connection's alone (405 for
    others) and goes with it; with `auto_delete` it goes with its last consumer."""

    request: Request
    channel: Channel
    queue: Name
    durable: bool = False
    arguments: Arguments = {}
    exclusive: bool = False
    auto_delete: bool = False
    passive: bool = False


class QueueDelete(Operation, frozen=True):
    """Answered by Ok: `{"messages"}` that went with it; its bindings go too, its consumers are cancelled.

    Refused (406) with `if_unused` where it has consumers, with `if_empty` where it has ready messages."""

    request: Request
    channel: Channel
    queue: Name
    if_unused: bool = False
    if_empty: bool = False


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


class ExchangeBind(Operation, frozen=True):
    """`destination` gets what is published to `source` with a matching key; twice is as once. Answered by Ok."""

    request: Request
    channel: Channel
    destination: Name
    source: Name
    routing_key: Name
    arguments: Arguments = {}


class ExchangeUnbind(Operation, frozen=True):
    """Answered by Ok, also when there was no such binding."""

    request: Request
    channel: Channel
    destination: Name
    source: Name
    routing_key: Name
    arguments: Arguments = {}


class QueuePeek(Operation, frozen=True):
    """Looks at ready messages and leaves all as it is, `offset` behind the head. Answered by Ok: a list of tables
    with the fields of BasicDeliver (consumer "", tag 0); fewer than `count` messages where there are no more, or where
    they are large."""

    request: Request
    channel: Channel
    queue: Name
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    count: Annotated[int, Meta(ge=1, le=RUN_RECORDS_MAX)]


class TopologyList(Operation, frozen=True):
    """What there is. `noun` is "exchanges", "queues", "bindings", "transactions", "permissions" of the connection's
    virtual host, or "vhosts", "users", "connections", "channels", "consumers" of those the user may see. Ok's result is
    a list of tables."""

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
    refused by BasicRefused, in any order.

    `flags`: 1 persistent, 2 mandatory (what no queue takes comes back by BasicReturn, before the confirm). With
    `delay_ms` they join their queues so much later. `producer` and `sequence` make resending harmless: message i is
    number `sequence + i` of that producer, and a queue takes each number once; 0 is none. Sequences of a producer rise.

    With a `transaction`, the number that TransactionBegin gave, they are staged there for the attempt that `producer`
    then names: confirmed when they are on disk, in no queue before the transaction is committed.
    """

    request: Annotated[int, Meta(ge=1, le=2**63 - 1)]  # ranges of requests in answers begin at 1
    channel: Channel
    exchange: Name
    routing_key: Name
    flags: Annotated[int, Meta(ge=0, le=3)]
    count: Annotated[int, Meta(ge=1, le=RUN_RECORDS_MAX)]
    records: bytes
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0
    producer: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    transaction: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class BasicReturn(Operation, frozen=True):
    """Mandatory messages of publish `request` that no queue took (code 312). The publish is confirmed behind it."""

    channel: Channel
    request: int
    code: int
    text: str
    exchange: str
    routing_key: str
    flags: int
    count: int
    records: bytes


class ConnectionBlocked(Operation, frozen=True):
    """The broker runs short of something: publishes are held until ConnectionUnblocked. Everything else goes on."""

    reason: str


class ConnectionUnblocked(Operation, frozen=True):
    """Publishes are taken again."""


class BasicConfirm(Operation, frozen=True):
    """Every message of these publishes is in every queue it was routed to, on disk where it is to be durable."""

    channel: Channel
    requests: Ranges


class BasicRefused(Operation, frozen=True):
    """These publishes were not taken, or not by all queues they were routed to; but for the first `taken` messages of
    the one publish it then is about."""

    channel: Channel
    requests: Ranges
    code: int
    text: str
    taken: int = 0


# --- consuming ------------------------------------------------------------------------------------------------------


class BasicConsume(Operation, frozen=True):
    """Ok: `{"consumer"}`, its tag, made up by the server when "" was given. `prefetch` 0 is no limit.

    `arguments` may have `x-priority` (int) and `x-consumer-timeout` (ms). An `exclusive` one is alone on its queue,
    or refused (403)."""

    request: Request
    channel: Channel
    queue: Name
    consumer: Name = ""
    auto_ack: bool = False
    prefetch: Annotated[int, Meta(ge=0, le=PREFETCH_MAX)] = 0
    arguments: Arguments = {}
    exclusive: bool = False


class BasicCancel(Operation, frozen=True):
    """No more deliveries after the Ok. What is unacked stays so until it is acked or the channel closes."""

    request: Request
    channel: Channel
    consumer: Name


class BasicCancelled(Operation, frozen=True):
    """From the server: the consumer gets nothing more. Its queue is deleted where `code` is 0; else `text` says why."""

    channel: Channel
    consumer: Name
    code: int = 0
    text: str = ""


class BasicDeliver(Operation, frozen=True):
    """`count` messages for a consumer; message i has delivery tag `tag + i` and id (`origin`, `serial + i`).
    `deliveries`: how often each was delivered in vain before, in queues with x-delivery-limit."""

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
    deliveries: int = 0


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
    """These deliveries are not: back to their place in the queue with `requeue`, after `delay_ms`; else dead-lettered
    or dropped."""

    channel: Channel
    tags: Ranges
    requeue: bool = True
    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0


class BasicRenew(Operation, frozen=True):
    """These deliveries are still being worked on: their acknowledgement timeout begins anew."""

    channel: Channel
    tags: Ranges


class BasicRecover(Operation, frozen=True):
    """Everything unacked on the channel returns to its place and is delivered again. Answered by Ok."""

    request: Request
    channel: Channel


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
    28: ExchangeBind,
    29: ExchangeUnbind,
    30: BasicReturn,
    31: ConnectionBlocked,
    32: ConnectionUnblocked,
    33: BasicRecover,
    34: BasicRenew,
    35: QueuePeek,
    36: VhostPut,
    37: VhostDelete,
    38: UserPut,
    39: UserDelete,
    40: PermissionPut,
    41: PermissionDelete,
    42: LimitsPut,
    43: ConnectionExpel,
    44: DefinitionsExport,
    45: DefinitionsImport,
    46: TransactionBegin,
    47: TransactionSeal,
    48: TransactionCommit,
    49: TransactionAbort,
    50: QueueSlices,
    51: QueueRead,
    52: QueueReserve,
    53: ReservationEnd,
    54: BackupBegin,
    55: BackupLook,
}
"""Type numbers; 1 to 12 are the design's. A number once given keeps its meaning."""

TYPES: Final = {operation: number for number, operation in OPERATIONS.items()}

FROM_SERVER: Final[frozenset[type[Operation]]] = frozenset(
    {BasicDeliver, ConnectionClose, Heartbeat, Ok, Refused, BasicConfirm, BasicRefused, BasicCancelled, ChannelClose,
     BasicReturn, ConnectionBlocked, ConnectionUnblocked}
)  # fmt: skip
FROM_CLIENT: Final[frozenset[type[Operation]]] = frozenset(OPERATIONS.values()) - (
    FROM_SERVER - {ConnectionClose, Heartbeat, ChannelClose}
)

_DECODERS: Final = {number: msgspec.msgpack.Decoder(operation).decode for number, operation in OPERATIONS.items()}
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
