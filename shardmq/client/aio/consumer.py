"""The consumers of a channel: their beginning and end, the iterators behind `consume`, the tasks of handlers."""

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count
from typing import Any

from shardmq.client.aio.settler import ChannelSettler
from shardmq.client.aio.transport import Transport
from shardmq.client.api.handler_errors import OnError, handler_raised
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import Inbox, again
from shardmq.client.core.requests import consuming
from shardmq.client.core.validation import check_timeout
from shardmq.errors import ChannelError, ConnectionFault, NotFound, ShardmqError
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume

_log = logging.getLogger("shardmq.client")

Handler = Callable[[Message], Awaitable[Any] | None]


class DeliveryQueue:
    """A consumer's inbox. One coroutine takes from it."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._is_ended = False
        self._error: ShardmqError | None = None
        self._arrived: asyncio.Future[None] | None = None

    def deliver(self, delivery: Delivery) -> None:
        """Put messages that have come."""
        self._deliveries.append(delivery)
        self._wake()

    def end(self, error: ShardmqError | None) -> None:
        """Tell who takes that none will come any more."""
        self._is_ended = True
        self._error = error
        self._wake()

    async def take(self, seconds: float | None) -> Delivery | None:
        """The next delivery, None when the consumer has ended.

        Raises:
            TimeoutError: nothing came in time.
            ShardmqError: the consumer ended, and not because it was cancelled here.
        """
        while not self._deliveries:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            if seconds is None:  # a timeout without a time takes 1.5 µs
                await self._arrived
            else:
                async with asyncio.timeout(seconds):
                    await self._arrived
        return self._deliveries.popleft()

    def drain(self) -> list[Delivery]:
        """What was delivered and not taken."""
        left = list(self._deliveries)
        self._deliveries.clear()
        return left

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class ChannelConsumers:
    """Begins and cancels the consumers of one channel.

    Args:
        connection: the connection's core.
        transport: the connection's.
        settler: the channel's.
        timeout: seconds that an answer is waited for.
    """

    def __init__(
        self, connection: ConnectionCore, transport: Transport, settler: ChannelSettler, timeout: float
    ) -> None:
        self.settler = settler
        self._connection = connection
        self._transport = transport
        self._timeout = timeout

    async def begin(self, operation: BasicConsume, inbox: Inbox) -> str:
        """Begin a consumer whose deliveries go to an inbox; returns its tag."""
        self.settler.flush()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connection.consume(self.settler.core, operation, inbox, answer)
        self._transport.transmit()
        tag = await self._transport.wait(answer, self._timeout, f"consuming queue '{operation.queue}'")
        self.settler.note_prefetch(tag, 0 if operation.auto_ack else operation.prefetch)
        return tag

    async def cancel(self, tag: str) -> None:
        """End a consumer."""
        self.settler.flush()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection.cancel(self.settler.core, tag, answer)
        self._transport.transmit()
        self.settler.forget_prefetch(tag)
        await self._transport.wait(answer, self._timeout, f"cancelling consumer '{tag}'")

    def let_go(self, tag: str, partitions: list[int]) -> None:
        """Tell the broker that a consumer has let go of partitions; what was acked of them goes before."""
        self.settler.flush()
        self._connection.let_go(self.settler.core, tag, partitions)
        self._transport.transmit()

    async def messages(
        self, operation: BasicConsume, inactivity_timeout: float | None
    ) -> AsyncGenerator[Message, None]:
        """The iterator of `Channel.consume`; the consumer begins with the first step."""
        message: Message | None = None
        delivery: Delivery | None = None
        settler, core = self.settler, self.settler.core
        inbox = DeliveryQueue()
        tag = await self.begin(operation, inbox)
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                for message in delivery.messages():
                    yield message
                    if message.delivery_tag < core.stale_tag and settler.is_stale(delivery):
                        break  # the connection was lost: the rest of it comes again
        finally:
            await self._end(tag, inbox)
            if delivery is not None:
                settler.requeue_unseen(delivery, 0 if message is None else message.delivery_tag + 1)

    async def batches(self, operation: BasicConsume, inactivity_timeout: float | None) -> AsyncGenerator[Batch, None]:
        """The iterator of `Channel.consume_batches`; the consumer begins with the first step."""
        inbox = DeliveryQueue()
        tag = await self.begin(operation, inbox)
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                yield Batch(delivery)
        finally:
            await self._end(tag, inbox)

    async def _next(self, inbox: DeliveryQueue, inactivity_timeout: float | None) -> Delivery | None:
        settler = self.settler
        while True:  # acks are sent before the event loop waits: those of all tasks that had something to do, together
            try:
                delivery = await inbox.take(inactivity_timeout)
            except TimeoutError:
                return None
            if delivery is None:
                return None
            settler.taken(delivery)
            if not settler.is_stale(delivery):
                return delivery

    async def _end(self, tag: str, inbox: DeliveryQueue) -> None:
        """Cancel, and give back all that is in the inbox. Nothing is left to do where the channel is gone."""
        settler = self.settler
        if settler.core.fault is not None:
            return
        try:
            await self.cancel(tag)
        except (ChannelError, ConnectionFault, NotFound):
            settler.forget_prefetch(tag)
        for delivery in inbox.drain():
            settler.taken(delivery)
            settler.requeue_unseen(delivery, delivery.frame.tag)


class HandlerInbox(DeliveryQueue):
    """A consumer's inbox whose messages a handler gets, in tasks of their own.

    Args:
        consumers: the channel's.
        handler: the program's function.
        queue: whose messages, for the log.
        on_error: what to do when the handler raises.
        fail: closes the channel because of it.
        concurrency: messages handled at once.
    """

    def __init__(
        self,
        consumers: ChannelConsumers,
        handler: Handler,
        queue: str,
        on_error: OnError,
        fail: Callable[[Exception], Awaitable[None]],
        concurrency: int,
    ) -> None:
        super().__init__()
        self._settler = consumers.settler
        self._handler = handler
        self._queue = queue
        self._on_error = on_error
        self._fail = fail
        self._concurrency = concurrency
        self._free = asyncio.Semaphore(concurrency)
        self._handling: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while (delivery := await self.take(None)) is not None:
                self._settler.taken(delivery)
                await self._hand_out(delivery)
        except ShardmqError as error:
            _log.debug("a consumer ended: %s", error)  # whoever uses the channel next is told

    async def _hand_out(self, delivery: Delivery) -> None:
        for message in delivery.messages():
            if self._concurrency == 1:
                if not self._is_wanted(delivery, message):
                    return
                await self._handle(message)
                continue
            await self._free.acquire()
            if not self._is_wanted(delivery, message):
                self._free.release()
                return
            task = asyncio.get_running_loop().create_task(self._handle(message))
            self._handling.add(task)
            task.add_done_callback(self._handled)

    def _is_wanted(self, delivery: Delivery, message: Message) -> bool:
        if self._is_ended:
            self._settler.requeue_unseen(delivery, message.delivery_tag)
            return False
        return not self._settler.is_stale(delivery)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._free.release()

    async def _handle(self, message: Message) -> None:
        try:
            outcome = self._handler(message)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as fault:  # noqa: BLE001  it is the program's; the policy says what becomes of the message
            if handler_raised(self._settler, message, self._queue, self._on_error):
                await self._fail(fault)


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
        self._beginning = asyncio.Lock()
        self._reply_to = ""
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[Message]] = {}

    async def expect(self) -> tuple[str, str, asyncio.Future[Message]]:
        """Where an answer is to go, its correlation id, and the answer; the first call begins the consumer."""
        async with self._beginning:
            if not self._reply_to:
                reply_to = consuming.reply_queue()
                await self._consumers.begin(consuming.basic_consume(reply_to, "", 0, True, False, None), self)
                self._reply_to = reply_to
            correlation_id = str(next(self._numbers))
            answer = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
            return self._reply_to, correlation_id, answer

    async def wait(self, correlation_id: str, answer: asyncio.Future[Message], seconds: float, what: str) -> Message:
        """The answer.

        Raises:
            Timeout: it did not come in so many seconds.
            ChannelError, ConnectionFault: the channel or the connection ended.
        """
        try:
            return await self._transport.wait(answer, seconds, what)
        finally:
            self.forget(correlation_id)

    def forget(self, correlation_id: str) -> None:
        """Wait for an answer no more."""
        answer = self._waiting.pop(correlation_id, None)
        if answer is not None:
            answer.cancel()

    def deliver(self, delivery: Delivery) -> None:
        """Hand out answers. Called by the core."""
        self._connection.state.undelivered -= delivery.size
        for message in delivery.messages():
            answer = self._waiting.pop(message.properties.correlation_id or "", None)
            if answer is not None and not answer.done():
                answer.set_result(message)

    def end(self, error: ShardmqError | None) -> None:
        """Tell all who wait that no answer comes any more. Called by the core."""
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
    async def basic_publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message."""

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
        reply_to, correlation_id, answer = await self._calls.expect()
        try:
            asked = consuming.call_properties(properties, reply_to, correlation_id, seconds)
            await self.basic_publish(exchange, routing_key, body, asked, mandatory=True)
        except BaseException:
            self._calls.forget(correlation_id)
            raise
        what = f"calling exchange '{exchange}' with routing key '{routing_key}'"
        return await self._calls.wait(correlation_id, answer, seconds, what)
