"""Calls that wait for an answer: remote procedure calls over direct reply-to."""

import asyncio
from abc import ABC, abstractmethod

from shardmq.client.aio.settler import ChannelSettler
from shardmq.client.aio.transport import Transport
from shardmq.client.api.message import Message
from shardmq.client.core.calls import UNSENT, CallsCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.requests import consuming
from shardmq.client.core.validation import check_timeout
from shardmq.errors import Timeout
from shardmq.message.properties import Properties


class RemoteCalls:
    """The calls of one channel that wait for an answer.

    Args:
        connection: the connection's core.
        transport: the connection's.
        settler: the channel's.
    """

    def __init__(self, connection: ConnectionCore, transport: Transport, settler: ChannelSettler) -> None:
        self._core = CallsCore(connection, settler)
        self._transport = transport
        self._settler = settler

    async def begin(self, seconds: float, what: str) -> str:
        """The name of the queue that answers come to; the first call begins its consumer.

        Raises:
            Timeout: it did not begin in so many seconds.
            ChannelError, ConnectionFault: the channel or the connection ended.
        """
        if self._core.reply_to:
            return self._core.reply_to
        self._settler.flush()
        begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._core.begin(begun)
        self._transport.transmit()
        try:
            return await self._transport.wait(begun, seconds, what)
        except Timeout as late:
            raise Timeout(f"{late.text}; {UNSENT}") from late

    def expect(self) -> tuple[str, asyncio.Future[Message]]:
        """The correlation id of a request, and its answer."""
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return self._core.expect(answer), answer

    async def wait(self, answer: asyncio.Future[Message], seconds: float, what: str, whole: float) -> Message:
        """The answer, in what is left of the whole time that the call may take.

        Raises:
            Timeout: it did not come in so many seconds.
            ChannelError, ConnectionFault: the channel or the connection ended.
        """
        return await self._transport.wait(answer, seconds, what, whole)

    def forget(self, correlation_id: str) -> None:
        """Wait for an answer no more."""
        self._core.forget(correlation_id)


class CallRequests(ABC):
    """Remote procedure calls: part of a channel."""

    _calls: RemoteCalls
    _timeout: float

    @abstractmethod
    async def _publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None,
        mandatory: bool,
        delay_ms: int,
        seconds: float,
        what: str,
        whole: float | None = None,
    ) -> None:
        """Publish one message, and wait for its confirm."""

    async def call(
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
            timeout: seconds that all of it may take, until the answer is there; the connection's when None.

        Returns:
            The answer; it need not be acked.

        Raises:
            Unroutable: no queue took the request: nobody serves it.
            NotFound, AccessRefused, PublishRefused, ContentTooLarge: as `basic_publish`.
            Timeout: no answer in time; the request may have been carried out or not, unless the text says that it was
                not sent.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        seconds = self._timeout if timeout is None else timeout
        check_timeout(seconds)
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        what = f"calling exchange '{exchange}' with routing key '{routing_key}'"
        reply_to = await self._calls.begin(seconds, what)
        correlation_id, answer = self._calls.expect()
        try:
            left = max(until - loop.time(), 0.0)
            asked = consuming.call_properties(properties, reply_to, correlation_id, left)
            await self._publish(exchange, routing_key, body, asked, True, 0, left, what, seconds)
            return await self._calls.wait(answer, until - loop.time(), what, seconds)
        finally:
            self._calls.forget(correlation_id)
            if answer.done() and not answer.cancelled():
                answer.exception()  # the publish has raised the same: nobody else looks at it
