"""The table of all methods: encode and decode.

A method's payload: class id u16, method id u16, then its fields in order; bits that follow one another share an octet,
the first in its lowest place. The classes and their numbers are those of the specification RabbitMQ publishes
(amqp0-9-1.stripped.extended.xml), with connection.blocked, unblocked and update-secret beside it.
"""

import struct
from typing import Any, Final

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods import basic, connection, topology, transaction
from shardmq.protocol.amqp.methods.fields import READ, WRITE, Method

METHODS: Final[dict[tuple[int, int], type[Method]]] = {
    kind.id: kind
    for module in (connection, topology, basic, transaction)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
}
"""Every method, by its class and method number."""

_IDS: Final = struct.Struct(">HH")


def decode(payload: bytes, channel: int) -> Method:
    """Read a method frame's payload, which came on that channel.

    Raises:
        AmqpError: an unknown method (540), fields that are not what they should be (502), a short string that is not
            UTF-8 (501, as in RabbitMQ).
    """
    if len(payload) < _IDS.size:
        raise AmqpError(ReplyCode.FRAME_ERROR, f"a method frame of {len(payload)} bytes; it has no room for its ids")
    ids = _IDS.unpack_from(payload)
    kind = METHODS.get(ids)
    if kind is None:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"unknown method {ids[0]}.{ids[1]} on channel {channel}", ids)
    values: list[Any] = []
    at, bit = _IDS.size, 0
    try:
        for domain in kind.domains:
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
        raise AmqpError(ReplyCode.SYNTAX_ERROR, f"{kind.name} ends in the middle of a field", ids) from None
    except UnicodeDecodeError:
        raise AmqpError(ReplyCode.FRAME_ERROR, "Malformed UTF-8 in shortstr", ids) from None
    except AmqpError as error:
        raise AmqpError(error.code, error.text, ids) from None
    if at != len(payload):
        raise AmqpError(ReplyCode.SYNTAX_ERROR, f"{kind.name} has {len(payload) - at} bytes too many", ids)
    return kind(*values)


def encode(method: Method) -> bytes:
    """A method frame's payload."""
    parts = [_IDS.pack(*method.id)]
    bits, bit = 0, 0
    for name, domain in zip(method.__struct_fields__, method.domains, strict=True):
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
