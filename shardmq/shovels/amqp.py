"""Ends over AMQP 0-9-1: of any broker that speaks it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final, Self
from urllib.parse import parse_qsl, urlencode, urlunsplit

from shardmq.client.api.url import Address, parse
from shardmq.errors import ConnectionLost, NotFound, PublishRefused, Unroutable
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicReturn,
)
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.shovels.amqp_connection import AmqpConnection
from shardmq.shovels.message import ShovelMessage
from shardmq.topology.parameters.shovel import ShovelEnd, ShovelSettings
from shardmq.urls import split_url

WINDOW: Final = 2000
"""Messages that are published and not confirmed."""

RECEIVED_BYTES_MAX: Final = 16 << 20
"""Of messages that were received and not taken yet; past it the socket is not read."""

CONFIRM_SECONDS: Final = 60.0
"""A destination that confirms nothing for so long is given up, and tried again."""

_KNOWN: Final = ("cacertfile", "certfile", "keyfile", "verify", "server_name_indication", "auth_mechanism")


def address_of(uri: str) -> Address:
    """The address that a URI names; what it says of heartbeats and the like is for other clients.

    Raises:
        InvalidRequest: it cannot be read.
    """
    parts = split_url(uri)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name in _KNOWN and parts.scheme == "amqps"]
    return parse(urlunsplit(parts._replace(query=urlencode(kept))))


async def _queue(connection: AmqpConnection, end: ShovelEnd) -> int:
    """Make sure that the queue of an end is there; returns how many messages are ready in it."""
    assert end.queue is not None
    try:
        there = await connection.call(QueueDeclare(0, end.queue, passive=True), QueueDeclareOk)
    except NotFound:
        if end.is_predeclared:
            raise
        await connection.open_channel()
        wanted = QueueDeclare(0, end.queue, durable=True, arguments=end.queue_arguments)
        there = await connection.call(wanted, QueueDeclareOk)
    return there.message_count


class AmqpSource:
    """A queue, or what an exchange routes to a queue of the shovel's own.

    Args:
        settings: of the shovel.
    """

    def __init__(self, settings: ShovelSettings) -> None:
        self.ready = 0
        self._settings = settings
        self._received: deque[ShovelMessage] = deque()
        self._bytes = 0
        self._is_there = asyncio.Event()
        self._connection: AmqpConnection

    @classmethod
    async def open(cls, uri: str, settings: ShovelSettings) -> Self:
        """Connect, declare what is missing, and consume.

        Raises:
            ShardmqError: it cannot be reached, or there is no such thing.
        """
        source = cls(settings)
        source._connection = await AmqpConnection.open(address_of(uri), source._told)
        source._connection.on_fault(source._is_there.set)
        try:
            await source._consume()
        except BaseException:
            await source.close()
            raise
        return source

    async def _consume(self) -> None:
        connection, settings, end = self._connection, self._settings, self._settings.source
        queue = end.queue
        if queue is not None:
            self.ready = await _queue(connection, end)
        else:
            queue = (await connection.call(QueueDeclare(0, exclusive=True), QueueDeclareOk)).queue
            await connection.call(QueueBind(0, queue, end.exchange or "", end.key or ""), QueueBindOk)
        is_auto = settings.ack_mode == "no-ack"
        await connection.call(BasicQos(0, settings.prefetch), BasicQosOk)
        wanted = BasicConsume(0, queue, no_ack=is_auto, arguments=settings.consumer_arguments)
        await connection.call(wanted, BasicConsumeOk)

    async def batches(self) -> AsyncIterator[Sequence[ShovelMessage]]:
        """Messages as they come, for ever."""
        while True:
            await self._is_there.wait()
            self._connection.check()
            taken, self._bytes = list(self._received), 0
            self._received.clear()
            self._is_there.clear()
            self._connection.room.set()
            yield taken

    def ack(self, tag: int) -> None:
        """Acknowledge a message, and all that came before it."""
        self._connection.send(BasicAck(tag, multiple=True))

    async def close(self) -> None:
        """Send the acknowledgements, and close; what is not acknowledged returns."""
        await self._connection.close()

    def _told(self, method: Method, raw: bytes, body: bytes) -> None:
        if isinstance(method, BasicDeliver):
            self._received.append(
                ShovelMessage(body, method.delivery_tag, method.exchange, method.routing_key, raw=raw)
            )
            self._bytes += len(body)
            self._is_there.set()
            if self._bytes > RECEIVED_BYTES_MAX:
                self._connection.room.clear()


class AmqpDestination:
    """A queue or an exchange.

    Args:
        settings: of the shovel.
    """

    def __init__(self, settings: ShovelSettings) -> None:
        self._end = settings.destination
        self._has_confirms = settings.ack_mode == "on-confirm"
        self._published = 0
        self._unconfirmed: dict[int, None] = {}
        self._settled = asyncio.Event()
        self._connection: AmqpConnection

    @classmethod
    async def open(cls, uri: str, settings: ShovelSettings) -> Self:
        """Connect, and declare what is missing.

        Raises:
            ShardmqError: it cannot be reached, or there is no such thing.
        """
        destination = cls(settings)
        connection = destination._connection = await AmqpConnection.open(address_of(uri), destination._told)
        connection.on_fault(destination._settled.set)
        end = settings.destination
        try:
            if end.queue is not None:
                await _queue(connection, end)
            elif end.exchange:
                await connection.call(ExchangeDeclare(0, end.exchange, "", passive=True), ExchangeDeclareOk)
            if destination._has_confirms:
                await connection.call(ConfirmSelect(), ConfirmSelectOk)
        except BaseException:
            await destination.close()
            raise
        return destination

    async def publish(self, message: ShovelMessage) -> None:
        """Publish a message; waits while many are not confirmed."""
        end, connection = self._end, self._connection
        if end.queue is not None:  # a queue that was deleted since must not swallow messages
            connection.publish("", end.queue, True, message.list, message.body)
        else:
            exchange = message.exchange if end.exchange is None else end.exchange
            key = message.routing_key if end.key is None else end.key
            connection.publish(exchange, key, False, message.list, message.body)
        if self._has_confirms:
            self._published += 1
            self._unconfirmed[self._published] = None
            if len(self._unconfirmed) >= WINDOW:
                await self._wait(WINDOW // 2)
        if connection.is_full:
            await connection.drain()

    async def flush(self) -> None:
        """Wait until all that was published is confirmed."""
        await self._connection.drain()
        await self._wait(0)

    def check(self) -> None:
        """Make sure that it is there."""
        self._connection.check()

    async def close(self) -> None:
        """Close it."""
        await self._connection.close()

    async def _wait(self, most: int) -> None:
        """Wait until so few are not confirmed."""
        while len(self._unconfirmed) > most:
            self._connection.check()
            self._settled.clear()
            try:
                await asyncio.wait_for(self._settled.wait(), CONFIRM_SECONDS)
            except TimeoutError:
                raise ConnectionLost(f"the destination confirmed nothing for {CONFIRM_SECONDS:.0f} s") from None
        self._connection.check()

    def _told(self, method: Method, _raw: bytes, _body: bytes) -> None:
        match method:
            case BasicAck(tag, multiple):
                self._confirm(tag, multiple)
            case BasicNack():
                self._connection.fail(PublishRefused("the destination did not take a message (basic.nack)"))
            case BasicReturn(_, text, exchange, key):
                where = f"exchange '{exchange}' with routing key '{key}'"
                self._connection.fail(Unroutable(f"no queue took a message published to {where}: {text}"))

    def _confirm(self, tag: int, multiple: bool) -> None:
        if multiple:
            for each in [each for each in self._unconfirmed if each <= tag]:
                del self._unconfirmed[each]
        else:
            self._unconfirmed.pop(tag, None)
        self._settled.set()
