"""The table of all operations: encode and decode.

A payload is the msgpack array of an operation's fields, in the order of its class. SPEC.md says the same to the byte.
"""

from typing import Final

import msgspec

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import FRAME_BYTES_MAX, SETTLEMENT_BYTES_MAX
from shardmq.protocol.native.frames import HEADER
from shardmq.protocol.native.operations import (
    administration,
    basic,
    connection,
    groups,
    offsets,
    reads,
    statistics,
    topics,
    topology,
    transaction,
)
from shardmq.protocol.native.operations.connection import PROTOCOL_VERSION
from shardmq.protocol.native.operations.fields import Operation

OPERATIONS: Final[dict[int, type[Operation]]] = {
    1: connection.ChannelOpen,
    2: connection.ChannelClose,
    3: topology.ExchangeDeclare,
    4: topology.ExchangeDelete,
    5: topology.QueueDeclare,
    6: topology.QueueDelete,
    7: topology.QueueBind,
    8: topology.QueueUnbind,
    9: basic.BasicPublish,
    10: basic.BasicConsume,
    11: basic.BasicAck,
    12: basic.BasicDeliver,
    13: connection.ConnectionOpen,
    14: connection.ConnectionClose,
    15: connection.Heartbeat,
    16: connection.Ok,
    17: connection.Refused,
    18: basic.BasicConfirm,
    19: basic.BasicRefused,
    20: basic.BasicCancel,
    21: basic.BasicCancelled,
    22: basic.BasicGet,
    23: basic.BasicNack,
    24: basic.BasicQos,
    25: topology.QueuePurge,
    26: topology.TopologyList,
    27: connection.StatusGet,
    28: topology.ExchangeBind,
    29: topology.ExchangeUnbind,
    30: basic.BasicReturn,
    31: connection.ConnectionBlocked,
    32: connection.ConnectionUnblocked,
    33: basic.BasicRecover,
    34: basic.BasicRenew,
    35: topology.QueuePeek,
    36: administration.VhostPut,
    37: administration.VhostDelete,
    38: administration.UserPut,
    39: administration.UserDelete,
    40: administration.PermissionPut,
    41: administration.PermissionDelete,
    42: administration.LimitsPut,
    43: administration.ConnectionExpel,
    44: administration.DefinitionsExport,
    45: administration.DefinitionsImport,
    46: transaction.TransactionBegin,
    47: transaction.TransactionSeal,
    48: transaction.TransactionCommit,
    49: transaction.TransactionAbort,
    50: reads.QueueSlices,
    51: reads.QueueRead,
    52: reads.QueueReserve,
    53: reads.ReservationEnd,
    54: administration.BackupBegin,
    55: administration.BackupLook,
    56: topics.TopicDeclare,
    57: topics.TopicDelete,
    58: topics.TopicExtend,
    59: topics.TopicInfo,
    60: offsets.TopicPull,
    61: offsets.GroupCommit,
    62: offsets.GroupOffsets,
    63: offsets.GroupReset,
    64: offsets.GroupDelete,
    65: groups.GroupAssigned,
    66: groups.GroupRevoked,
    67: groups.GroupReleased,
    68: transaction.TransactionOffsets,
    70: statistics.StatsList,
    71: statistics.StatsGet,
    72: statistics.StatsOverview,
    73: topology.PolicyPut,
    74: topology.PolicyDelete,
    75: topology.PolicyPreview,
    76: topology.PolicyMatch,
    77: topology.TopicPermissionPut,
    78: topology.TopicPermissionDelete,
    85: administration.TracingPut,
    79: administration.WatermarksPut,
    80: reads.MessagesSearch,
    86: topology.ParameterPut,
    87: topology.ParameterDelete,
    88: topology.ShovelReport,
    90: statistics.FindingsTell,
    91: reads.DeathsSearch,
    92: topics.TopicsGrown,
    93: reads.QueuePlaces,
    94: administration.HostDrain,
    95: administration.ShardTransfer,
    96: administration.ShardMove,
    97: basic.BasicPutBack,
}
"""Operations by the type of their frame. A number never changes its meaning."""

TYPES: Final = {operation: number for number, operation in OPERATIONS.items()}

LARGER_FRAMES: Final = {
    **dict.fromkeys(
        (
            TYPES[kind]
            for kind in (
                basic.BasicAck,
                basic.BasicNack,
                basic.BasicPutBack,
                basic.BasicRenew,
                transaction.TransactionCommit,
                reads.ReservationEnd,
            )
        ),
        SETTLEMENT_BYTES_MAX,
    ),
    TYPES[administration.DefinitionsImport]: FRAME_BYTES_MAX,
}
"""By type, the bytes of those requests that may be larger than REQUEST_BYTES_MAX; an import only of administrators."""

FROM_SERVER: Final[frozenset[type[Operation]]] = frozenset(
    {
        basic.BasicDeliver,
        connection.ConnectionClose,
        connection.Heartbeat,
        connection.Ok,
        connection.Refused,
        basic.BasicConfirm,
        basic.BasicRefused,
        basic.BasicCancelled,
        connection.ChannelClose,
        basic.BasicReturn,
        connection.ConnectionBlocked,
        connection.ConnectionUnblocked,
        groups.GroupAssigned,
        groups.GroupRevoked,
        topics.TopicsGrown,
    }
)
FROM_CLIENT: Final[frozenset[type[Operation]]] = frozenset(OPERATIONS.values()) - (
    FROM_SERVER - {connection.ConnectionClose, connection.Heartbeat, connection.ChannelClose}
)

_DECODERS: Final = {number: msgspec.msgpack.Decoder(operation).decode for number, operation in OPERATIONS.items()}
_pack = msgspec.msgpack.Encoder().encode


def encode(operation: Operation) -> bytes:
    """Encode an operation as a frame."""
    payload = _pack(operation)
    return HEADER.pack(TYPES[type(operation)], len(payload)) + payload


def encode_without_last(operation: Operation) -> bytes:
    """Encode an operation without its last field, for a peer that does not know it: there it has its default."""
    payload = _pack(msgspec.structs.astuple(operation)[:-1])
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
