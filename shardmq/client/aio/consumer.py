"""The consumers of a channel: their beginning and end, the iterators behind `consume`, the tasks of handlers."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from shardmq.client.aio.settler import ChannelSettler
from shardmq.client.aio.transport import Transport, has_result
from shardmq.client.api.handler_errors import OnError, handler_raised
from shardmq.client.api.message import Batch, Delivery, Message
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.groups.membership import Membership
from shardmq.client.core.groups.plain import PlainInbox, PlainMember, is_plain_member
from shardmq.client.core.interfaces import Inbox
from shardmq.errors import ChannelError, ConnectionFault, NotFound, ShardmqError, Timeout
from shardmq.protocol.native.operations.basic import BasicConsume

_log = logging.getLogger("shardmq.client")

Handler = Callable[[Message], Awaitable[Any] | None]


class DeliveryQueue(PlainInbox):
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
        if isinstance(inbox, PlainInbox) and is_plain_member(operation.arguments, operation.auto_ack):
            inbox.member = PlainMember(nullcontext(), self._let_go_soon)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._connection.consume(self.settler.core, operation, inbox, answer)
        self._transport.transmit()
        try:
            tag = await self._transport.wait(answer, self._timeout, f"consuming queue '{operation.queue}'")
        except BaseException:
            if has_result(answer):  # it has begun for nobody
                self._leave(answer.result(), inbox)
            raise
        self.settler.note_prefetch(tag, 0 if operation.auto_ack else operation.prefetch)
        return tag

    async def end(self, tag: str, inbox: Inbox) -> None:
        """Cancel, and give back all that is in the inbox. Nothing is left to do where the channel is gone."""
        settler = self.settler
        if settler.core.fault is not None:
            return
        try:
            await self.cancel(tag)
        except (ChannelError, ConnectionFault, NotFound, Timeout):
            settler.forget_prefetch(tag)
        finally:  # also where nobody has answered, or the task was cancelled
            self._leave(tag, inbox)

    def _leave(self, tag: str, inbox: Inbox) -> None:
        """Hear no more of a consumer, and give back what has come for it and the program has not seen."""
        settler = self.settler
        if settler.core.fault is not None:
            return
        self._connection.state.leave_consumer(settler.core, tag)
        self._transport.transmit()
        if isinstance(inbox, Membership):
            for first, last in inbox.handed_out.take_all():
                settler.nack(first, last, requeue=True)
            for first, last in inbox.unseen():
                settler.put_back(first, last)
        elif isinstance(inbox, DeliveryQueue):
            for delivery in inbox.drain():
                settler.taken(delivery)
                settler.requeue_unseen(delivery, delivery.frame.tag)

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

    def let_go_of_owed(self, member: PlainMember) -> None:
        """Tell the broker of revoked partitions of which a plain consumer has nothing in hand."""
        partitions = member.to_let_go()
        if partitions:
            self.let_go(member.tag, partitions)

    def _let_go_soon(self, member: PlainMember) -> None:
        asyncio.get_running_loop().call_soon(self.let_go_of_owed, member)

    async def messages(
        self, operation: BasicConsume, inactivity_timeout: float | None
    ) -> AsyncGenerator[Message, None]:
        """The iterator of `Channel.consume`; the consumer begins with the first step."""
        message: Message | None = None
        delivery: Delivery | None = None
        settler, core = self.settler, self.settler.core
        inbox = DeliveryQueue()
        tag = await self.begin(operation, inbox)
        member = inbox.member
        try:
            while (delivery := await self._next(inbox, inactivity_timeout)) is not None:
                for message in delivery.messages():
                    yield message
                    if message.delivery_tag < core.stale_tag and settler.is_stale(delivery):
                        break  # the connection was lost: the rest of it comes again
                    if member is not None and inbox.has_lost(delivery):
                        break  # it goes to another member of the group
        finally:
            try:
                await self.end(tag, inbox)
            finally:
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
            await self.end(tag, inbox)

    async def _next(self, inbox: DeliveryQueue, inactivity_timeout: float | None) -> Delivery | None:
        settler = self.settler
        while True:  # acks are sent before the event loop waits: those of all tasks that had something to do, together
            if (member := inbox.put_down()) is not None:
                self.let_go_of_owed(member)
            try:
                delivery = await inbox.take(inactivity_timeout)
            except TimeoutError:
                return None
            if delivery is None:
                return None
            settler.taken(delivery)
            if not settler.is_stale(delivery) and inbox.takes(delivery):
                return delivery
            if inbox.member is not None:
                self.let_go_of_owed(inbox.member)


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
        fail: Callable[[BaseException], Awaitable[None]],
        concurrency: int,
    ) -> None:
        super().__init__()
        self._consumers = consumers
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
                self._put_down(delivery.frame.partition)
                continue
            await self._free.acquire()
            if not self._is_wanted(delivery, message):
                self._free.release()
                return
            task = asyncio.get_running_loop().create_task(self._handle(message))
            self._handling.add(task)
            task.add_done_callback(partial(self._handled, delivery.frame.partition))

    def _is_wanted(self, delivery: Delivery, message: Message) -> bool:
        if self._is_ended:
            self._settler.requeue_unseen(delivery, message.delivery_tag)
            return False
        if self._settler.is_stale(delivery):
            return False
        if self.member is None or self.member.take(delivery.frame.partition, message.delivery_tag):
            return True
        self._consumers.let_go_of_owed(self.member)
        return False

    def _handled(self, partition: int | None, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._free.release()
        self._put_down(partition)

    def _put_down(self, partition: int | None) -> None:
        if self.member is not None and self.member.put_down(partition):
            self._consumers.let_go_of_owed(self.member)

    async def _handle(self, message: Message) -> None:
        try:
            outcome = self._handler(message)
            if inspect.isawaitable(outcome):
                await outcome
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise  # they end the event loop
        except BaseException as fault:
            task = asyncio.current_task()
            if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # it is this task that was cancelled, and not something that the handler waited for
            if handler_raised(self._settler, message, self._queue, self._on_error):
                await self._fail(fault)
