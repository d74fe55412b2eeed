"""The table of all operations: encode and decode.

A payload is the msgpack array of an operation's fields, in the order of its class. SPEC.md says the same to the byte.
"""

from typing import Final

import msgspec

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.protocol.native.frames import HEADER
from shardmq.protocol.native.operations.administration import (
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
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelled,
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicRefused,
    BasicRenew,
    BasicReturn,
)
from shardmq.protocol.native.operations.connection import (
    PROTOCOL_VERSION,
    ChannelClose,
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionOpen,
    ConnectionUnblocked,
    Heartbeat,
    Ok,
    Refused,
    StatusGet,
)
from shardmq.protocol.native.operations.fields import Operation as Operation  # noqa: PLC0414 - whoever uses operations finds these two here
from shardmq.protocol.native.operations.fields import TagRanges as TagRanges  # noqa: PLC0414
from shardmq.protocol.native.operations.reads import QueueRead, QueueReserve, QueueSlices, ReservationEnd
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePeek,
    QueuePurge,
    QueueUnbind,
    TopologyList,
)
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)

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
"""Operations by the type of their frame. A number never changes its meaning."""

TYPES: Final = {operation: number for number, operation in OPERATIONS.items()}

FROM_SERVER: Final[frozenset[type[Operation]]] = frozenset(
    {
        BasicDeliver,
        ConnectionClose,
        Heartbeat,
        Ok,
        Refused,
        BasicConfirm,
        BasicRefused,
        BasicCancelled,
        ChannelClose,
        BasicReturn,
        ConnectionBlocked,
        ConnectionUnblocked,
    }
)
FROM_CLIENT: Final[frozenset[type[Operation]]] = frozenset(OPERATIONS.values()) - (
    FROM_SERVER - {ConnectionClose, Heartbeat, ChannelClose}
)

_DECODERS: Final = {number: msgspec.msgpack.Decoder(operation).decode for number, operation in OPERATIONS.items()}
_pack = msgspec.msgpack.Encoder().encode


def encode(operation: Operation) -> bytes:
    """Encode an operation as a frame."""
    payload = _pack(operation)
    return HEADER.pack(TYPES[type(operation)], len(payload)) + payload


def decode(kind: int, payload: memoryview | bytes, senders: frozenset[type[Operation]]) -> Operation:
    """The operation in a frame.

    Args:
        kind: the frame's type.
        payload: its payload, which is not kept.
        senders: what the peer may send, FROM_CLIENT or FROM_SERVER.

    Raises:
        ProtocolError: the type is unknown or not for the peer to send (COMMAND_INVALID), or the payload is not that of
            the operation (SYNTAX_ERROR).
    """
    try:
        operation = _DECODERS[kind](payload)
    except KeyError:
        raise ProtocolError(
            f"frame type {kind} is not known to protocol version {PROTOCOL_VERSION}", ReplyCode.COMMAND_INVALID
        ) from None
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError) as error:
        raise ProtocolError(
            f"frame type {kind} ({OPERATIONS[kind].__name__}): {error}", ReplyCode.SYNTAX_ERROR
        ) from error
    if type(operation) not in senders:
        raise ProtocolError(f"{type(operation).__name__} is not for this side to send", ReplyCode.COMMAND_INVALID)
    return operation
