"""Ends over the native protocol: of this broker, and of others."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, Self

from shardmq.client.aio.channel import Channel
from shardmq.client.aio.connection import Connection, connect
from shardmq.client.api.message import properties_of_copy
from shardmq.errors import ConnectionLost, NotFound
from shardmq.shovels.message import ShovelMessage
from shardmq.topology.parameters.shovel import ShovelEnd, ShovelSettings

TIMEOUT_SECONDS: Final = 15.0
"""For a connection and each answer."""

WINDOW: Final = 10_000
"""Messages that are published and not confirmed."""


async def open_channel(url: str) -> tuple[Connection, Channel]:
    """A connection with a channel.

    Raises:
        ShardmqError: nobody answers there, or refuses.
    """
    connection = await connect(url, TIMEOUT_SECONDS, recovery=None)
    try:
        return connection, await connection.channel()
    except BaseException:
        await connection.close()
        raise


async def declare_queue(channel: Channel, end: ShovelEnd) -> int:
    """Make sure that the queue of an end is there; returns how many messages are ready in it."""
    assert end.queue is not None
    try:
        return (await channel.queue_declare(end.queue, passive=True)).messages
    except NotFound:
        if end.is_predeclared:
            raise
        return (await channel.queue_declare(end.queue, durable=True, arguments=end.queue_arguments)).messages


class NativeSource:
    """A queue, or what an exchange routes to a queue of the shovel's own.

    Args:
        connection: of its own.
        channel: of that.
        queue: to be consumed.
        ready: how many messages are ready in it.
        settings: of the shovel.
    """

    def __init__(
        self, connection: Connection, channel: Channel, queue: str, ready: int, settings: ShovelSettings
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._queue = queue
        self._settings = settings
        self.ready = ready

    @classmethod
    async def open(cls, url: str, settings: ShovelSettings) -> Self:
        """Connect, and declare what is missing.

        Raises:
            ShardmqError: it cannot be reached, or there is no such thing.
        """
        connection, channel = await open_channel(url)
        end = settings.source
        try:
            if end.queue is not None:
                queue, ready = end.queue, await declare_queue(channel, end)
            else:
                queue, ready = (await channel.queue_declare(exclusive=True)).queue, 0
                await channel.queue_bind(queue, end.exchange or "", end.key or "")
        except BaseException:
            await connection.close()
            raise
        return cls(connection, channel, queue, ready, settings)

    async def batches(self) -> AsyncIterator[Sequence[ShovelMessage]]:
        """Messages as they come, for ever."""
        settings = self._settings
        is_auto = settings.ack_mode == "no-ack"
        arguments = settings.consumer_arguments or None
        prefetch = settings.prefetch
        async for batch in self._channel.consume_batches(self._queue, prefetch, is_auto, arguments=arguments):
            exchange, keys = batch.exchange, batch.routing_keys
            yield [
                ShovelMessage(message.body, message.delivery_tag, exchange, key, properties_of_copy(message))
                for message, key in zip(batch.messages, keys, strict=True)
            ]

    def ack(self, tag: int) -> None:
        """Acknowledge a message, and all that came before it."""
        self._channel.basic_ack(tag, multiple=True)

    async def close(self) -> None:
        """Send the acknowledgements, and close; what is not acknowledged returns."""
        await self._connection.close()


class NativeDestination:
    """A queue or an exchange.

    Args:
        connection: of its own.
        channel: of that.
        end: where messages go.
    """

    def __init__(self, connection: Connection, channel: Channel, end: ShovelEnd) -> None:
        self._connection = connection
        self._end = end
        self._publisher = channel.publisher(window=WINDOW)

    @classmethod
    async def open(cls, url: str, settings: ShovelSettings) -> Self:
        """Connect, and declare what is missing.

        Raises:
            ShardmqError: it cannot be reached, or there is no such thing.
        """
        connection, channel = await open_channel(url)
        end = settings.destination
        try:
            if end.queue is not None:
                await declare_queue(channel, end)
            elif end.exchange:
                await channel.exchange_declare(end.exchange, passive=True)
        except BaseException:
            await connection.close()
            raise
        return cls(connection, channel, end)

    async def publish(self, message: ShovelMessage) -> None:
        """Publish a message; waits while many are not confirmed."""
        end = self._end
        if end.queue is not None:  # a queue that was deleted since must not swallow messages
            await self._publisher.publish("", end.queue, message.body, message.native, mandatory=True)
            return
        exchange = message.exchange if end.exchange is None else end.exchange
        key = message.routing_key if end.key is None else end.key
        await self._publisher.publish(exchange, key, message.body, message.native)

    async def flush(self) -> None:
        """Wait until all that was published is confirmed."""
        await self._publisher.flush()

    def check(self) -> None:
        """Make sure that it is there."""
        if not self._connection.is_open:
            raise ConnectionLost("the connection to the destination is lost")

    async def close(self) -> None:
        """Close it."""
        await self._connection.close()
