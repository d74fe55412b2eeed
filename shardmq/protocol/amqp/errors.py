"""Reply codes and texts, and whether they end the channel or the connection.

Soft codes end the channel, hard ones the connection (section 1.1 of the specification). Where RabbitMQ has a text for
the same error, clients get that text, as programs look for it; the broker's own texts say more.

Errors that pass (a shard or the coordinator is away) end the channel alone, with RESOURCE_ERROR. That code is a hard
one otherwise, but closing the connection would hit channels that have nothing to do with the error. RabbitMQ answers
NOT_FOUND where a queue's node is down; programs then declare a queue that exists.
"""

import re
from typing import Final

from shardmq.errors import (
    ContentTooLarge,
    InvalidRequest,
    OffsetOutOfRange,
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
"""The ids of an error that is about no method."""

LOCKED: Final = (
    r"It could be originally declared on another connection or the exclusive property value does not match that of the "
    r"original declaration."
)
"""What RabbitMQ adds to the text about an exclusive queue of another connection."""

_CODES: Final[dict[type[ShardmqError], ReplyCode]] = {
    InvalidRequest: ReplyCode.PRECONDITION_FAILED,  # it was well-formed AMQP, so no syntax error there
    ContentTooLarge: ReplyCode.PRECONDITION_FAILED,
    OffsetOutOfRange: ReplyCode.PRECONDITION_FAILED,
}
"""The broker's errors that have another code in AMQP."""

_PASSING: Final = (Unavailable, Timeout)
"""Errors that end the channel alone, whatever their code."""

_TEXTS: Final = tuple(
    (re.compile(own, re.DOTALL), rabbitmqs)
    for own, rabbitmqs in (
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
"""The broker's texts, and RabbitMQ's. Names may hold anything, so whole texts are matched."""


class AmqpError(ShardmqError):
    """An error as AMQP clients hear it.

    Attributes:
        method: class and method number of the method it is about; zeros where it is about none.
        is_hard: whether it ends the connection, and not the channel alone.
    """

    is_from_broker = True

    def __init__(self, code: ReplyCode, text: str, method: tuple[int, int] = NO_METHOD) -> None:
        super().__init__(text, code)
        self.method = method
        self.is_hard = code in HARD


def as_amqp_error(error: ShardmqError, method: tuple[int, int] = NO_METHOD) -> AmqpError:
    """An error of the broker as AMQP clients see it.

    Args:
        error: the broker's error.
        method: class and method number of the method it is about, unless the error names one.
    """
    if isinstance(error, AmqpError):
        return error
    amqp_error = AmqpError(_CODES.get(type(error), error.code), rabbitmq_text(error.text), method)
    if isinstance(error, _PASSING):
        amqp_error.is_hard = False
    return amqp_error


def rabbitmq_text(text: str) -> str:
    """RabbitMQ's text for an error text of the broker; the same text where RabbitMQ has none."""
    for own, rabbitmqs in _TEXTS:
        match = own.fullmatch(text)
        if match is not None:
            return match.expand(rabbitmqs)
    return text
