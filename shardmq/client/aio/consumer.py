"""Consumers in asyncio: the inbox a coroutine waits at, and the tasks that run handlers."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shardmq.client.api.handler_errors import OnError, handler_raised
from shardmq.client.api.message import Delivery, Message
from shardmq.errors import ShardmqError

_log = logging.getLogger("shardmq.client")

Handler = Callable[[Message], Awaitable[Any] | None]


class DeliveryQueue:
    """A consumer's inbox. One coroutine takes from it."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._ended = False
        self._error: ShardmqError | None = None
        self._arrived: asyncio.Future[None] | None = None

    def deliver(self, delivery: Delivery) -> None:
        """Messages have come."""
        self._deliveries.append(delivery)
        self._tell()

    def end(self, error: ShardmqError | None) -> None:
        """None will come any more."""
        self._ended = True
        self._error = error
        self._tell()

    def ready(self) -> bool:
        """Whether taking would not wait."""
        return bool(self._deliveries) or self._ended

    async def take(self, seconds: float | None) -> Delivery | None:
        """The next delivery, None when the consumer has ended.

        Raises:
            TimeoutError: nothing came in time.
            ShardmqError: the consumer ended, and not because it was cancelled here.
        """
        while not self._deliveries:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(seconds):
                await self._arrived
        return self._deliveries.popleft()

    def drain(self) -> list[Delivery]:
        """What was delivered and not taken."""
        left = list(self._deliveries)
        self._deliveries.clear()
        return left

    def _tell(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class ConsumerOwner(Protocol):
    """What a consumer with a handler needs of its channel."""

    def took(self, delivery: Delivery) -> None:
        """A delivery is in the program's hands."""

    def return_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on."""

    def is_stale(self, delivery: Delivery) -> bool:
        """Whether all of it is the broker's again."""

    def is_unsettled(self, tag: int) -> bool:
        """Whether that message is unacked."""

    async def fail(self, fault: Exception) -> None:
        """Close the channel because a handler raised."""


class HandlerInbox(DeliveryQueue):
    """A consumer whose messages a handler gets, in tasks of their own.

    Args:
        desk: the channel.
        handler: the program's function.
        queue: whose messages, for the log.
        on_error: what to do when the handler raises.
        concurrency: messages handled at once.
    """

    def __init__(self, desk: ConsumerOwner, handler: Handler, queue: str, on_error: OnError, concurrency: int) -> None:
        super().__init__()
        self._desk = desk
        self._handler = handler
        self._queue = queue
        self._on_error = on_error
        self._free = asyncio.Semaphore(concurrency)
        self._handling: set[asyncio.Task[None]] = set()
        self._concurrency = concurrency
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while (delivery := await self.take(None)) is not None:
                self._desk.took(delivery)
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
        if self._ended:
            self._desk.return_unseen(delivery, message.delivery_tag)
            return False
        return not self._desk.is_stale(delivery)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._free.release()

    async def _handle(self, message: Message) -> None:
        try:
            outcome = self._handler(message)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as fault:  # noqa: BLE001  it is the program's; the policy says what becomes of the message
            if handler_raised(self._desk, message, self._queue, self._on_error):
                await self._desk.fail(fault)
