"""A channel for asyncio: RabbitMQ's verbs as coroutines."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shardmq.client.aio_consuming import Callback, CallbackInbox, DeliveryQueue
from shardmq.client.aio_publisher import Publisher
from shardmq.client.arguments import check_names, check_prefetch
from shardmq.client.channel import ACK_AT_MOST, PREFETCH
from shardmq.client.core import ChannelCore, Core, again
from shardmq.client.deliveries import Batch, Delivery, Message
from shardmq.client.ports import Inbox
from shardmq.client.publisher import WINDOW
from shardmq.client.results import MessageCount, QueueDeclared, result_of
from shardmq.client.runs import flags_of, record_of
from shardmq.errors import ChannelError, ConnectionFault, NotFound, ShardmqError
from shardmq.records import Properties
from shardmq.wire.operations import (
    BasicQos,
    ExchangeDeclare,
    ExchangeDelete,
    Operation,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    StatusGet,
    TopologyList,
)

if TYPE_CHECKING:
    from shardmq.client.aio_connection import Wire


class _Confirm:
    """One publish that a coroutine waits for."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def settled(self, _count: int, error: ShardmqError | None) -> None:
        """Its confirm came, or will not."""
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)


class Channel:
    """Made by `Connection.channel`. Its requests are carried out in the order they were made.

    An async context manager: leaving it closes the channel. What each method takes and raises is what `shardmq.Channel`
    says; acks are plain calls, sent together before the event loop waits again.
    """

    def __init__(self, core: Core, wire: "Wire", timeout: float, forget: Callable[["Channel"], None]) -> None:
        self._connection = core
        self._wire = wire
        self._timeout = timeout
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

    # --- topology ---------------------------------------------------------------------------------------------------

    async def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        durable: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Make an exchange, or find the same one there.

        Args:
            exchange: its name.
            exchange_type: direct, fanout or topic.
            durable: whether it survives a restart.
            arguments: none are known yet.

        Raises:
            PreconditionFailed: there is one of that name with other settings.
        """
        check_names(exchange=exchange, exchange_type=exchange_type)
        await self._request(ExchangeDeclare, exchange, exchange_type, durable, dict(arguments or {}))

    async def exchange_delete(self, exchange: str) -> None:
        """Remove an exchange and its bindings."""
        check_names(exchange=exchange)
        await self._request(ExchangeDelete, exchange)

    async def queue_declare(
        self, queue: str, durable: bool = False, arguments: Mapping[str, Any] | None = None
    ) -> QueueDeclared:
        """Make a queue, or find the same one there.

        Args:
            queue: its name.
            durable: whether it, and the persistent messages in it, survive a restart.
            arguments: none are known yet.

        Returns:
            Its name, how many messages are ready in it, and how many consumers it has.

        Raises:
            PreconditionFailed: there is one of that name with other settings.
        """
        check_names(queue=queue)
        return result_of(QueueDeclared, await self._request(QueueDeclare, queue, durable, dict(arguments or {})))

    async def queue_delete(self, queue: str) -> int:
        """Remove a queue and its bindings; returns how many messages went with it."""
        check_names(queue=queue)
        return result_of(MessageCount, await self._request(QueueDelete, queue)).messages

    async def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Let a queue have what is published to an exchange with a routing key that matches."""
        check_names(queue=queue, exchange=exchange, routing_key=routing_key)
        await self._request(QueueBind, queue, exchange, routing_key, dict(arguments or {}))

    async def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Remove a binding; nothing happens when there is none."""
        check_names(queue=queue, exchange=exchange, routing_key=routing_key)
        await self._request(QueueUnbind, queue, exchange, routing_key, dict(arguments or {}))

    async def queue_purge(self, queue: str) -> int:
        """Remove a queue's ready messages; returns how many."""
        check_names(queue=queue)
        return result_of(MessageCount, await self._request(QueuePurge, queue)).messages

    # --- publishing -------------------------------------------------------------------------------------------------

    async def basic_publish(
        self, exchange: str, routing_key: str, body: bytes, properties: Properties | None = None
    ) -> None:
        """Publish one message; returns when it is confirmed: in every queue it was routed to, on disk where durable."""
        check_names(exchange=exchange, routing_key=routing_key)
        record = record_of(body, properties)
        self._send_published()
        confirmed = self._future()
        confirm = _Confirm(confirmed)
        self._connection.publish(self._core, exchange, routing_key, flags_of(properties), 1, record, confirm)
        await self._answer(confirmed, f"publishing to '{exchange}'")

    def publisher(self, window: int = WINDOW, timeout: float | None = None) -> Publisher:
        """A publisher for many messages: it does not wait for each one's confirm."""
        publisher = Publisher(self._connection, self._wire, self._core, window,
                              self._timeout if timeout is None else timeout, self._forget_publisher)  # fmt: skip
        self._publishers.append(publisher)
        return publisher

    # --- consuming --------------------------------------------------------------------------------------------------

    async def consume(
        self, queue: str, prefetch: int = PREFETCH, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> AsyncGenerator[Message, None]:
        """Consume a queue's messages. Closing the generator (`aclose`, or `contextlib.aclosing`) cancels the consumer
        and gives back what was not handed out; leaving its loop does so a moment later."""
        tag, inbox = await self._begin(queue, prefetch, auto_ack)
        message: Message | None = None
        delivery: Delivery | None = None
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                for message in delivery.messages():
                    yield message
        finally:
            await self._end_consumer(tag, inbox)
            if delivery is not None:
                self.return_unseen(delivery, 0 if message is None else message.delivery_tag + 1)

    async def consume_batches(
        self, queue: str, prefetch: int = PREFETCH, auto_ack: bool = False, inactivity_timeout: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        """As `consume`, but the messages come in batches, as they travelled: for bulk work."""
        tag, inbox = await self._begin(queue, prefetch, auto_ack)
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                yield Batch(delivery)
        finally:
            await self._end_consumer(tag, inbox)

    async def basic_consume(
        self, queue: str, callback: Callback, prefetch: int = PREFETCH, auto_ack: bool = False, consumer_tag: str = ""
    ) -> str:
        """Have a callback or coroutine function called with each message, one after the other, in a task of its own."""
        inbox = CallbackInbox(self, callback)
        try:
            return await self._consume(queue, prefetch, auto_ack, inbox, consumer_tag)
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

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """Give a message back to its place, or drop it; with `multiple` all up to it (0: all there are)."""
        for first, last in self._tags(delivery_tag, multiple):
            self.give_back(first, last, requeue)

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

    async def status(self) -> Any:
        """See `Connection.status`."""
        return await self._request(StatusGet)

    async def topology(self, noun: str) -> Any:
        """See `Connection.topology`."""
        check_names(noun=noun)
        return await self._request(TopologyList, noun)

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

    def give_back(self, first: int, last: int, requeue: bool) -> None:
        """Nack the delivery tags first to last; at once, others may be waiting for them."""
        if self._core.fault is not None:
            raise again(self._core.fault)
        self._core.settlements.nack(first, last, requeue)
        self.flush()

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
        try:
            delivery = await inbox.take(inactivity_timeout)
        except TimeoutError:
            return None
        if delivery is not None:
            self.took(delivery)
        return delivery

    async def _begin(self, queue: str, prefetch: int, auto_ack: bool) -> tuple[str, DeliveryQueue]:
        inbox = DeliveryQueue()
        return await self._consume(queue, prefetch, auto_ack, inbox, ""), inbox

    async def _consume(self, queue: str, prefetch: int, auto_ack: bool, inbox: Inbox, consumer_tag: str) -> str:
        check_names(queue=queue, consumer_tag=consumer_tag)
        check_prefetch(prefetch)
        self.flush()
        consuming = self._future()
        self._connection.consume(self._core, queue, consumer_tag, auto_ack, prefetch, inbox, consuming)
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

    async def _answer(self, future: asyncio.Future[Any], what: str) -> Any:
        self._wire.transmit()
        return await self._wire.wait(future, self._timeout, what)

    async def _request(self, kind: Callable[..., Operation], *fields: Any) -> Any:
        self.flush()
        answer = self._future()
        self._connection.request(kind, self._core, answer, *fields)
        return await self._answer(answer, getattr(kind, "__name__", "request"))

    def _tags(self, delivery_tag: int, multiple: bool) -> list[tuple[int, int]]:
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
            await self._answer(closed, f"closing channel {self.number}")
        finally:
            self._forget(self)
