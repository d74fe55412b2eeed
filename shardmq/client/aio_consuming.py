"""Consumers in asyncio: the inbox a coroutine waits at, and the task that runs callbacks."""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shardmq.client.deliveries import Delivery, Message
from shardmq.errors import ShardmqError

_log = logging.getLogger("shardmq.client")

Callback = Callable[[Message], Awaitable[Any] | None]


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


class Desk(Protocol):
    """What a callback consumer needs of its channel."""

    def took(self, delivery: Delivery) -> None:
        """A delivery is in the program's hands."""

    def return_unseen(self, delivery: Delivery, first: int) -> None:
        """Give back a delivery's messages from delivery tag `first` on."""

    async def fail(self, fault: Exception) -> None:
        """Close the channel because a callback raised."""


class CallbackInbox(DeliveryQueue):
    """A callback consumer: its callback gets one message after the other, in a task of its own."""

    def __init__(self, desk: Desk, callback: Callback) -> None:
        super().__init__()
        self._desk = desk
        self._callback = callback
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while (delivery := await self.take(None)) is not None:
                self._desk.took(delivery)
                if not await self._call(delivery):
                    return
        except ShardmqError as error:
            _log.debug("a consumer ended: %s", error)  # whoever uses the channel next is told

    async def _call(self, delivery: Delivery) -> bool:
        for message in delivery.messages():
            if self._ended:
                self._desk.return_unseen(delivery, message.delivery_tag)
                return True
            try:
                outcome = self._callback(message)
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception as fault:  # noqa: BLE001  it is the program's; the channel closes and tells
                _log.exception("a consumer's callback raised; its channel closes")
                await self._desk.fail(fault)
                return False
        return True
