"""Message properties as AMQP 0-9-1 sends them, and as `shardmq.records` has them.

    property list     flags u16 (bit 15: the first property is there, …; bit 0: more flags follow), then the values
                      of those that are there, in order

A message that came by AMQP keeps its list as it is (`records.AMQP`): nothing here touches it on its way to another AMQP
client. It is read only where the broker has to look inside, and for native clients.
"""

import struct
from typing import Any, Final, NamedTuple

from shardmq.errors import ReplyCode
from shardmq.gateway.amqp.faults import AmqpFault
from shardmq.gateway.amqp.tables import Table, decode_table, encode_table
from shardmq.records import Properties

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

_FLAG: Final = {name: 1 << place for name, _, place in FIELDS}
_LOOKED_AT: Final = _FLAG["priority"] | _FLAG["expiration"] | _FLAG["user_id"]
_LOOKED_INTO: Final = (b"\x02CC", b"\x03BCC")
_FLAGS: Final = struct.Struct(">H")
_SECONDS: Final = struct.Struct(">Q")


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
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[raw] = facts
        return facts


def read_facts(raw: bytes) -> Facts:
    """As `PropertyLists.facts`, without a memory."""
    values = _read(raw)
    headers = values.get("headers") or {}
    priority, expiration, user_id = values.get("priority"), values.get("expiration"), values.get("user_id")
    has_bcc = "BCC" in headers
    has_cc = has_bcc or "CC" in headers
    is_direct_reply = values.get("reply_to") == DIRECT_REPLY
    is_plain = priority is None and expiration is None and user_id is None and not has_cc and not is_direct_reply
    return Facts(values.get("delivery_mode") == PERSISTENT_MODE, is_plain, priority, expiration, user_id, has_cc,
                 has_bcc, is_direct_reply)  # fmt: skip


def decode(raw: bytes) -> Properties:
    """A property list as the broker's own properties. The reserved cluster-id is left out.

    Raises:
        AmqpFault: it is no property list.
    """
    values = _read(raw)
    values.pop("cluster_id", None)
    return Properties(**values)


def encode(properties: Properties) -> bytes:
    """The broker's own properties as a property list."""
    flags = 0
    parts = [b""]
    for name, domain, place in FIELDS[:-1]:
        value = getattr(properties, name)
        if value is not None:
            flags |= 1 << place
            parts.append(_write(domain, value))
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def _read(raw: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    try:
        flags = _FLAGS.unpack_from(raw)[0]
        at = 2
        if flags & 3:
            raise AmqpFault(ReplyCode.SYNTAX_ERROR, "a content header has flags of properties that do not exist")
        for name, domain, place in FIELDS:
            if flags & 1 << place:
                if domain == "shortstr":
                    end = at + 1 + raw[at]
                    if end > len(raw):
                        raise IndexError(end)
                    values[name] = raw[at + 1 : end].decode(errors="backslashreplace")
                    at = end
                elif domain == "octet":
                    values[name] = raw[at]
                    at += 1
                elif domain == "timestamp":
                    values[name] = _SECONDS.unpack_from(raw, at)[0]
                    at += 8
                else:
                    values[name], at = decode_table(raw, at)
    except (IndexError, struct.error):
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "a content header ends in the middle of a property") from None
    except UnicodeDecodeError:
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "a header's name is not UTF-8") from None
    if at != len(raw):
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, f"a content header has {len(raw) - at} bytes too many")
    return values


def _write(domain: str, value: Any) -> bytes:
    if domain == "shortstr":
        data = str(value).encode()[:255]
        return bytes((len(data),)) + data
    if domain == "octet":
        return bytes((value & 255,))
    if domain == "timestamp":
        return _SECONDS.pack(max(0, int(value)))
    table: Table = value
    return encode_table(table)
