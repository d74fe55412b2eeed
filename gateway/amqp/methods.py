"""AMQP 0-9-1's methods as a table: one class for each, its fields with their domains, and the codec made from both.

A method's payload: class id u16, method id u16, then its fields in order; bits that follow one another share an octet,
the first in its lowest place. The classes and their numbers are those of the specification RabbitMQ publishes
(amqp0-9-1.stripped.extended.xml), with connection.blocked, unblocked and update-secret beside it.
"""

import struct
from typing import Any, ClassVar, Final, get_type_hints

import msgspec

from shardmq.errors import ReplyCode
from shardmq.gateway.amqp.domains import READ, WRITE, Arguments, Bit, Long, LongLong, LongStr, Octet, Short, ShortStr
from shardmq.gateway.amqp.faults import AmqpFault


class Method(msgspec.Struct, frozen=True, gc=False):
    """One method. `id` is its class and method number, `name` as in the specification."""

    id: ClassVar[tuple[int, int]]
    name: ClassVar[str]


# --- connection ------------------------------------------------------------------------------------------------------


class ConnectionStart(Method, frozen=True):
    id: ClassVar = (10, 10)
    name: ClassVar = "connection.start"
    version_major: Octet
    version_minor: Octet
    server_properties: Arguments
    mechanisms: LongStr
    locales: LongStr


class ConnectionStartOk(Method, frozen=True):
    id: ClassVar = (10, 11)
    name: ClassVar = "connection.start-ok"
    client_properties: Arguments
    mechanism: ShortStr
    response: LongStr
    locale: ShortStr


class ConnectionSecure(Method, frozen=True):
    id: ClassVar = (10, 20)
    name: ClassVar = "connection.secure"
    challenge: LongStr


class ConnectionSecureOk(Method, frozen=True):
    id: ClassVar = (10, 21)
    name: ClassVar = "connection.secure-ok"
    response: LongStr


class ConnectionTune(Method, frozen=True):
    id: ClassVar = (10, 30)
    name: ClassVar = "connection.tune"
    channel_max: Short
    frame_max: Long
    heartbeat: Short


class ConnectionTuneOk(Method, frozen=True):
    id: ClassVar = (10, 31)
    name: ClassVar = "connection.tune-ok"
    channel_max: Short
    frame_max: Long
    heartbeat: Short


class ConnectionOpen(Method, frozen=True):
    id: ClassVar = (10, 40)
    name: ClassVar = "connection.open"
    virtual_host: ShortStr
    capabilities: ShortStr = ""
    insist: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    id: ClassVar = (10, 41)
    name: ClassVar = "connection.open-ok"
    known_hosts: ShortStr = ""


class ConnectionClose(Method, frozen=True):
    id: ClassVar = (10, 50)
    name: ClassVar = "connection.close"
    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


class ConnectionCloseOk(Method, frozen=True):
    id: ClassVar = (10, 51)
    name: ClassVar = "connection.close-ok"


class ConnectionBlocked(Method, frozen=True):
    id: ClassVar = (10, 60)
    name: ClassVar = "connection.blocked"
    reason: ShortStr


class ConnectionUnblocked(Method, frozen=True):
    id: ClassVar = (10, 61)
    name: ClassVar = "connection.unblocked"


class ConnectionUpdateSecret(Method, frozen=True):
    id: ClassVar = (10, 70)
    name: ClassVar = "connection.update-secret"
    new_secret: LongStr
    reason: ShortStr


class ConnectionUpdateSecretOk(Method, frozen=True):
    id: ClassVar = (10, 71)
    name: ClassVar = "connection.update-secret-ok"


# --- channel ---------------------------------------------------------------------------------------------------------


class ChannelOpen(Method, frozen=True):
    id: ClassVar = (20, 10)
    name: ClassVar = "channel.open"
    out_of_band: ShortStr = ""


class ChannelOpenOk(Method, frozen=True):
    id: ClassVar = (20, 11)
    name: ClassVar = "channel.open-ok"
    channel_id: LongStr = b""


class ChannelFlow(Method, frozen=True):
    id: ClassVar = (20, 20)
    name: ClassVar = "channel.flow"
    active: Bit


class ChannelFlowOk(Method, frozen=True):
    id: ClassVar = (20, 21)
    name: ClassVar = "channel.flow-ok"
    active: Bit


class ChannelClose(Method, frozen=True):
    id: ClassVar = (20, 40)
    name: ClassVar = "channel.close"
    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


class ChannelCloseOk(Method, frozen=True):
    id: ClassVar = (20, 41)
    name: ClassVar = "channel.close-ok"


# --- access (RabbitMQ answers it, for clients of 0-8) -----------------------------------------------------------------


class AccessRequest(Method, frozen=True):
    id: ClassVar = (30, 10)
    name: ClassVar = "access.request"
    realm: ShortStr
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


class AccessRequestOk(Method, frozen=True):
    id: ClassVar = (30, 11)
    name: ClassVar = "access.request-ok"
    ticket: Short = 1


# --- exchange --------------------------------------------------------------------------------------------------------


class ExchangeDeclare(Method, frozen=True):
    id: ClassVar = (40, 10)
    name: ClassVar = "exchange.declare"
    ticket: Short
    exchange: ShortStr
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeDeclareOk(Method, frozen=True):
    id: ClassVar = (40, 11)
    name: ClassVar = "exchange.declare-ok"


class ExchangeDelete(Method, frozen=True):
    id: ClassVar = (40, 20)
    name: ClassVar = "exchange.delete"
    ticket: Short
    exchange: ShortStr
    if_unused: Bit = False
    nowait: Bit = False


class ExchangeDeleteOk(Method, frozen=True):
    id: ClassVar = (40, 21)
    name: ClassVar = "exchange.delete-ok"


class ExchangeBind(Method, frozen=True):
    id: ClassVar = (40, 30)
    name: ClassVar = "exchange.bind"
    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeBindOk(Method, frozen=True):
    id: ClassVar = (40, 31)
    name: ClassVar = "exchange.bind-ok"


class ExchangeUnbind(Method, frozen=True):
    id: ClassVar = (40, 40)
    name: ClassVar = "exchange.unbind"
    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


class ExchangeUnbindOk(Method, frozen=True):
    id: ClassVar = (40, 51)
    name: ClassVar = "exchange.unbind-ok"


# --- queue -----------------------------------------------------------------------------------------------------------


class QueueDeclare(Method, frozen=True):
    id: ClassVar = (50, 10)
    name: ClassVar = "queue.declare"
    ticket: Short
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class QueueDeclareOk(Method, frozen=True):
    id: ClassVar = (50, 11)
    name: ClassVar = "queue.declare-ok"
    queue: ShortStr
    message_count: Long
    consumer_count: Long


class QueueBind(Method, frozen=True):
    id: ClassVar = (50, 20)
    name: ClassVar = "queue.bind"
    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Arguments = {}


class QueueBindOk(Method, frozen=True):
    id: ClassVar = (50, 21)
    name: ClassVar = "queue.bind-ok"


class QueuePurge(Method, frozen=True):
    id: ClassVar = (50, 30)
    name: ClassVar = "queue.purge"
    ticket: Short
    queue: ShortStr
    nowait: Bit = False


class QueuePurgeOk(Method, frozen=True):
    id: ClassVar = (50, 31)
    name: ClassVar = "queue.purge-ok"
    message_count: Long


class QueueDelete(Method, frozen=True):
    id: ClassVar = (50, 40)
    name: ClassVar = "queue.delete"
    ticket: Short
    queue: ShortStr
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


class QueueDeleteOk(Method, frozen=True):
    id: ClassVar = (50, 41)
    name: ClassVar = "queue.delete-ok"
    message_count: Long


class QueueUnbind(Method, frozen=True):
    id: ClassVar = (50, 50)
    name: ClassVar = "queue.unbind"
    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr = ""
    arguments: Arguments = {}


class QueueUnbindOk(Method, frozen=True):
    id: ClassVar = (50, 51)
    name: ClassVar = "queue.unbind-ok"


# --- basic -----------------------------------------------------------------------------------------------------------


class BasicQos(Method, frozen=True):
    id: ClassVar = (60, 10)
    name: ClassVar = "basic.qos"
    prefetch_size: Long
    prefetch_count: Short
    is_global: Bit = False


class BasicQosOk(Method, frozen=True):
    id: ClassVar = (60, 11)
    name: ClassVar = "basic.qos-ok"


class BasicConsume(Method, frozen=True):
    id: ClassVar = (60, 20)
    name: ClassVar = "basic.consume"
    ticket: Short
    queue: ShortStr
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Arguments = {}


class BasicConsumeOk(Method, frozen=True):
    id: ClassVar = (60, 21)
    name: ClassVar = "basic.consume-ok"
    consumer_tag: ShortStr


class BasicCancel(Method, frozen=True):
    id: ClassVar = (60, 30)
    name: ClassVar = "basic.cancel"
    consumer_tag: ShortStr
    nowait: Bit = False


class BasicCancelOk(Method, frozen=True):
    id: ClassVar = (60, 31)
    name: ClassVar = "basic.cancel-ok"
    consumer_tag: ShortStr


class BasicPublish(Method, frozen=True):
    id: ClassVar = (60, 40)
    name: ClassVar = "basic.publish"
    ticket: Short
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


class BasicReturn(Method, frozen=True):
    id: ClassVar = (60, 50)
    name: ClassVar = "basic.return"
    reply_code: Short
    reply_text: ShortStr
    exchange: ShortStr
    routing_key: ShortStr


class BasicDeliver(Method, frozen=True):
    id: ClassVar = (60, 60)
    name: ClassVar = "basic.deliver"
    consumer_tag: ShortStr
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr


class BasicGet(Method, frozen=True):
    id: ClassVar = (60, 70)
    name: ClassVar = "basic.get"
    ticket: Short
    queue: ShortStr
    no_ack: Bit = False


class BasicGetOk(Method, frozen=True):
    id: ClassVar = (60, 71)
    name: ClassVar = "basic.get-ok"
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr
    message_count: Long


class BasicGetEmpty(Method, frozen=True):
    id: ClassVar = (60, 72)
    name: ClassVar = "basic.get-empty"
    cluster_id: ShortStr = ""


class BasicAck(Method, frozen=True):
    id: ClassVar = (60, 80)
    name: ClassVar = "basic.ack"
    delivery_tag: LongLong
    multiple: Bit = False


class BasicReject(Method, frozen=True):
    id: ClassVar = (60, 90)
    name: ClassVar = "basic.reject"
    delivery_tag: LongLong
    requeue: Bit = True


class BasicRecoverAsync(Method, frozen=True):
    id: ClassVar = (60, 100)
    name: ClassVar = "basic.recover-async"
    requeue: Bit = False


class BasicRecover(Method, frozen=True):
    id: ClassVar = (60, 110)
    name: ClassVar = "basic.recover"
    requeue: Bit = False


class BasicRecoverOk(Method, frozen=True):
    id: ClassVar = (60, 111)
    name: ClassVar = "basic.recover-ok"


class BasicNack(Method, frozen=True):
    id: ClassVar = (60, 120)
    name: ClassVar = "basic.nack"
    delivery_tag: LongLong
    multiple: Bit = False
    requeue: Bit = True


# --- tx, confirm -----------------------------------------------------------------------------------------------------


class TxSelect(Method, frozen=True):
    id: ClassVar = (90, 10)
    name: ClassVar = "tx.select"


class TxSelectOk(Method, frozen=True):
    id: ClassVar = (90, 11)
    name: ClassVar = "tx.select-ok"


class TxCommit(Method, frozen=True):
    id: ClassVar = (90, 20)
    name: ClassVar = "tx.commit"


class TxCommitOk(Method, frozen=True):
    id: ClassVar = (90, 21)
    name: ClassVar = "tx.commit-ok"


class TxRollback(Method, frozen=True):
    id: ClassVar = (90, 30)
    name: ClassVar = "tx.rollback"


class TxRollbackOk(Method, frozen=True):
    id: ClassVar = (90, 31)
    name: ClassVar = "tx.rollback-ok"


class ConfirmSelect(Method, frozen=True):
    id: ClassVar = (85, 10)
    name: ClassVar = "confirm.select"
    nowait: Bit = False


class ConfirmSelectOk(Method, frozen=True):
    id: ClassVar = (85, 11)
    name: ClassVar = "confirm.select-ok"


# --- the codec -------------------------------------------------------------------------------------------------------


def fields(method: type[Method]) -> tuple[tuple[str, str], ...]:
    """A method's fields in order: (name, domain)."""
    hints = get_type_hints(method, include_extras=True)
    return tuple((name, hints[name].__metadata__[0]) for name in method.__struct_fields__)


METHODS: Final[dict[tuple[int, int], type[Method]]] = {kind.id: kind for kind in Method.__subclasses__()}
"""Every method, by its class and method number."""

_DOMAINS: Final = {kind: tuple(domain for _, domain in fields(kind)) for kind in METHODS.values()}
_IDS: Final = struct.Struct(">HH")


def decode(payload: bytes, channel: int) -> Method:
    """Read a method frame's payload, which came on that channel.

    Raises:
        AmqpFault: an unknown method (540), fields that are not what they should be (502), a short string that is not
            UTF-8 (501, as in RabbitMQ).
    """
    if len(payload) < _IDS.size:
        raise AmqpFault(ReplyCode.FRAME_ERROR, f"a method frame of {len(payload)} bytes; it has no room for its ids")
    ids = _IDS.unpack_from(payload)
    kind = METHODS.get(ids)
    if kind is None:
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, f"unknown method {ids[0]}.{ids[1]} on channel {channel}", ids)
    values: list[Any] = []
    at, bit = _IDS.size, 0
    try:
        for domain in _DOMAINS[kind]:
            if domain == "bit":
                if bit == 0:
                    at += 1
                values.append(payload[at - 1] & 1 << bit != 0)
                bit = (bit + 1) % 8
                continue
            bit = 0
            value, at = READ[domain](payload, at)
            values.append(value)
    except (IndexError, struct.error):
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, f"{kind.name} ends in the middle of a field", ids) from None
    except UnicodeDecodeError:
        raise AmqpFault(ReplyCode.FRAME_ERROR, "Malformed UTF-8 in shortstr", ids) from None
    except AmqpFault as fault:
        raise AmqpFault(fault.code, fault.text, ids) from None
    if at != len(payload):
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, f"{kind.name} has {len(payload) - at} bytes too many", ids)
    return kind(*values)


def encode(method: Method) -> bytes:
    """A method frame's payload."""
    parts = [_IDS.pack(*method.id)]
    bits, bit = 0, 0
    for name, domain in zip(method.__struct_fields__, _DOMAINS[type(method)], strict=True):
        value = getattr(method, name)
        if domain == "bit":
            bits |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((bits,)))
            bits = bit = 0
        parts.append(WRITE[domain](value))
    if bit:
        parts.append(bytes((bits,)))
    return b"".join(parts)
