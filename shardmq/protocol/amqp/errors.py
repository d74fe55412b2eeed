"""What goes wrong in AMQP: a reply code, a text, the method it is about; and how the broker's own errors read there.

Soft codes end the channel, hard ones the connection (section 1.1 of the specification). Texts are RabbitMQ's where it
has words for the same thing: programs look into them. The broker's own say more; what they add is cut off here.

Trouble that passes (a shard or the coordinator is away) ends the channel alone, with RESOURCE_ERROR: closing the
connection, as that code does elsewhere, would hit channels that have nothing to do with it, and NOT_FOUND, which
RabbitMQ gives where a queue's node is down, makes programs declare what is there.
"""

import re
from typing import Final

from shardmq.errors import (
    ContentTooLarge,
    InvalidRequest,
    ReplyCode,
    ShardmqError,
    Timeout,
    Unavailable,
)

HARD: Final = frozenset(
    {
        ReplyCode.CONNECTION_FORCED,
        ReplyCode.INVALID_PATH,
        ReplyCode.FRAME_ERROR,
        ReplyCode.SYNTAX_ERROR,
        ReplyCode.COMMAND_INVALID,
        ReplyCode.CHANNEL_ERROR,
        ReplyCode.UNEXPECTED_FRAME,
        ReplyCode.RESOURCE_ERROR,
        ReplyCode.NOT_ALLOWED,
        ReplyCode.NOT_IMPLEMENTED,
        ReplyCode.INTERNAL_ERROR,
    }
)
"""Codes that end the connection."""

NO_METHOD: Final = (0, 0)

LOCKED: Final = (
    r"It could be originally declared on another connection or the exclusive property value does not match that of the "
    r"original declaration."
)

_CODES: Final[dict[type[ShardmqError], ReplyCode]] = {
    InvalidRequest: ReplyCode.PRECONDITION_FAILED,  # it was well-formed AMQP, so no syntax error there
    ContentTooLarge: ReplyCode.PRECONDITION_FAILED,
}
"""The broker's errors that have another code in AMQP."""

_PASSING: Final = (Unavailable, Timeout)
"""Errors that end the channel alone, whatever their code."""

_TEXTS: Final = tuple(
    (re.compile(native, re.DOTALL), said)
    for native, said in (
        (r"(no (?:queue|exchange) '.*' in vhost '.*'); declare it first", r"\1"),
        (r"(cannot publish to internal exchange '.*' in vhost '.*'); use one bound to it", r"\1"),
        (r"(.* contains reserved prefix 'amq\.\*'); choose another name", r"\1"),
        (r"(queue '.*' in vhost '.*' in use): it has .*", r"\1"),
        (r"(queue '.*' in vhost '.*' not empty): .*", r"\1"),
        (r"(queue '.*' in vhost '.*') has consumers already", r"\1 in exclusive use"),
        (r"(queue '.*' in vhost '.*') has x-single-active-consumer: .*", r"\1 in exclusive use"),
        (
            r"cannot obtain access to locked (queue '.*' in vhost '.*'): it is exclusive .*",
            rf"cannot obtain exclusive access to locked \1. {LOCKED}",
        ),
        (r"(unknown delivery tag \d+): .*", r"\1"),
        (r"(user_id property set to '.*' but authenticated user was '.*'); set your own, or none", r"\1"),
    )
)
"""The broker's texts, and what RabbitMQ says. Names may hold anything, hence whole texts are matched."""


class AmqpError(ShardmqError):
    """What came made no sense, or can not be done.

    Attributes:
        method: class and method number of what it is about; zeros where it is about none.
        is_hard: whether the connection ends with it; its channel alone otherwise.
    """

    def __init__(self, code: ReplyCode, text: str, method: tuple[int, int] = NO_METHOD) -> None:
        super().__init__(text, code)
        self.method = method
        self.is_hard = code in HARD


def as_amqp_error(error: ShardmqError, method: tuple[int, int] = NO_METHOD) -> AmqpError:
    """An error of the broker as AMQP clients see it, about that method unless it says which."""
    if isinstance(error, AmqpError):
        return error
    fault = AmqpError(_CODES.get(type(error), error.code), said(error.text), method)
    if isinstance(error, _PASSING):
        fault.is_hard = False
    return fault


def said(text: str) -> str:
    """A text of the broker in RabbitMQ's words, where it has some."""
    for native, words in _TEXTS:
        match = native.fullmatch(text)
        if match is not None:
            return match.expand(words)
    return text
