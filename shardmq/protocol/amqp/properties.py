"""Message properties as AMQP 0-9-1 sends them, and as `shardmq.message.record` has them.

    property list     flags u16 (bit 15: the first property is there, …), then the values of those that are there

A message that came by AMQP keeps its list as it is (`records.AMQP`): nothing here touches it on its way to another AMQP
client. It is looked through (`read_facts`), and read only where the broker has to look inside, and for native clients.
Where something in it has to change, all that does not keeps its bytes: `without_bcc`, `with_reply_to`, `edited`.

The two lowest flags mean nothing, as in RabbitMQ: more flags would follow where bit 0 is set, but there are no more
properties. Strings that are not UTF-8 are text with such bytes escaped (`\\xff`) wherever they are read.
"""

import struct
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from shardmq.errors import ReplyCode
from shardmq.limits import PROPERTIES_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.tables import (
    check_table,
    decode_table,
    encode_entry,
    encode_long,
    encode_table,
    encode_value,
    entries_of,
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
"""A content header's properties: name, domain, place of the flag."""

NO_PROPERTIES: Final = b"\x00\x00"
PERSISTENT_MODE: Final = 2

DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"
"""The pseudo-queue that a reply_to may name (https://www.rabbitmq.com/docs/direct-reply-to)."""

KNOWN_MAX: Final = 4096
"""Property lists whose facts are remembered; past it all are forgotten, as those of messages that all differ are."""

KNOWN_BYTES_MAX: Final = 1024
"""Longer lists are not remembered: lists may have 128 KB, and who sends such ones has a new one for each message."""

LIST_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 8 - 12
"""A list that the broker writes fits into a frame of the largest size that is offered, with what frame and content
header have of their own: what native clients send is smaller there than it is here."""

SHORTSTR_BYTES_MAX: Final = 255

DEATHS: Final = "x-death"
"""The header in which dead letters have their history."""

_TOO_LONG: Final = {"message_id": "x-message-id", "correlation_id": "x-correlation-id"}
"""Headers that have what is too long for these properties (RabbitMQ does this with what comes by AMQP 1.0)."""


class Facts(NamedTuple):
    """What the broker has to know of a property list before it sends its message on.

    Attributes:
        is_persistent: its delivery mode is 2.
        is_plain: nothing in it has a meaning for the broker; all that follows here is as by default.
        priority: the property, None where it is not there.
        expiration: the same, as it was sent: not checked.
        user_id: the same.
        has_cc: there is a header CC or BCC; the list is to be decoded, to know where the message goes.
        has_bcc: there is a header BCC; the message goes on `without_bcc`.
        is_direct_reply: its reply_to is `DIRECT_REPLY`; the message goes on `with_reply_to`.
    """

    is_persistent: bool
    is_plain: bool = True
    priority: int | None = None
    expiration: str | None = None
    user_id: str | None = None
    has_cc: bool = False
    has_bcc: bool = False
    is_direct_reply: bool = False


class PropertyLists:
    """Tells the facts of property lists; those it has seen lately it need not read again."""

    def __init__(self) -> None:
        self._known: dict[bytes, Facts] = {}

    def facts(self, raw: bytes) -> Facts:
        """The facts of a property list.

        Raises:
            AmqpFault: it is none.
        """
        facts = self._known.get(raw)
        if facts is None:
            facts = read_facts(raw)
            if len(raw) > KNOWN_BYTES_MAX:
                return facts
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[raw] = facts
        return facts


# --- looking through --------------------------------------------------------------------------------------------------


def read_facts(raw: bytes) -> Facts:  # noqa: PLR0912 - a step each, in the loop: calls would take twice the time
    """As `PropertyLists.facts`, without a memory.

    It goes from one value to the next, which checks all of the list: a microsecond for three properties, one
    of them a table of three headers; decoding takes four.
    """
    mode = 0
    priority = expiration = user_id = None
    is_plain = True
    has_cc = has_bcc = is_direct_reply = False
    at = 2
    try:
        steps = _STEPS.get(raw[0] << 8 | raw[1])
        if steps is None:
            steps = _steps(raw[0] << 8 | raw[1])
        for step in steps:
            if step == _SHORTSTR:
                at += 1 + raw[at]
            elif step == _MODE:
                mode = raw[at]
                at += 1
            elif step == _HEADERS:
                start, at = at, check_table(raw, at)
                if raw.find(b"\x02CC", start, at) >= 0 or raw.find(b"\x03BCC", start, at) >= 0:
                    has_cc, has_bcc = _copies(raw, start)
                    is_plain = is_plain and not has_cc
            elif step == _TIMESTAMP:
                at += 8
            elif step == _PRIORITY:
                priority = raw[at]
                is_plain = False
                at += 1
            else:
                start, at = at + 1, at + 1 + raw[at]
                value = raw[start:at]
                if step == _REPLY_TO:
                    is_direct_reply = value == _DIRECT_REPLY
                    is_plain = is_plain and not is_direct_reply
                elif step == _EXPIRATION:
                    expiration, is_plain = _text(value), False
                else:
                    user_id, is_plain = _text(value), False
    except IndexError:
        raise _cut_off() from None
    if at != len(raw):
        raise _too_long(at, len(raw))
    if is_plain:
        return _PLAIN_PERSISTENT if mode == PERSISTENT_MODE else _PLAIN
    return _facts((mode == PERSISTENT_MODE, False, priority, expiration, user_id, has_cc, has_bcc, is_direct_reply))


def _copies(raw: bytes, at: int) -> tuple[bool, bool]:
    """Whether there is CC or BCC among a table's names, and whether BCC is."""
    names = {name for name, *_ in entries_of(raw, at)}
    return b"CC" in names or b"BCC" in names, b"BCC" in names


def _steps(flags: int) -> tuple[int, ...]:
    """What there is in a list, in order; remembered for as many combinations as programs have."""
    if len(_STEPS) >= _STEPS_KEPT:
        _STEPS.clear()
    steps = _STEPS[flags] = tuple([_STEP.get(name, _SHORTSTR) for name, _, place in FIELDS if flags & 1 << place])
    return steps


# --- reading and writing ----------------------------------------------------------------------------------------------


def decode(raw: bytes) -> Properties:
    """A property list as the broker's own properties. The reserved cluster-id is left out.

    Raises:
        AmqpFault: it is no property list.
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
                values[name] = _text(raw[start:at])
            elif domain == "octet":
                values[name] = raw[at]
                at += 1
            elif domain == "table":
                values[name], at = decode_table(raw, at)
            else:
                values[name] = _SECONDS.unpack_from(raw, at)[0]
                at += 8
    except (IndexError, struct.error):
        raise _cut_off() from None
    if at != len(raw):
        raise _too_long(at, len(raw))
    values.pop("cluster_id", None)
    return Properties(**values)


def encode(properties: Properties) -> bytes:
    """The broker's own properties as a property list.

    Whatever they hold can be written: numbers that are too large or negative become the nearest that fits. Strings of
    over 255 bytes are left out, but for message_id and correlation_id: they become the headers x-message-id and
    x-correlation-id. Of headers that do not fit into a frame, the last are left out.
    """
    headers = properties.headers
    flags = 0
    parts = []
    for value, (name, write, flag) in zip(_values_of(properties), _WRITTEN, strict=True):
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
    return _FLAGS.pack(flags) + b"".join(parts)


def _spans(raw: bytes) -> list[tuple[str, int, int]]:
    """Every property of a list: name, where its value begins and ends. All of it is checked."""
    spans = []
    at = 2
    try:
        flags = raw[0] << 8 | raw[1]
        for name, domain, place in FIELDS:
            if flags & 1 << place:
                start = at
                if domain == "shortstr":
                    at += 1 + raw[at]
                elif domain == "table":
                    at = check_table(raw, at)
                else:
                    at += 1 if domain == "octet" else 8
                spans.append((name, start, at))
    except IndexError:
        raise _cut_off() from None
    if at != len(raw):
        raise _too_long(at, len(raw))
    return spans


def _joined(values: Mapping[str, bytes]) -> bytes:
    """A property list of values that are encoded already."""
    flags = 0
    parts = [b""]
    for name, _, place in FIELDS:
        value = values.get(name)
        if value is not None:
            flags |= 1 << place
            parts.append(value)
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def _write_shortstr(value: str) -> bytes | None:
    data = value.encode("utf-8", "backslashreplace")
    return _OCTETS[len(data)] + data if len(data) <= SHORTSTR_BYTES_MAX else None


def _write_octet(value: int) -> bytes:
    return _OCTETS[max(0, min(value, 255))]


def _write_timestamp(value: int) -> bytes:
    return _SECONDS.pack(max(0, min(value, 2**64 - 1)))


def _write_headers(headers: Mapping[str, Any], room: int) -> bytes:
    entries = [encode_entry(name, _write_header(name, value)) for name, value in headers.items()]
    size = 4 + sum(map(len, entries))
    while size > room:
        size -= len(entries.pop())
    return wrapped(b"", b"".join(entries))


def _write_header(name: str, value: Any) -> bytes:
    """A header's value. Java's clients cast the count of a death to a long, as RabbitMQ writes it."""
    if name != DEATHS or not isinstance(value, list):
        return encode_value(value)
    return wrapped(b"A", b"".join(map(_write_death, value)))


def _write_death(death: Any) -> bytes:
    count = death.get("count") if isinstance(death, dict) else None
    if not isinstance(count, int) or not 0 < count < 2**63:
        return encode_value(death)
    rest = encode_table({name: value for name, value in death.items() if name != "count"})
    return wrapped(b"F", encode_entry("count", encode_long(count)) + rest[4:])


def _cut_off() -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, "a content header ends in the middle of a property")


def _too_long(at: int, size: int) -> AmqpError:
    if at > size:
        return _cut_off()
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"a content header has {size - at} bytes too many")


# --- changing ---------------------------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


_FLAGS: Final = struct.Struct(">H")
_SECONDS: Final = struct.Struct(">Q")
_OCTETS: Final = tuple(bytes((number,)) for number in range(256))
_HEADERS_PLACE: Final = 13
_WRITERS: Final[dict[str, Callable[[Any], bytes | None]]] = {
    "shortstr": _write_shortstr,
    "octet": _write_octet,
    "timestamp": _write_timestamp,
}
_WRITTEN: Final = tuple(
    (name, _WRITERS[domain], 1 << place) for name, domain, place in FIELDS[:-1] if name != "headers"
)
"""What is written of the broker's own properties beside headers: name, how, flag."""

_values_of: Final = attrgetter(*(name for name, *_ in _WRITTEN))
_NO_TABLE: Final = b"\x00\x00\x00\x00"
_DIRECT_REPLY: Final = DIRECT_REPLY.encode()
_facts: Final[Callable[[tuple[Any, ...]], Facts]] = partial(tuple.__new__, Facts)  # a third of the time
_PLAIN: Final = Facts(is_persistent=False)
_PLAIN_PERSISTENT: Final = Facts(is_persistent=True)
_SHORTSTR, _MODE, _HEADERS, _TIMESTAMP, _PRIORITY, _REPLY_TO, _EXPIRATION, _USER_ID = range(8)
_STEP: Final = {
    "delivery_mode": _MODE,
    "headers": _HEADERS,
    "timestamp": _TIMESTAMP,
    "priority": _PRIORITY,
    "reply_to": _REPLY_TO,
    "expiration": _EXPIRATION,
    "user_id": _USER_ID,
}
_STEPS: Final[dict[int, tuple[int, ...]]] = {}
_STEPS_KEPT: Final = 256
"""Of 16,384 combinations of flags."""
