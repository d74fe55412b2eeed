"""The calls of a channel that wait for an answer, without any I/O: remote procedure calls over direct reply-to."""

from itertools import count
from typing import Final

from shardmq.client.api.message import Delivery, Message
from shardmq.client.core.channel import SettlerCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Reply, again
from shardmq.client.core.requests import consuming
from shardmq.errors import ChannelError, ShardmqError

UNSENT: Final = "the message was not sent, and will not be"
"""Said of what was still held when nobody waited for it any more."""


class CallsCore:
    """The inbox of the consumer that a channel's answers come to, and who waits for which.

    The consumer begins with the first call, and once for all of them: who waits no more leaves it to the others.

    Args:
        connection: the connection's core.
        settler: the channel's.

    Attributes:
        reply_to: the name of the queue of answers, "" until the consumer has begun.
    """

    def __init__(self, connection: ConnectionCore, settler: SettlerCore) -> None:
        self.reply_to = ""
        self._connection = connection
        self._settler = settler
        self._beginning: _Beginning | None = None
        self._numbers = count(1)
        self._waiting: dict[str, Reply[Message]] = {}

    def begin(self, reply: Reply[str]) -> None:
        """Settle a reply with the name of the queue of answers once its consumer has begun; begin it if nobody has."""
        if self.reply_to:
            reply.set_result(self.reply_to)
            return
        if self._beginning is not None:
            self._beginning.replies.append(reply)
            return
        self._beginning = _Beginning(self, reply)
        operation = consuming.basic_consume(self._beginning.reply_to, "", 0, True, False, None)
        try:
            self._connection.consume(self._settler.core, operation, self, self._beginning)
        except BaseException:
            self._beginning = None
            raise

    def begun(self, reply_to: str) -> None:
        """Note that the consumer has begun, or "" where it could not."""
        self.reply_to = reply_to
        self._beginning = None

    def expect(self, answer: Reply[Message]) -> str:
        """The correlation id of a request, whose answer is for who waits here."""
        correlation_id = str(next(self._numbers))
        self._waiting[correlation_id] = answer
        return correlation_id

    def forget(self, correlation_id: str) -> None:
        """Wait for an answer no more."""
        self._waiting.pop(correlation_id, None)

    def deliver(self, delivery: Delivery) -> None:
        """Hand out answers."""
        self._connection.state.taken(self._settler.core, delivery.size)
        for message in delivery.messages():
            answer = self._waiting.pop(message.properties.correlation_id or "", None)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def end(self, error: ShardmqError | None) -> None:
        """Tell all who wait that no answer comes any more."""
        self.reply_to = ""
        waiting, self._waiting = self._waiting, {}
        ended = error or ChannelError("the consumer of answers has ended")
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(again(ended))


class _Beginning:
    """The reply to what begins the consumer of answers: for all who wait for that, and for who comes later."""

    def __init__(self, calls: CallsCore, reply: Reply[str]) -> None:
        self.reply_to = consuming.reply_queue()
        self.replies = [reply]
        self._calls = calls

    def done(self) -> bool:
        """False: where all have given up waiting, the next call finds the consumer."""
        return False

    def set_result(self, _tag: str, /) -> None:
        """Tell all that it has begun."""
        self._calls.begun(self.reply_to)
        for reply in self.replies:
            if not reply.done():
                reply.set_result(self.reply_to)

    def set_exception(self, error: ShardmqError, /) -> None:
        """Tell all why it has not begun; the next call tries again."""
        self._calls.begun("")
        for reply in self.replies:
            if not reply.done():
                reply.set_exception(again(error))
