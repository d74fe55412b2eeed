r"""Property lists: read and written, between AMQP 0-9-1's form and the broker's own `Properties`.

    property list     flags u16 (bit 15: the first property is there, …), then the values of the properties there are

A message that came by AMQP keeps its list byte for byte on its way to other AMQP clients. The broker reads its facts
(`property_facts`), and decodes it only where it has to look inside, and for native clients. Changes leave the bytes of
all other properties as they are (`property_edits`).

The two lowest flags mean nothing, as in RabbitMQ: bit 0 announces more flags, and there are no more properties. Bytes
of strings that are not UTF-8 are read as escapes (`\xff`).
"""

import struct
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

from shardmq.errors import ReplyCode
from shardmq.limits import PROPERTIES_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods.fields import SHORTSTR_BYTES_MAX
from shardmq.protocol.amqp.tables import (
    decode_table,
    encode_entry,
    encode_long,
    encode_table,
    encode_value,
    wrapped,
)

FIELDS: Final = (
    ("content_type", "shortstr", 15),
    ("content_encoding", "shortstr", 14),
    ("headers", "table", 13),
    ("delivery_mode", "octet", 12),
    ("priority", "octet", 11),
    ("correlation_id", "shortstr", 10),
    ("reply_to", "shortstr", 9),
    ("expiration", "shortstr", 8),
    ("message_id", "shortstr", 7),
    ("timestamp", "timestamp", 6),
    ("type", "shortstr", 5),
    ("user_id", "shortstr", 4),
    ("app_id", "shortstr", 3),
    ("cluster_id", "shortstr", 2),
)
"""The properties of a content header in their order: name, domain, bit of the flag."""

NO_PROPERTIES: Final = b"\x00\x00"
"""The list of a message without properties."""

NO_TABLE: Final = b"\x00\x00\x00\x00"
"""A table of headers without entries."""

LIST_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 8 - 12
"""The largest list that the broker writes, in bytes. With its frame and content header it fits into the largest frame
that is offered to clients. Properties of native clients can be larger as a list than they were."""

DEATHS: Final = "x-death"
"""The header with the history of a dead letter."""

_TOO_LONG: Final = {"message_id": "x-message-id", "correlation_id": "x-correlation-id"}
"""Headers for values that are too long for these properties, as in RabbitMQ for messages that came by AMQP 1.0."""


def decode(raw: bytes) -> Properties:
    """Decode a property list; the reserved cluster-id is left out.

    Raises:
        AmqpError: it is no property list (502).
    """
    values: dict[str, Any] = {}
    at = 2
    try:
        flags = raw[0] << 8 | raw[1]
        for name, domain, place in FIELDS:
            if not flags & 1 << place:
                continue
            if domain == "shortstr":
                start, at = at + 1, at + 1 + raw[at]
                values[name] = text_of(raw[start:at])
            elif domain == "octet":
                values[name] = raw[at]
                at += 1
            elif domain == "table":
                values[name], at = decode_table(raw, at)
            else:
                values[name] = _SECONDS.unpack_from(raw, at)[0]
                at += 8
    except (IndexError, struct.error):
        raise cut_off() from None
    if at != len(raw):
        raise wrong_end(at, len(raw))
    values.pop("cluster_id", None)
    return Properties(**values)


def encode(properties: Properties) -> bytes:
    """Encode properties as a property list.

    All properties can be written. Numbers that are too large or negative become the nearest that fits. Strings of over
    255 bytes are left out; message_id and correlation_id become the headers x-message-id and x-correlation-id then.
    Headers that do not fit into a frame are left out from the end.
    """
    headers = properties.headers
    flags = 0
    parts = []
    for value, (name, write, flag) in zip(values_of(properties), WRITERS, strict=True):
        if value is None:
            continue
        written = write(value)
        if written is not None:
            flags |= flag
            parts.append(written)
        elif name in _TOO_LONG:
            headers = {_TOO_LONG[name]: value, **(headers or {})}
    if headers is not None:
        before = (flags >> _HEADERS_PLACE).bit_count()
        parts.insert(before, _write_headers(headers, LIST_BYTES_MAX - 2 - sum(map(len, parts))))
        flags |= 1 << _HEADERS_PLACE
    return FLAGS.pack(flags) + b"".join(parts)


def write_shortstr(value: str) -> bytes | None:
    """A short string; None where the text is too long for one."""
    data = value.encode("utf-8", "backslashreplace")
    return _OCTETS[len(data)] + data if len(data) <= SHORTSTR_BYTES_MAX else None


def _write_octet(value: int) -> bytes:
    return _OCTETS[max(0, min(value, 255))]


def _write_timestamp(value: int) -> bytes:
    return _SECONDS.pack(max(0, min(value, 2**64 - 1)))


def _write_headers(headers: Mapping[str, Any], room: int) -> bytes:
    entries = [encode_entry(name, write_header(name, value)) for name, value in headers.items()]
    size = 4 + sum(map(len, entries))
    while size > room:
        size -= len(entries.pop())
    return wrapped(b"", b"".join(entries))


def write_header(name: str, value: Any) -> bytes:
    """A header's value. The count of a death is a long, as in RabbitMQ: its Java client casts it to one."""
    if name != DEATHS or not isinstance(value, list):
        return encode_value(value)
    return wrapped(b"A", b"".join(map(_write_death, value)))


def _write_death(death: Any) -> bytes:
    count = death.get("count") if isinstance(death, dict) else None
    if not isinstance(count, int) or not 0 < count < 2**63:
        return encode_value(death)
    rest = encode_table({name: value for name, value in death.items() if name != "count"})
    return wrapped(b"F", encode_entry("count", encode_long(count)) + rest[4:])


def cut_off() -> AmqpError:
    """The error for a list whose end is missing."""
    return AmqpError(ReplyCode.SYNTAX_ERROR, "a content header ends in the middle of a property")


def wrong_end(at: int, size: int) -> AmqpError:
    """The error for a list of `size` bytes whose last property ends at another offset."""
    if at > size:
        return cut_off()
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"a content header has {size - at} bytes too many")


def text_of(data: bytes) -> str:
    """A short string's text."""
    return data.decode("utf-8", "backslashreplace")


FLAGS: Final = struct.Struct(">H")
"""What a list begins with."""

_SECONDS: Final = struct.Struct(">Q")
_OCTETS: Final = tuple(bytes((number,)) for number in range(256))
_HEADERS_PLACE: Final = 13
_WRITERS_BY_DOMAIN: Final[dict[str, Callable[[Any], bytes | None]]] = {
    "shortstr": write_shortstr,
    "octet": _write_octet,
    "timestamp": _write_timestamp,
}
WRITERS: Final = tuple(
    (name, _WRITERS_BY_DOMAIN[domain], 1 << place) for name, domain, place in FIELDS[:-1] if name != "headers"
)
"""The properties beside headers and cluster-id in their order: name, writer, flag. A writer returns None where the
value does not fit."""

values_of: Final = attrgetter(*(name for name, *_ in WRITERS))
"""The values that belong to `WRITERS`."""
