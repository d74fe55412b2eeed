"""Consumers: begun, changed, cancelled."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, Unpack

from shardmq.client.api.defaults import PREFETCH
from shardmq.client.api.handler_errors import OnError, check_handler
from shardmq.client.api.message import Batch, Message
from shardmq.client.api.topics import GroupOptions, Start
from shardmq.client.core.requests import consuming
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_names, check_wait, consumer_arguments
from shardmq.client.sync.consumer import ChannelConsumers, HandlerInbox
from shardmq.client.sync.groups import GroupConsumer

T = TypeVar("T")


class ConsumeRequests(ABC):
    """The beginning and the end of consumers: part of a channel."""

    _consumers: ChannelConsumers

    @abstractmethod
    def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    @abstractmethod
    def _fail(self, fault: BaseException) -> None:
        """Close the channel because a handler raised."""

    def consume(
        self,
        queue: str,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        inactivity_timeout: float | None = None,
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Iterator[Message]:
        """Consume a queue's messages, as a generator.

        Leaving its loop or closing it cancels the consumer, and requeues what was not handed out.

        Args:
            queue: whose messages.
            prefetch: messages unacked at most, 0 for no limit.
            auto_ack: messages are done with when the broker sends them.
            inactivity_timeout: seconds without a message after which the iteration ends; None for never.
            exclusive: nobody else may consume the queue.
            priority: of those with room in their prefetch, consumers of the highest get the messages.
            arguments: of the consumer: x-priority, x-consumer-timeout and the like.
            timeout_ms: a message unacked for longer returns, or is dead-lettered where the queue says so.

        Raises:
            NotFound: no such queue; in the iteration: the queue was deleted.
            AccessRefused: somebody consumes it exclusively, or `exclusive` and somebody consumes it.
        """
        check_wait("inactivity_timeout", inactivity_timeout)
        merged = consumer_arguments(arguments, priority, timeout_ms)
        operation = consuming.basic_consume(queue, "", prefetch, auto_ack, exclusive, merged)
        return self._consumers.messages(operation, inactivity_timeout)

    def consume_batches(
        self,
        queue: str,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        inactivity_timeout: float | None = None,
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Iterator[Batch]:
        """Consume a queue's messages in batches, as they travelled: for bulk work.

        Args:
            queue: whose messages.
            prefetch: messages unacked at most, 0 for no limit.
            auto_ack: messages are done with when the broker sends them.
            inactivity_timeout: seconds without a message after which the iteration ends; None for never.
            exclusive: nobody else may consume the queue.
            priority: of those with room in their prefetch, consumers of the highest get the messages.
            arguments: of the consumer: x-priority, x-consumer-timeout and the like.
            timeout_ms: a message unacked for longer returns, or is dead-lettered where the queue says so.

        Raises:
            NotFound: no such queue; in the iteration: the queue was deleted.
            AccessRefused: somebody consumes it exclusively, or `exclusive` and somebody consumes it.
        """
        check_wait("inactivity_timeout", inactivity_timeout)
        merged = consumer_arguments(arguments, priority, timeout_ms)
        operation = consuming.basic_consume(queue, "", prefetch, auto_ack, exclusive, merged)
        return self._consumers.batches(operation, inactivity_timeout)

    def basic_consume(
        self,
        queue: str,
        callback: Callable[[Message], object],
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        consumer_tag: str = "",
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
        on_error: OnError = "requeue",
    ) -> str:
        """Have a handler called with each message, on one of the connection's worker threads.

        A channel's handlers are called one at a time, in order. One that waits holds up no other channel, as long as
        there are workers left.

        Args:
            queue: whose messages.
            callback: the handler. What it raises is logged with the message's id, and `on_error` says what then.
            prefetch: messages unacked at most, 0 for no limit.
            auto_ack: messages are done with when the broker sends them.
            consumer_tag: the consumer's name; the server makes one up for "".
            exclusive: nobody else may consume the queue.
            priority: of those with room in their prefetch, consumers of the highest get the messages.
            arguments: of the consumer: x-priority, x-consumer-timeout and the like.
            timeout_ms: a message unacked for longer returns, or is dead-lettered where the queue says so.
            on_error: for a message whose handler raised and left it unacked: "requeue": it comes again a second later;
                "reject": it is dead-lettered, or dropped where there is no such exchange; "close": the channel is
                closed, its unacked messages return, and the next use of it tells why.

        Returns:
            The consumer's tag.

        Raises:
            NotFound: no such queue.
            AccessRefused: somebody consumes it exclusively, or `exclusive` and somebody consumes it.
        """
        check_handler(callback, on_error)
        inbox = HandlerInbox(self._consumers, callback, queue, on_error, self._fail)
        merged = consumer_arguments(arguments, priority, timeout_ms)
        operation = consuming.basic_consume(queue, consumer_tag, prefetch, auto_ack, exclusive, merged)
        return self._consumers.begin(operation, inbox)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer.

        What it was handed stays unacked until it is acked; what it was not handed is requeued.
        """
        check_names(consumer_tag=consumer_tag)
        self._consumers.cancel(consumer_tag)

    def basic_qos(self, consumer_tag: str, prefetch: int) -> None:
        """Change a consumer's prefetch while it consumes.

        Args:
            consumer_tag: which consumer.
            prefetch: messages unacked at most, 0 for no limit.

        Raises:
            NotFound: the channel has no such consumer.
        """
        self._ask(consuming.basic_qos(consumer_tag, prefetch))
        self._consumers.settler.note_prefetch(consumer_tag, prefetch)

    def group_consumer(self, topic: str, group: str, **options: Unpack[GroupOptions]) -> GroupConsumer:
        """Consume a topic as a member of a group: each message goes to one of its members.

        Offsets are durable, and a group goes on where it was. A stream is a topic of one partition.

        Args:
            topic: what to consume.
            group: its name; the first member makes it.
            options: `shared=True`: any number of members get the messages of each partition, in turn; else one member
                has each partition, and its messages come in order. `start`: where a new group begins: an offset,
                "earliest", "latest" (the default), or a time. `tags`, `has_untagged`: which messages. `pull` (10):
                messages of a `poll` at most. `prefetch` (1000): messages unacked at most. `auto_commit` (True): what
                was handled is acknowledged by the next step; if not, by `commit()` or message by message.
                `on_assigned(partitions)`: called with (number, offset) of those that the consumer gets;
                `on_revoked(partitions, is_lost)`: with the numbers of those that it is to let go of, to finish and
                commit what it began there. `inactivity_timeout`: seconds without a message after which iterations end.
                `timeout_ms`: a message unacked for longer goes to another member, and in an ordered group all
                partitions of the consumer with it, until its next step. `delivery_limit`, `dead_letter_exchange`,
                `dead_letter_routing_key`: what becomes of messages that are given back too often, or are rejected.

        Raises:
            NotFound: there is no such topic.
            PreconditionFailed: the group is of the other kind, or has other settings.
        """
        consumer = GroupConsumer.__new__(GroupConsumer)
        consumer._set_up(self._consumers, self._ask, topic, group, options)
        return consumer

    def reader(
        self,
        topic: str,
        partition: int = 0,
        start: Start = "latest",
        tags: str | list[str] | None = None,
        inactivity_timeout: float | None = None,
    ) -> Iterator[Message]:
        """Read a partition from an offset on, as a generator, and leave all as it is.

        Messages come as fast as the program takes them, and need not be acked. After a lost connection, and whatever
        else is lost, it reads on where it was. A stream is a topic whose only partition is 0.

        Args:
            topic: whose messages.
            partition: its number, from 0.
            start: the offset of the first message, "earliest", "latest", or a time: the first that came then or later.
            tags: a tag, or a list of them, of which each message is to have one.
            inactivity_timeout: seconds without a message after which the iteration ends; None for never.

        Raises:
            NotFound: there is no such topic, or partition.
            OffsetOutOfRange: that offset was dropped by retention, or is past the next one; in the iteration: the next
                message was dropped before it was read.
        """
        check_wait("inactivity_timeout", inactivity_timeout)
        operation = consuming.reader_consume(topic, partition, start, tags)
        return self._consumers.messages(operation, inactivity_timeout)
