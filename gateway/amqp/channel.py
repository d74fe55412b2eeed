"""One channel's place in an AMQP connection: what waits for an answer, what is held behind it, and its modes."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import ReplyCode, RequestError
from shardmq.gateway.amqp.outbox import ConfirmWriter
from shardmq.gateway.session.channel import Channel
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import AcksReceived, MethodReceived, PublishesReceived, PublishTooLarge
from shardmq.protocol.amqp.methods.basic import BasicCancel
from shardmq.protocol.amqp.methods.fields import Method

if TYPE_CHECKING:
    from shardmq.gateway.amqp.connection import AmqpConnection
    from shardmq.gateway.amqp.transaction_buffer import TransactionBuffer


class ReplyQueue(NamedTuple):
    """Where answers to a channel's requests come.

    Attributes:
        name: of the queue, which is what `reply_to` says.
        consumer: its consumer's tag.
    """

    name: str
    consumer: str


OnChannel = PublishesReceived | AcksReceived | MethodReceived | PublishTooLarge
"""What comes on channels."""


class AmqpChannel:
    """See the module.

    Attributes:
        connection: it is on.
        channel: of the session.
        number: of the channel.
        is_waiting: for the answer to a request.
        held: what came behind that request, with the bytes each takes; None where nothing did.
        is_catching_up: what was held is being carried out.
        is_resting: more of it is carried out when others were served.
        is_parting: the client closes it; what it published before goes on, alarm or not.
        is_confirming: confirm.select was carried out.
        published: messages so far; the number of the newest.
        unconfirmed: those of them that came before confirm.select, and are not confirmed.
        told: what the client knows of the others.
        last_queue: the queue declared last, which "" means.
        prefetch: that a new consumer begins with.
        transaction: what was published and settled since the last commit or rollback; None unless the channel is
            transactional (tx.select).
        outlet: takes what is published (`send`) and settled (`ack`, `nack`): the channel, or its transaction.
        replies: where answers to its requests came last; see `reply_queue`.
        cancelled: consumers whose queues are gone, of which the client hears behind the answer it waits for.
    """

    __slots__ = (
        "cancelled",
        "channel",
        "connection",
        "held",
        "is_catching_up",
        "is_confirming",
        "is_parting",
        "is_resting",
        "is_waiting",
        "last_queue",
        "number",
        "outlet",
        "prefetch",
        "published",
        "replies",
        "told",
        "transaction",
        "unconfirmed",
    )

    def __init__(self, connection: "AmqpConnection", channel: Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.number = channel.number
        self.is_waiting = self.is_catching_up = self.is_parting = self.is_resting = False
        self.held: deque[tuple[OnChannel, int]] | None = None
        self.is_confirming = False
        self.published = self.unconfirmed = 0
        self.told = ConfirmWriter()
        self.last_queue = ""
        self.prefetch = 0
        self.transaction: TransactionBuffer | None = None
        self.outlet: Channel | TransactionBuffer = channel
        self.replies: ReplyQueue | None = None
        self.cancelled: list[str] = []

    @property
    def reply_queue(self) -> "ReplyQueue | None":
        """Where answers to its requests come, while it consumes from amq.rabbitmq.reply-to."""
        replies = self.replies
        return replies if replies is not None and replies.consumer in self.channel.consumers else None

    def reply_name(self, method: tuple[int, int]) -> str:
        """What `amq.rabbitmq.reply-to` in a publish of this channel stands for.

        Args:
            method: class and method number of the publish.

        Raises:
            AmqpFault: it does not consume from there yet.
        """
        replies = self.reply_queue
        if replies is None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist", method)
        return replies.name

    def as_counted(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Numbers of publishes as the client counts them: from 1 since confirm.select."""
        before = self.unconfirmed
        if not before:
            return ranges
        return [(max(first - before, 1), last - before) for first, last in ranges if last > before]

    def close(self) -> None:
        """The channel is over: nothing of its transaction is kept."""
        if self.transaction is not None:
            self.transaction.drop()

    def send(self, method: Method) -> None:
        """Say something on this channel."""
        self.connection.send(self.number, method)

    def cancel(self, consumer: str) -> None:
        """Tell the client that a consumer is over, as its queue is gone. Where the client has deleted that itself, it
        hears so first, as from RabbitMQ: py-amqp raises in queue.delete what comes before queue.delete-ok.
        """
        self.cancelled.append(consumer)
        if not self.is_waiting:
            self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        while self.cancelled:
            self.send(BasicCancel(self.cancelled.pop(0), nowait=True))

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
            self._tell_cancelled()
            self.connection.catch_up(self)

        return take
