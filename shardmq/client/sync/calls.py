"""Calls that wait for an answer: remote procedure calls over direct reply-to."""

import threading
from abc import ABC, abstractmethod
from itertools import count

from shardmq.client.api.message import Delivery, Message
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import again
from shardmq.client.core.requests import consuming
from shardmq.client.core.validation import check_timeout
from shardmq.client.sync.answers import PendingAnswer
from shardmq.client.sync.consumer import ChannelConsumers
from shardmq.client.sync.transport import Transport
from shardmq.errors import ChannelError, ShardmqError
from shardmq.message.properties import Properties


class RemoteCalls:
    """The calls of one channel that wait for an answer; the inbox of the consumer that the answers come to.

    Args:
        connection: the connection's core.
        transport: the connection's.
        consumers: the channel's.
    """

    def __init__(self, connection: ConnectionCore, transport: Transport, consumers: ChannelConsumers) -> None:
        self._connection = connection
        self._transport = transport
        self._consumers = consumers
        self._beginning = threading.Lock()
        self._reply_to = ""
        self._numbers = count(1)
        self._waiting: dict[str, PendingAnswer[Message]] = {}

    def expect(self) -> tuple[str, str, PendingAnswer[Message]]:
        """Where an answer is to go, its correlation id, and the answer; the first call begins the consumer."""
        with self._beginning:
            if not self._reply_to:
                reply_to = consuming.reply_queue()
                self._consumers.begin(consuming.basic_consume(reply_to, "", 0, True, False, None), self)
                self._reply_to = reply_to
            correlation_id = str(next(self._numbers))
            answer = self._waiting[correlation_id] = PendingAnswer()
            return self._reply_to, correlation_id, answer

    def wait(self, correlation_id: str, answer: PendingAnswer[Message], seconds: float, what: str) -> Message:
        """The answer.

        Raises:
            Timeout: it did not come in so many seconds.
            ChannelError, ConnectionFault: the channel or the connection ended.
        """
        try:
            return self._transport.wait(answer, seconds, what)
        finally:
            self.forget(correlation_id)

    def forget(self, correlation_id: str) -> None:
        """Wait for an answer no more."""
        self._waiting.pop(correlation_id, None)

    def deliver(self, delivery: Delivery) -> None:
        """Hand out answers. Called by the core, under the transport's lock."""
        self._connection.state.taken(self._consumers.settler.core, delivery.size)
        for message in delivery.messages():
            answer = self._waiting.pop(message.properties.correlation_id or "", None)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def end(self, error: ShardmqError | None) -> None:
        """Tell all who wait that no answer comes any more. Called by the core, under the transport's lock."""
        self._reply_to = ""
        waiting, self._waiting = self._waiting, {}
        ended = error or ChannelError("the consumer of answers has ended")
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(again(ended))


class CallRequests(ABC):
    """Remote procedure calls: part of a channel."""

    _calls: RemoteCalls
    _timeout: float

    @abstractmethod
    def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message."""

    def call(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request to another program, and wait for its answer: a remote procedure call over direct reply-to.

        Who answers consumes a queue that the request comes to, and publishes the answer to exchange "" with the
        request's `properties.reply_to` as routing key, and with the request's `properties.correlation_id`. It may do so
        over either protocol. Calls of one channel may overlap, and share one consumer for their answers.

        Args:
            exchange: where the request goes, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the request.
            properties: of the request. Its `reply_to` and `correlation_id` are set here; unless they say otherwise, it
                is transient, and expires when nobody waits for the answer any more.
            timeout: seconds to wait for the answer; the connection's when None.

        Returns:
            The answer; it need not be acked.

        Raises:
            Unroutable: no queue took the request: nobody serves it.
            NotFound, AccessRefused, PublishRefused, ContentTooLarge: as `basic_publish`.
            Timeout: no answer in time; the request may have been carried out or not.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        seconds = self._timeout if timeout is None else timeout
        check_timeout(seconds)
        reply_to, correlation_id, answer = self._calls.expect()
        try:
            asked = consuming.call_properties(properties, reply_to, correlation_id, seconds)
            self.basic_publish(exchange, routing_key, body, asked, mandatory=True)
        except BaseException:
            self._calls.forget(correlation_id)
            raise
        what = f"calling exchange '{exchange}' with routing key '{routing_key}'"
        return self._calls.wait(correlation_id, answer, seconds, what)
