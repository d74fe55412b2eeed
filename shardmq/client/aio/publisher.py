"""Pipelined publishing: what is published before the event loop waits again shares batches."""

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from msgspec import Raw
from msgspec.structs import replace

from shardmq.client.aio.transport import Transport
from shardmq.client.core.batching import (
    NO_EXTRAS,
    PublishBatch,
    PublishOptions,
    batches_of,
    flags_of,
    numbering_of,
)
from shardmq.client.core.channel import ChannelCore, Publish
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.publishing.builder import BatchBuilder
from shardmq.client.core.publishing.collector import BatchCollector
from shardmq.client.core.publishing.pairs import batches_of_pairs
from shardmq.client.core.publishing.sent import SentBatches
from shardmq.client.core.validation import check_count, check_delay, check_names, check_sequence, check_wait
from shardmq.errors import ChannelError, ShardmqError, Unroutable
from shardmq.message.properties import Properties


class PendingConfirm:
    """One publish that a coroutine waits for.

    Attributes:
        future: settled with the confirm.
    """

    __slots__ = ("_came_back", "future")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self._came_back: Unroutable | None = None

    def settled(self, _count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Settle the future with the message's confirm, before which the message may have come back."""
        error = self._came_back if taken or error is None else error
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)

    def returned(self, _count: int, error: Unroutable) -> bool:
        """Keep the message that came back: that is told with its confirm."""
        self._came_back = error
        return False


class Publisher:
    """Publishes many messages without waiting for each one's confirm.

    `Channel.publisher` makes one. An async context manager: leaving it flushes, and raises what was refused.
    """

    def __init__(self) -> None:
        raise TypeError("a publisher is made by Channel.publisher()")

    def _set_up(
        self,
        core: ConnectionCore,
        transport: Transport,
        channel: ChannelCore,
        window: int | None,
        timeout: float,
        producer: int,
        has_return_hook: Callable[[], bool],
        forget: Callable[["Publisher"], None],
        publish: Publish | None = None,
    ) -> None:
        check_count("window", window)
        self._core = core
        self._transport = transport
        self._channel = channel
        self._timeout = timeout
        self._producer = producer
        self._sent = SentBatches(has_return_hook)
        self._forget = forget
        self._publish: Publish = publish or core.publish
        self._collecting = BatchCollector(producer, lambda: core.state.server, window)
        self._is_due = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self._is_closed = True
            self._forget(self)
            self._send()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open"
        return f"<Publisher on channel {self._channel.number}, {self.unconfirmed} unconfirmed, {state}>"

    @property
    def unconfirmed(self) -> int:
        """Messages published and not yet confirmed or refused."""
        return self._sent.unconfirmed + self._collecting.count

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
        sequence: int | None = None,
    ) -> None:
        """Publish one message; waits only while the window is full.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the message.
            properties: of the message; persistent unless their delivery_mode is 1.
            mandatory: it comes back where no queue takes it: to the hook (`Connection.on_return`), else to `flush`.
            delay_ms: it joins its queues so many milliseconds later.
            sequence: its number, for publishers with a producer's name.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit; nothing was sent.
            Timeout: the window stayed full; the message was not taken. Where its text begins with "sending", it was
                taken, and the broker reads nothing now.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        collecting = self._collecting
        filling, head = collecting.filling, None
        if mandatory or delay_ms or self._producer or sequence is not None:
            filling = self._special(exchange, routing_key, properties, mandatory, delay_ms, sequence)
        else:
            is_its = filling.routing_key == routing_key and filling.exchange == exchange and not filling.is_keyed
            if not is_its or (filling.plain is not properties and (head := filling.heads.get(id(properties))) is None):
                filling, head = self._turn_to(exchange, routing_key, properties, NO_EXTRAS)
        if type(body) is not bytes or len(body) > filling.body_max:
            filling.check(body)
        count = collecting.aside + len(filling.bodies) + 1
        if self._sent.unconfirmed + count > collecting.window:
            await self._wait_for_window()
            if sequence is not None:  # others may have published meanwhile
                filling = self._special(exchange, routing_key, properties, mandatory, delay_ms, sequence)
        if self._is_closed or self._channel.fault is not None:
            self._check()
        filling.bodies.append(body if head is None else (head, body, routing_key) if filling.is_keyed else (head, body))
        filling.size += len(body)
        if filling is not collecting.filling:  # another task turned to a new one while this one waited
            self._send_batches(collecting.sweep(filling))
        if count >= collecting.records_max or collecting.aside_bytes + filling.size >= collecting.bytes_max:
            self._send()
            await self._transport.make_room(self._timeout)
        elif not self._is_due:
            self._is_due = True
            self._transport.due(self._flush_due)

    async def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Iterable[bytes],
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
        sequence: int | None = None,
    ) -> None:
        """Publish many messages that share exchange, routing key and properties: a few hundred to a batch.

        Args:
            exchange: where to.
            routing_key: for all of them.
            bodies: the messages, in any iterable; taken a batch at a time.
            properties: of all of them.
            mandatory: they come back where no queue takes them.
            delay_ms: they join their queues so many milliseconds later.
            sequence: the first one's number, for publishers with a producer's name.

        Raises:
            ShardmqError: what `publish` raises; the batches before the one at fault were sent.
        """
        check_names(exchange=exchange, routing_key=routing_key)
        check_delay(delay_ms)
        check_sequence(self._producer, sequence)
        flags = flags_of(properties, mandatory)
        producer = self._producer or numbering_of(exchange, properties)
        number = sequence or 0
        for count, records in batches_of(bodies, properties, self._core.state.server.message_max):
            if self.unconfirmed >= self._collecting.window:
                await self._wait_for_window()
            self._check()
            batch = (exchange, routing_key, flags, count, records, delay_ms, producer, number, 0)
            self._send_batches([*self._collecting.take(), batch])
            number += count
            await self._transport.make_room(self._timeout)

    async def publish_keyed(
        self,
        exchange: str,
        messages: Iterable[tuple[str, bytes]],
        properties: Properties | None = None,
        mandatory: bool = False,
    ) -> None:
        """Publish many messages that share exchange and properties, each with its routing key, in the order they come.

        Args:
            exchange: where to, as a topic.
            messages: routing key and body of each, in any iterable; taken a batch at a time.
            properties: of all of them.
            mandatory: they come back where no queue takes them.

        Raises:
            ShardmqError: what `publish` raises; the batches before the one at fault were sent.
            TypeError: a message is no pair of a str and bytes; the same.
        """
        check_names(exchange=exchange)
        check_sequence(self._producer, None)
        for batch in batches_of_pairs(exchange, messages, properties, mandatory, self._core.state.server):
            if self.unconfirmed >= self._collecting.window:
                await self._wait_for_window()
            self._check()
            self._send_batches([*self._collecting.take(), batch])
            await self._transport.make_room(self._timeout)

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything and wait until all of it is confirmed.

        Args:
            timeout: seconds to wait; the connection's when None.

        Raises:
            NotFound, AccessRefused, PublishRefused, Unroutable, …: messages were refused or came back since the last
                flush (`refused`, `came_back` of the error); the text says how many, and the first one's reason.
            Timeout: not all was confirmed in time; it may still be.
            ChannelError, ConnectionFault: the channel or connection closed before all was confirmed.
        """
        check_wait("timeout", timeout)
        self._send()
        seconds = self._timeout if timeout is None else timeout
        await self._wait_for(None, seconds, f"flush ({self._sent.target})")
        error = self._sent.take_error()
        if error is not None:
            raise error

    async def close(self) -> None:
        """Flush, and publish no more.

        Raises:
            ShardmqError: messages were refused since the last flush, or not all was confirmed, as `flush` says.
        """
        self._is_closed = True
        self._forget(self)
        if self.unconfirmed or self._sent.error is not None:
            await self.flush()

    def _special(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties | None,
        mandatory: bool,
        delay_ms: int,
        sequence: int | None,
    ) -> BatchBuilder:
        """The batch that a message with options joins; neighbours in number share one."""
        check_sequence(self._producer, sequence)
        collecting = self._collecting
        filling = collecting.filling
        extras = PublishOptions(mandatory, delay_ms, self._producer, sequence or 0)
        like = replace(extras, sequence=filling.extras.sequence) if self._producer else extras
        is_next = not self._producer or collecting.next_sequence() == sequence
        if not is_next or not filling.is_like(exchange, routing_key, properties, like):
            return self._turn_to(exchange, routing_key, properties, extras)[0]
        return filling

    def _turn_to(
        self, exchange: str, routing_key: str, properties: Properties | None, extras: PublishOptions
    ) -> tuple[BatchBuilder, Raw | None]:
        """The batch that a message joins, and its encoded properties, where its body is to wait with them."""
        filling = self._collecting.filling
        if extras is NO_EXTRAS and (filling.heads or filling.encoded is not None):
            joined = self._collecting.joined(exchange, routing_key, properties)
            if joined is not None:
                return joined
        head = self._collecting.turn_to(exchange, routing_key, properties, extras)
        return self._collecting.filling, head

    def _send(self) -> None:
        """Send what is being collected, without waiting for it to be confirmed."""
        self._send_batches(self._collecting.take())

    def _flush_due(self) -> None:
        """Send what is being collected: it has waited for its neighbours."""
        self._is_due = False
        self._send()

    def _send_batches(self, batches: list[PublishBatch]) -> None:
        sent = self._sent
        for batch in batches:
            confirms = sent.add(batch)
            fault = self._core.state.fault or self._channel.fault
            if fault is None:
                self._publish(self._channel, batch, confirms)
            else:
                confirms.settled(batch[3], fault)
        self._transport.transmit()

    async def _wait_for_window(self) -> None:
        self._send()
        self._check()
        window = self._collecting.window
        what = f"room in the window of {window} messages ({self._sent.target})"
        await self._wait_for(self._sent.messages - window // 2, self._timeout, what)

    async def _wait_for(self, wanted: int | None, seconds: float, what: str) -> None:
        if not self._sent.are_settled(wanted):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._sent.when_settled(wanted, waiter)
            await self._transport.wait(waiter, seconds, what)

    def _check(self) -> None:
        self._core.state.check(self._channel)
        if self._is_closed:
            raise ChannelError("this publisher is closed")
