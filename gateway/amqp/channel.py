"""One channel's place in an AMQP connection: what waits for an answer, what is held behind it, and its modes."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardmq.errors import RequestError
from shardmq.gateway.amqp.frames import Event
from shardmq.gateway.amqp.methods import Method
from shardmq.gateway.channel import Channel
from shardmq.gateway.shardlink import Outcome, Reply

if TYPE_CHECKING:
    from shardmq.gateway.amqp.connection import AmqpConnection


class AmqpChannel:
    """See the module.

    Attributes:
        connection: it is on.
        channel: of the session.
        number: of the channel.
        is_waiting: for the answer to a request.
        held: what came behind that request, with the bytes each takes; None where nothing did.
        is_confirming: confirm.select was carried out.
        published: messages so far; the number of the newest.
        last_queue: the queue declared last, which "" means.
        prefetch: that a new consumer begins with.
    """

    __slots__ = ("channel", "connection", "held", "is_confirming", "is_waiting", "last_queue", "number", "prefetch",
                 "published")  # fmt: skip

    def __init__(self, connection: "AmqpConnection", channel: Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.number = channel.number
        self.is_waiting = False
        self.held: deque[tuple[Event, int]] | None = None
        self.is_confirming = False
        self.published = 0
        self.last_queue = ""
        self.prefetch = 0

    def send(self, method: Method) -> None:
        """Say something on this channel."""
        self.connection.send(self.number, method)

    def reply(self, method: Method, shape: Callable[[Any], Method | None]) -> Reply:
        """For a request that is under way: until its answer comes, nothing else is carried out on this channel.

        Args:
            method: the request.
            shape: makes the answer's method of its result; None where nothing is to be said (nowait).
        """
        self.is_waiting = True

        def take(outcome: Outcome) -> None:
            if not self.channel.is_open:
                return
            self.is_waiting = False
            if isinstance(outcome, RequestError):
                self.connection.fail(self, outcome, method.id)
                return
            answer = shape(outcome)
            if answer is not None:
                self.send(answer)
            self.connection.catch_up(self)

        return take
