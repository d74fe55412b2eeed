"""Consumers: begun, changed, cancelled."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from shardmq.client.api.defaults import PREFETCH
from shardmq.client.api.handler_errors import OnError, check_handler
from shardmq.client.api.message import Batch, Message
from shardmq.client.core.requests import consuming
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_names, consumer_arguments
from shardmq.client.sync.consumer import ChannelConsumers, HandlerInbox

T = TypeVar("T")


class ConsumeRequests(ABC):
    """The beginning and the end of consumers: part of a channel."""

    _consumers: ChannelConsumers

    @abstractmethod
    def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    @abstractmethod
    def _fail(self, fault: Exception) -> None:
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
