"""A channel for asyncio: RabbitMQ's verbs as coroutines."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from shardmq.client.aio.calls import CallRequests, RemoteCalls
from shardmq.client.aio.consumer import ChannelConsumers
from shardmq.client.aio.publisher import PendingConfirm, Publisher
from shardmq.client.aio.requests.consuming import ConsumeRequests
from shardmq.client.aio.requests.offsets import OffsetRequests
from shardmq.client.aio.requests.reads import ReadRequests
from shardmq.client.aio.requests.topics import TopicRequests
from shardmq.client.aio.requests.topology import TopologyRequests
from shardmq.client.aio.settler import ChannelSettler, SettleRequests
from shardmq.client.aio.transaction import Transaction
from shardmq.client.aio.transport import Transport, has_result
from shardmq.client.api.defaults import CLOSE_SECONDS
from shardmq.client.api.message import Delivery, Message
from shardmq.client.api.opening import Opening
from shardmq.client.core.batching import batch_of_one, record_of
from shardmq.client.core.calls import UNSENT
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import IgnoredReply
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_delay, check_names, check_timeout, producer_number
from shardmq.errors import ChannelError, ConnectionFault, Timeout
from shardmq.message.properties import Properties

T = TypeVar("T")


class Channel(
    TopologyRequests, TopicRequests, ReadRequests, OffsetRequests, ConsumeRequests, CallRequests, SettleRequests
):
    """A channel of a connection; its requests are carried out in the order they were made.

    `Connection.channel` opens one.

    An async context manager: leaving it closes the channel. What each method takes and raises is what `shardmq.Channel`
    says; acks are plain calls, sent together before the event loop waits again.
    """

    def __init__(self) -> None:
        raise TypeError("a channel is opened by Connection.channel()")

    def _set_up(
        self,
        connection: ConnectionCore,
        transport: Transport,
        timeout: float,
        has_return_hook: Callable[[], bool],
        forget: Callable[["Channel"], None],
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._timeout = timeout
        self._has_return_hook = has_return_hook
        self._forget = forget
        self._publishers: list[Publisher] = []
        self._settler = ChannelSettler(connection, transport, self._send_published)
        self._consumers = ChannelConsumers(connection, transport, self._settler, timeout)
        self._calls = RemoteCalls(connection, transport, self._settler)
        self._core: ChannelCore

    async def _open(self) -> None:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settler.open(opened)
        self._core = self._settler.core
        try:
            await self._answer(opened, f"opening channel {self.number}")
        except BaseException:
            if has_result(opened) and self.is_open:  # nobody gets it, so nobody would ever close it
                error = ChannelError(f"channel {self.number} was opened for a task that was cancelled")
                self._connection.close_channel(self._core, error, IgnoredReply())
                self._transport.transmit()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_open:
            return
        try:
            await self.close()
        except ChannelError as refused:
            if error is None:
                raise
            error.add_note(f"leaving the channel: {refused}")

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

    async def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message; returns when it is confirmed: in every queue it was routed to, on disk where durable.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the message.
            properties: of the message; persistent unless their delivery_mode is 1.
            mandatory: it comes back where no queue takes it.
            delay_ms: it joins its queues so many milliseconds later; it is confirmed when it is on disk.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit.
            NotFound: no such exchange.
            PublishRefused: the broker did not take it, or not in every queue.
            Unroutable: it is mandatory and no queue took it; the error carries it.
            Timeout: no confirm in time; the text says whether it was sent.
        """
        what = f"publishing to exchange '{exchange}' with routing key '{routing_key}'"
        await self._publish(exchange, routing_key, body, properties, mandatory, delay_ms, self._timeout, what)

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
        check_names(exchange=exchange, routing_key=routing_key)
        check_delay(delay_ms)
        record = record_of(body, properties, self._connection.state.server.message_max)
        self._send_published()
        confirm = PendingConfirm(asyncio.get_running_loop().create_future())
        batch = batch_of_one(exchange, routing_key, record, properties, mandatory, delay_ms)
        self._connection.publish(self._core, batch, confirm)
        self._transport.transmit()
        try:
            await self._transport.wait(confirm.future, seconds, what, whole)
        except BaseException as fault:  # nobody waits for it any more: what was not sent must not be sent later
            if self._core.withdraw(confirm) and isinstance(fault, Timeout):
                raise Timeout(f"{fault.text}; {UNSENT}") from fault
            raise

    def publisher(
        self, window: int | None = None, timeout: float | None = None, producer: str | int | None = None
    ) -> Publisher:
        """A publisher for many messages: it does not wait for each one's confirm.

        Args:
            window: messages unconfirmed at most; publishing waits beyond it. 10,000, or 20 a queue if more, when None.
            timeout: seconds to wait for the window or a flush; the connection's when None.
            producer: a name or number that outlives this program; its messages are published with a `sequence` each,
                rising, and every queue takes each number once. Without it the channel numbers its messages, which
                makes what a recovery sends again harmless, but not what a program sends again when it was restarted.
        """
        if timeout is not None:
            check_timeout(timeout)
        publisher = Publisher.__new__(Publisher)
        publisher._set_up(
            self._connection,
            self._transport,
            self._core,
            window,
            self._timeout if timeout is None else timeout,
            producer_number(producer),
            self._has_return_hook,
            self._forget_publisher,
        )
        self._publishers.append(publisher)
        return publisher

    def transaction(
        self, name: str, timeout_ms: int = 0, window: int | None = None, timeout: float | None = None
    ) -> Opening[Transaction]:
        """Begin a transaction, by `await` or `async with`: what is published there appears whole, or not at all.

        Args:
            name: of it, in this virtual host. Under a name one batch is published, once: to begin a name again that was
                committed (within seven days) does nothing, and one that is open is joined.
            timeout_ms: it is aborted when nobody has begun it for so long; 0 is the broker's default, a day.
            window: messages unconfirmed at most; publishing waits beyond it. 10,000, or 20 a queue if more, when None.
            timeout: seconds that each of its steps may take, and that a message is published again while its shard is
                away; the connection's when None.

        Raises:
            AccessRefused: it is somebody else's.
            NotAllowed: too many are undecided.
            Unavailable: the broker cannot begin it now.
        """
        return Opening(self._transaction(name, timeout_ms, window, self._timeout if timeout is None else timeout))

    async def _transaction(self, name: str, timeout_ms: int, window: int | None, seconds: float) -> Transaction:
        transaction = Transaction.__new__(Transaction)
        transaction._set_up(
            self._connection,
            self._transport,
            self._core,
            name,
            timeout_ms,
            window,
            seconds,
            self._has_return_hook,
            self._ask_for,
        )
        await transaction._begin()
        return transaction

    async def basic_get(self, queue: str, auto_ack: bool = False) -> Message | None:
        """One message; None when the queue is empty.

        Raises:
            NotFound: no such queue.
        """
        check_names(queue=queue)
        self._settler.flush()
        got: asyncio.Future[Delivery | None] = asyncio.get_running_loop().create_future()
        self._connection.get(self._core, queue, auto_ack, got)
        try:
            delivery = await self._answer(got, f"getting from queue '{queue}'")
        except BaseException:
            if has_result(got) and (unseen := got.result()) is not None:
                self._settler.requeue_unseen(unseen, unseen.frame.tag)
            raise
        return None if delivery is None else delivery.messages()[0]

    async def basic_recover(self) -> None:
        """Have everything unacked on this channel delivered again; acking the first copies does nothing any more."""
        self._settler.flush()
        recovered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection.recover(self._core, recovered)
        await self._answer(recovered, f"recovering what is unacked on channel {self.number}")

    async def close(self) -> None:
        """Close it: consumers end, what is unacked returns. Does nothing when it is closed.

        Raises:
            ChannelError: the broker refused what was sent last, such as a second ack of a message; it is closed.
        """
        if self.is_open:
            await self._close(ChannelError(f"channel {self.number} was closed by this program"))
        self._forget(self)

    def flush(self) -> None:
        """Send the publishes and acks that are being collected, without waiting for anything."""
        self._settler.flush()

    async def _answer(self, answer: asyncio.Future[T], what: str) -> T:
        self._transport.transmit()
        return await self._transport.wait(answer, self._timeout, what)

    async def _ask(self, request: Request[T]) -> T:
        return await self._ask_for(request, self._timeout)

    async def _ask_for(self, request: Request[T], seconds: float) -> T:
        self._settler.flush()
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._connection.request(self._core, request.operation, answer, request.what)
        self._transport.transmit()
        return request.shape(await self._transport.wait(answer, seconds, request.what))

    def _send_published(self) -> None:
        for publisher in list(self._publishers):
            publisher._send()

    def _forget_publisher(self, publisher: Publisher) -> None:
        if publisher in self._publishers:
            self._publishers.remove(publisher)

    async def _fail(self, fault: BaseException) -> None:
        error = ChannelError(f"channel {self.number} was closed because a consumer's callback raised {fault!r}")
        error.__cause__ = fault
        if self.is_open:
            await self._close(error)

    async def _close(self, error: ChannelError) -> None:
        self._settler.flush()
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._connection.close_channel(self._core, error, closed)
            self._transport.transmit()
            await self._transport.wait(closed, min(self._timeout, CLOSE_SECONDS), f"closing channel {self.number}")
        except (Timeout, ConnectionFault):
            return  # it is closed for this program; the broker closes it when it gets there, or with the connection
        except ChannelError as fault:
            if fault.is_from_broker:  # else this program has closed it in the same moment
                raise
        finally:
            self._forget(self)
