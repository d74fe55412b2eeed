"""A channel for asyncio: RabbitMQ's verbs as coroutines."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from shardmq.client.aio.consumer import DeliveryQueue, Handler, HandlerInbox
from shardmq.client.aio.publisher import Publisher
from shardmq.client.aio.topology import TopologyRequests
from shardmq.client.aio.transaction import Transaction
from shardmq.client.api.defaults import ACK_AT_MOST, CLOSE_SECONDS, PREFETCH, WINDOW
from shardmq.client.api.handler_errors import OnError, check_handler
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.core.batching import flags_of, record_of
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Inbox, again
from shardmq.client.core.requests import Request
from shardmq.client.core.validation import (
    check_delay,
    check_names,
    check_prefetch,
    check_tag,
    consumer_arguments,
    producer_number,
)
from shardmq.errors import (
    ChannelError,
    ConnectionFault,
    InvalidRequest,
    NotFound,
    ShardmqError,
    Timeout,
    Unroutable,
)
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume, BasicQos
from shardmq.protocol.native.operations.fields import Operation

if TYPE_CHECKING:
    from shardmq.client.aio.transport import Transport


T = TypeVar("T")


class _Confirm:
    """One publish that a coroutine waits for."""

    __slots__ = ("_came_back", "_future")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future
        self._came_back: Unroutable | None = None

    def settled(self, _count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Its confirm came, or will not."""
        error = self._came_back if taken or error is None else error
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def returned(self, _count: int, error: Unroutable) -> bool:
        """The message came back: that is told with its confirm, and to who waits alone."""
        self._came_back = error
        return False


class Channel(TopologyRequests):
    """Made by `Connection.channel`. Its requests are carried out in the order they were made.

    An async context manager: leaving it closes the channel. What each method takes and raises is what `shardmq.Channel`
    says; acks are plain calls, sent together before the event loop waits again.
    """

    def __init__(
        self,
        core: ConnectionCore,
        wire: "Transport",
        timeout: float,
        has_return_hook: Callable[[], bool],
        forget: Callable[["Channel"], None],
    ) -> None:
        self._connection = core
        self._wire = wire
        self._timeout = timeout
        self._has_return_hook = has_return_hook
        self._forget = forget
        self._is_due = False
        self._ack_at = ACK_AT_MOST
        self._prefetches: dict[str, int] = {}
        self._publishers: list[Publisher] = []
        self._core: ChannelCore

    async def open(self) -> None:
        """Open it; `Connection.channel` does."""
        opened = self._future()
        self._core = self._connection.open_channel(self, opened)
        await self._answer(opened, f"opening channel {self.number}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_open:
            await self.close()

    def __repr__(self) -> str:
        return f"<aio Channel {self.number}, {'open' if self.is_open else 'closed'}>"

    @property
    def number(self) -> int:
        """Its number on the connection."""
        return self._core.number

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._core.fault is None

    # --- publishing -------------------------------------------------------------------------------------------------

    async def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message; returns when it is confirmed: in every queue it was routed to, on disk where durable."""
        check_names(exchange=exchange, routing_key=routing_key)
        check_delay(delay_ms)
        record = record_of(body, properties, self._connection.server.message_max)
        self._send_published()
        confirmed = self._future()
        confirm = _Confirm(confirmed)
        run = (exchange, routing_key, flags_of(properties, mandatory), 1, record, delay_ms, 0, 0, 0)
        self._connection.publish(self._core, run, confirm)
        try:
            await self._answer(confirmed, f"publishing to '{exchange}'")
        except Timeout as late:
            if self._core.withdraw(confirm):
                raise Timeout(f"{late.text}; the message was not sent, and will not be") from late
            raise

    def publisher(
        self, window: int = WINDOW, timeout: float | None = None, producer: str | int | None = None
    ) -> Publisher:
        """A publisher for many messages: it does not wait for each one's confirm."""
        publisher = Publisher(
            self._connection,
            self._wire,
            self._core,
            window,
            self._timeout if timeout is None else timeout,
            producer_number(producer),
            self._has_return_hook,
            self._forget_publisher,
        )
        self._publishers.append(publisher)
        return publisher

    async def transaction(
        self, name: str, timeout_ms: int = 0, window: int = WINDOW, timeout: float | None = None
    ) -> Transaction:
        """Begin a transaction: `async with await channel.transaction(name) as transaction: …`."""
        seconds = self._timeout if timeout is None else timeout
        transaction = Transaction(
            self._connection,
            self._wire,
            self._core,
            name,
            timeout_ms,
            window,
            seconds,
            self._has_return_hook,
            self._ask_for,
        )
        await transaction.begin()
        return transaction

    # --- consuming --------------------------------------------------------------------------------------------------

    async def consume(
        self,
        queue: str,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        inactivity_timeout: float | None = None,
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Consume a queue's messages. Closing the generator (`aclose`, or `contextlib.aclosing`) cancels the consumer
        and gives back what was not handed out; leaving its loop does so a moment later.
        """
        merged = consumer_arguments(arguments, priority, timeout_ms)
        tag, inbox = await self._begin(queue, prefetch, auto_ack, exclusive, merged)
        message: Message | None = None
        delivery: Delivery | None = None
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                for message in delivery.messages():
                    yield message
                    if message.delivery_tag < self._core.stale_tag and self.is_stale(delivery):
                        break  # the connection was lost: the rest of it comes again
        finally:
            await self._end_consumer(tag, inbox)
            if delivery is not None:
                self.return_unseen(delivery, 0 if message is None else message.delivery_tag + 1)

    async def consume_batches(
        self,
        queue: str,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        inactivity_timeout: float | None = None,
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """As `consume`, but the messages come in batches, as they travelled: for bulk work."""
        merged = consumer_arguments(arguments, priority, timeout_ms)
        tag, inbox = await self._begin(queue, prefetch, auto_ack, exclusive, merged)
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                yield Batch(delivery)
        finally:
            await self._end_consumer(tag, inbox)

    async def basic_consume(
        self,
        queue: str,
        callback: Handler,
        prefetch: int = PREFETCH,
        auto_ack: bool = False,
        consumer_tag: str = "",
        exclusive: bool = False,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
        on_error: OnError = "requeue",
        concurrency: int = 1,
    ) -> str:
        """Have a function or coroutine function called with each message, in tasks of their own.

        Takes what `shardmq.Channel.basic_consume` does, and:

        Args:
            concurrency: messages handled at once; with 1 they are handled one after the other, in order.
        """
        check_handler(callback, on_error)
        if concurrency < 1:
            raise InvalidRequest(f"a consumer handles at least 1 message at once, not {concurrency}")
        inbox = HandlerInbox(self, callback, queue, on_error, concurrency)
        merged = consumer_arguments(arguments, priority, timeout_ms)
        try:
            return await self._consume(queue, prefetch, auto_ack, inbox, consumer_tag, exclusive, merged)
        except BaseException:
            inbox.end(None)
            raise

    async def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. What it was handed stays unacked until it is acked; what it was not handed returns."""
        check_names(consumer_tag=consumer_tag)
        self.flush()
        cancelled = self._future()
        self._connection.cancel(self._core, consumer_tag, cancelled)
        self._prefetches.pop(consumer_tag, None)
        await self._answer(cancelled, f"cancelling consumer '{consumer_tag}'")

    async def basic_get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """One message; None when the queue is empty."""
        check_names(queue=queue)
        self.flush()
        got = self._future()
        self._connection.get(self._core, queue, auto_ack, got)
        delivery = await self._answer(got, f"getting from queue '{queue}'")
        return delivery.messages()[0] if isinstance(delivery, Delivery) else None

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Ack a message, or with `multiple` all up to it (0: all there are)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.settle(first, last)

    def basic_nack(
        self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True, delay_ms: int = 0
    ) -> None:
        """Give a message back, as `Message.nack`; with `multiple` all up to it (0: all there are)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.give_back(first, last, requeue, delay_ms)

    def basic_renew(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Say that a message is still being worked on, as `Message.renew`; with `multiple` all up to it (0: all)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.renew(first, last)

    async def basic_recover(self) -> None:
        """Have everything unacked on this channel delivered again; acking the first copies does nothing any more."""
        self.flush()
        recovered = self._future()
        self._connection.recover(self._core, recovered)
        await self._answer(recovered, "recovering what is unacked")

    async def basic_qos(self, consumer_tag: str, prefetch: int) -> None:
        """Change a consumer's prefetch while it runs."""
        check_names(consumer_tag=consumer_tag)
        check_prefetch(prefetch)
        await self._request(BasicQos, consumer_tag, prefetch)
        self._note_prefetch(consumer_tag, prefetch)

    # --- the rest ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close it: consumers end, what is unacked returns. Does nothing when it is closed."""
        if self.is_open:
            await self._close(ChannelError(f"channel {self.number} was closed by this program"))
        self._forget(self)

    def flush(self) -> None:
        """Send the publishes and acks that are being collected, without waiting for anything."""
        self._send_published()
        if self._core.settlements.count:
            self._connection.flush_settlements(self._core)
            self._wire.transmit()

    def settle_one(self, tag: int) -> None:
        """Ack a delivery tag."""
        core = self._core
        if core.fault is not None:
            raise again(core.fault)
        core.settlements.singles.append(tag)
        if len(core.settlements.singles) >= self._ack_at:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._wire.due(self)

    def settle(self, first: int, last: int) -> None:
        """Ack the delivery tags first to last."""
        core = self._core
        if core.fault is not None:
            raise again(core.fault)
        core.settlements.ack(first, last)
        if core.settlements.count >= self._ack_at:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._wire.due(self)

    def give_back(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Nack the delivery tags first to last; at once, others may be waiting for them."""
        if self._core.fault is not None:
            raise again(self._core.fault)
        check_delay(delay_ms)
        self._core.settlements.nack(first, last, requeue, delay_ms)
        self.flush()

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of those that are unacked anew."""
        if self._core.fault is not None:
            raise again(self._core.fault)
        self.flush()
        self._connection.renew(self._core, first, last)
        self._wire.transmit()

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether all of a delivery is the broker's again."""
        frame = delivery.frame
        return frame.tag + frame.count - 1 <= self._core.stale_tag and delivery.settler is self

    def is_unsettled(self, tag: int) -> bool:
        """Whether a message is unacked."""
        self.flush()
        return tag in self._core.unacked

    def flush_due(self) -> None:
        """Send the acks that are being collected, for the event loop."""
        self._is_due = False
        self.flush()

    def took(self, delivery: Delivery) -> None:
        """A delivery is in the program's hands."""
        self._wire.taken(delivery.size)

    def return_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on, if it is not too late."""
        frame = delivery.frame
        first, last = max(first, frame.tag), frame.tag + frame.count - 1
        if delivery.settler is self and first <= last and self.is_open:
            self.give_back(first, last, True)

    async def fail(self, fault: Exception) -> None:
        """Close it because a consumer's callback raised."""
        error = ChannelError(f"channel {self.number} was closed because a consumer's callback raised {fault!r}")
        error.__cause__ = fault
        if self.is_open:
            await self._close(error)

    async def _next(self, inbox: DeliveryQueue, inactivity_timeout: float | None) -> Delivery | None:
        if not inbox.ready():
            self.flush()
        while True:
            try:
                delivery = await inbox.take(inactivity_timeout)
            except TimeoutError:
                return None
            if delivery is None:
                return None
            self.took(delivery)
            if not self.is_stale(delivery):
                return delivery

    async def _begin(
        self, queue: str, prefetch: int, auto_ack: bool, exclusive: bool, arguments: dict[str, Any]
    ) -> tuple[str, DeliveryQueue]:
        inbox = DeliveryQueue()
        return await self._consume(queue, prefetch, auto_ack, inbox, "", exclusive, arguments), inbox

    async def _consume(
        self,
        queue: str,
        prefetch: int,
        auto_ack: bool,
        inbox: Inbox,
        consumer_tag: str,
        exclusive: bool,
        arguments: dict[str, Any],
    ) -> str:
        check_names(queue=queue, consumer_tag=consumer_tag)
        check_prefetch(prefetch)
        self.flush()
        consuming = self._future()
        operation = BasicConsume(0, self.number, queue, consumer_tag, auto_ack, prefetch, arguments, exclusive)
        self._connection.consume(self._core, operation, inbox, consuming)
        tag: str = await self._answer(consuming, f"consuming queue '{queue}'")
        self._note_prefetch(tag, 0 if auto_ack else prefetch)
        return tag

    async def _end_consumer(self, tag: str, inbox: DeliveryQueue) -> None:
        if not self.is_open:
            return
        try:
            await self.basic_cancel(tag)
        except (ChannelError, ConnectionFault, NotFound):
            self._prefetches.pop(tag, None)  # the channel is gone, or the queue: nothing is left to cancel
        for delivery in inbox.drain():
            self.took(delivery)
            self.return_unseen(delivery, delivery.frame.tag)

    def _note_prefetch(self, tag: str, prefetch: int) -> None:
        self._prefetches[tag] = prefetch
        limits = [held // 2 for held in self._prefetches.values() if held]
        self._ack_at = max(min([ACK_AT_MOST, *limits]), 1)

    def _future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _answer(self, future: asyncio.Future[Any], what: str, seconds: float | None = None) -> Any:
        self._wire.transmit()
        return await self._wire.wait(future, self._timeout if seconds is None else seconds, what)

    async def _ask(self, ask: Request[T]) -> T:
        return ask.shape(await self._request(ask.kind, *ask.fields))

    async def _ask_for(self, ask: Request[T], seconds: float) -> T:
        return ask.shape(await self._request(ask.kind, *ask.fields, seconds=seconds))

    async def _request(self, kind: Callable[..., Operation], *fields: Any, seconds: float | None = None) -> Any:
        self.flush()
        answer = self._future()
        self._connection.request(kind, self._core, answer, *fields)
        return await self._answer(answer, getattr(kind, "__name__", "request"), seconds)

    def _tags(self, delivery_tag: int, multiple: bool) -> list[tuple[int, int]]:
        check_tag(delivery_tag, multiple)
        if not multiple:
            return [(delivery_tag, delivery_tag)]
        self.flush()
        return self._core.unacked_up_to(delivery_tag)

    def _send_published(self) -> None:
        for publisher in list(self._publishers):
            publisher.send()

    def _forget_publisher(self, publisher: Publisher) -> None:
        if publisher in self._publishers:
            self._publishers.remove(publisher)

    async def _close(self, error: ChannelError) -> None:
        self.flush()
        closed = self._future()
        try:
            self._connection.close_channel(self._core, error, closed)
            self._wire.transmit()
            await self._wire.wait(closed, min(self._timeout, CLOSE_SECONDS), f"closing channel {self.number}")
        except (Timeout, ConnectionFault):
            return  # it is closed for this program; the broker closes it when it gets there, or with the connection
        finally:
            self._forget(self)
