"""What goes wrong in AMQP: a reply code, a text, the method it is about; and how the broker's own errors read there.

Soft codes end the channel, hard ones the connection (section 1.1 of the specification).
"""

from typing import Final

from shardmq.errors import ReplyCode, ShardmqError

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


class AmqpFault(ShardmqError):
    """What came made no sense, or can not be done.

    Attributes:
        method: class and method number of what it is about; zeros where it is about none.
        is_hard: whether the connection ends with it; its channel alone otherwise.
    """

    def __init__(self, code: ReplyCode, text: str, method: tuple[int, int] = NO_METHOD) -> None:
        super().__init__(text, code)
        self.method = method
        self.is_hard = code in HARD
