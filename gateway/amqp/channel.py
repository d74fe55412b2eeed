"""A channel's place in an AMQP connection: what waits for an answer, what is held behind it, and its modes."""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import ReplyCode, RequestError, ShardmqError
from shardmq.gateway.amqp.outbox import ConfirmWriter, Outbox
from shardmq.gateway.amqp.transaction_buffer import TransactionBuffer
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.channel_publisher import ChannelPublisher
from shardmq.gateway.session.client_socket import HELD_OVERHEAD_BYTES
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import AcksReceived, MethodReceived, PublishesReceived, PublishTooLarge
from shardmq.protocol.amqp.methods.basic import BasicCancel
from shardmq.protocol.amqp.methods.fields import Method


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


class ChannelOwner(Protocol):
    """The connection of a channel."""

    def catch_up(self, channel: "AmqpChannel") -> None:
        """Carry out what was held on a channel, as far as nothing holds it any more."""

    def close_channel(self, channel: "AmqpChannel") -> None:
        """Close a channel: the client has asked for it."""

    def fail(self, channel: "AmqpChannel", error: ShardmqError, method: tuple[int, int]) -> None:
        """Close a channel on which something could not be done; or the connection, where the fault is that hard."""


class AmqpChannel:
    """A channel's place in its connection.

    Args:
        owner: the connection.
        outbox: the connection's.
        session_channel: what the channel is, whatever the protocol.

    Attributes:
        client: whose it is.
        number: of the channel.
        publisher: takes what is published (`send`): the session channel's, or the transaction.
        settler: takes what is settled (`ack`, `nack`): the session channel, or the transaction.
        is_waiting: for the answer to a request.
        held: what came behind that request, with the bytes each takes; None where nothing did.
        is_catching_up: what was held is being carried out.
        is_resting: more of it is carried out when others were served.
        is_closing: the client closes it; what it published before goes on, alarm or not.
        is_confirming: confirm.select was carried out.
        published: messages so far; the number of the newest.
        unconfirmed: those of them that came before confirm.select, and are not confirmed.
        confirm_writer: tells the client of the others.
        last_queue: the queue declared last, which "" means.
        prefetch: that a new consumer begins with.
        transaction: what was published and settled since the last commit or rollback; None unless the channel is
            transactional (tx.select).
        replies: where answers to its requests came last; see `reply_queue`.
        cancelled: consumers whose queues are gone, of which the client hears behind the answer it waits for.
    """

    __slots__ = (
        "cancelled",
        "client",
        "confirm_writer",
        "held",
        "is_catching_up",
        "is_closing",
        "is_confirming",
        "is_resting",
        "is_waiting",
        "last_queue",
        "number",
        "outbox",
        "owner",
        "prefetch",
        "published",
        "publisher",
        "replies",
        "session_channel",
        "settler",
        "transaction",
        "unconfirmed",
    )

    def __init__(self, owner: ChannelOwner, outbox: Outbox, session_channel: Channel) -> None:
        self.owner = owner
        self.outbox = outbox
        self.session_channel = session_channel
        self.client = session_channel.client
        self.number = session_channel.number
        self.publisher: ChannelPublisher | TransactionBuffer = session_channel.publisher
        self.settler: Channel | TransactionBuffer = session_channel
        self.is_waiting = self.is_catching_up = self.is_closing = self.is_resting = False
        self.held: deque[tuple[OnChannel, int]] | None = None
        self.is_confirming = session_channel.publisher.is_confirming = False
        self.published = self.unconfirmed = 0
        self.confirm_writer = ConfirmWriter()
        self.last_queue = ""
        self.prefetch = 0
        self.transaction: TransactionBuffer | None = None
        self.replies: ReplyQueue | None = None
        self.cancelled: list[str] = []

    @property
    def is_open(self) -> bool:
        """Whether the channel has not been closed."""
        return self.session_channel.is_open

    def hold(self, event: OnChannel) -> None:
        """Hold what came until what came before it is carried out."""
        size = HELD_OVERHEAD_BYTES
        if not isinstance(event, PublishTooLarge):
            size += event.size
        if self.held is None:
            self.held = deque()
        self.held.append((event, size))
        self.outbox.hold_more(size)

    def drop_held(self) -> None:
        """Drop what is held: the channel ends."""
        if self.held is not None:
            held, self.held = self.held, None
            self.outbox.hold_less(sum([size for _, size in held]))

    def begin_transaction(self) -> None:
        """Hold what is published and settled from now on, until it is committed."""
        if self.transaction is None:
            self.transaction = TransactionBuffer(self.session_channel, self.outbox)
            self.publisher = self.settler = self.transaction

    @property
    def reply_queue(self) -> ReplyQueue | None:
        """Where answers to its requests come, while it consumes from amq.rabbitmq.reply-to."""
        replies = self.replies
        if replies is None:
            return None
        consumer = self.session_channel.consumers.by_tag.get(replies.consumer)
        return replies if consumer is not None and consumer.takes_replies else None

    def reply_name(self, method: tuple[int, int]) -> str:
        """What `amq.rabbitmq.reply-to` in a publish of this channel stands for.

        Args:
            method: class and method number of the publish.

        Raises:
            AmqpError: it does not consume from there yet.
        """
        replies = self.reply_queue
        if replies is None:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist", method)
        return replies.name

    def confirm_frames(self, ranges: list[tuple[int, int]]) -> bytes:
        """The frames that confirm publishes `ranges`; none where the client has not asked for confirms."""
        if not self.is_confirming:
            return b""
        counted = self._as_counted(ranges)
        if self.unconfirmed:  # the client does not hear of those
            publisher = self.session_channel.publisher
            publisher.confirmed -= sum([last - first for first, last in ranges]) + len(ranges)
            publisher.confirmed += sum([last - first for first, last in counted]) + len(counted)
        return self.confirm_writer.acks(self.number, counted)

    def refusal_frames(self, first: int, last: int) -> bytes:
        """The frames that refuse publishes `first` to `last`."""
        return self.confirm_writer.nacks(self.number, self._as_counted([(first, last)]))

    def _as_counted(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Numbers of publishes as the client counts them: from 1 since confirm.select."""
        before = self.unconfirmed
        if not before:
            return ranges
        return [(max(first - before, 1), last - before) for first, last in ranges if last > before]

    def close(self) -> None:
        """Keep nothing of the transaction: the channel is over."""
        if self.transaction is not None:
            self.transaction.drop()

    def send(self, method: Method) -> None:
        """Queue a method on this channel for the end of the pass."""
        self.outbox.send(self.number, method)

    def cancel(self, consumer: str) -> None:
        """Tell the client that a consumer is over, as its queue is gone.

        Where the client has deleted that itself, it hears so first, as from RabbitMQ: py-amqp raises in queue.delete
        what comes before queue.delete-ok.
        """
        self.cancelled.append(consumer)
        if not self.is_waiting:
            self._tell_cancelled()

    def _tell_cancelled(self) -> None:
        while self.cancelled:
            self.send(BasicCancel(self.cancelled.pop(0), nowait=True))

    def reply(self, method: Method, shape: Callable[[Any], Method | None]) -> Reply:
        """A reply for a request; until it is called, nothing else is carried out on this channel.

        Args:
            method: the request.
            shape: makes the answer's method of its result; None where nothing is to be said (nowait).
        """
        self.is_waiting = True

        def take(outcome: Outcome) -> None:
            if not self.is_open:
                return
            self.is_waiting = False
            if isinstance(outcome, RequestError):
                self.owner.fail(self, outcome, method.id)
                return
            answer = shape(outcome)
            if answer is not None:
                self.send(answer)
            self._tell_cancelled()
            self.owner.catch_up(self)

        return take
