"""What the broker has to know of a property list, read without decoding it."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from shardmq.protocol.amqp.properties import FIELDS, cut_off, text_of, wrong_end
from shardmq.protocol.amqp.table_check import check_table, entries_of

PERSISTENT_MODE: Final = 2
"""The delivery mode of persistent messages."""

DIRECT_REPLY: Final = "amq.rabbitmq.reply-to"
"""The pseudo-queue that asks for a direct reply in reply_to (https://www.rabbitmq.com/docs/direct-reply-to)."""

KNOWN_MAX: Final = 4096
"""Property lists whose facts are remembered. When there are more, all are forgotten: they belong to messages that all
differ."""

KNOWN_BYTES_MAX: Final = 1024
"""Longer lists are not remembered. They may have 128 KB, and mostly differ from message to message."""

STEPS_KEPT: Final = 256
"""Combinations of properties that are remembered, of 16,384."""

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
_DIRECT_REPLY: Final = DIRECT_REPLY.encode()


class Facts(NamedTuple):
    """What the broker has to know of a property list before it sends its message on.

    Attributes:
        is_persistent: whether its delivery mode is 2.
        is_plain: whether nothing else in it has a meaning for the broker: all attributes below have their defaults.
        priority: the property.
        expiration: the property as it was sent, not checked.
        user_id: the property.
        has_cc: whether there is a header CC or BCC. The list has to be decoded to know the routing keys.
        has_bcc: whether there is a header BCC. The message goes on `without_bcc`.
        is_direct_reply: whether reply_to is `DIRECT_REPLY`. The message goes on `with_reply_name`.
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
    """Reads the facts of property lists, and remembers those of the lists seen last."""

    def __init__(self) -> None:
        self._known: dict[bytes, Facts] = {}

    def facts(self, raw: bytes) -> Facts:
        """The facts of a property list.

        Raises:
            AmqpError: it is no property list (502).
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


_facts: Final[Callable[[tuple[Any, ...]], Facts]] = partial(tuple.__new__, Facts)  # a third of the time
PLAIN: Final = Facts(is_persistent=False)
PLAIN_PERSISTENT: Final = Facts(is_persistent=True)
"""The facts of lists in which nothing but the delivery mode has a meaning for the broker: always one of these two."""


def read_facts(raw: bytes) -> Facts:  # noqa: PLR0912 - a step each, in the loop: calls would take twice the time
    """Read the facts of a property list, and check all of it.

    For three properties, one of them a table of three headers, that takes a microsecond; decoding takes four.

    Raises:
        AmqpError: it is no property list (502).
    """
    mode = 0
    priority = expiration = user_id = None
    is_plain = True
    has_cc = has_bcc = is_direct_reply = False
    at = 2
    try:
        for step in _steps(raw[0] << 8 | raw[1]):
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
                    expiration, is_plain = text_of(value), False
                else:
                    user_id, is_plain = text_of(value), False
    except IndexError:
        raise cut_off() from None
    if at != len(raw):
        raise wrong_end(at, len(raw))
    if is_plain:
        return PLAIN_PERSISTENT if mode == PERSISTENT_MODE else PLAIN
    return _facts((mode == PERSISTENT_MODE, False, priority, expiration, user_id, has_cc, has_bcc, is_direct_reply))


def _copies(raw: bytes, at: int) -> tuple[bool, bool]:
    """Whether there is CC or BCC among a table's names, and whether BCC is."""
    names = {name for name, *_ in entries_of(raw, at)}
    return b"CC" in names or b"BCC" in names, b"BCC" in names


@lru_cache(STEPS_KEPT)
def _steps(flags: int) -> tuple[int, ...]:
    """What a list with these flags has in it, in order."""
    return tuple([_STEP.get(name, _SHORTSTR) for name, _, place in FIELDS if flags & 1 << place])
