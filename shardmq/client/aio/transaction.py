"""Transactions for asyncio: messages to any number of queues that appear whole or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from shardmq.client.aio.publisher import Publisher
from shardmq.client.aio.transport import Transport
from shardmq.client.api.results import Sealed
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.requests import Request
from shardmq.client.core.transaction import Asking, Flush, Step, Steps, TransactionCore
from shardmq.message.properties import Properties

T = TypeVar("T")


def _no_matter(_: Publisher) -> None:
    """The channel does not look after a transaction's publisher."""


class Transaction:
    """Made by `Channel.transaction`. What each method takes and raises is what `shardmq.Transaction` says.

    An async context manager: leaving it seals and commits; leaving it by an exception aborts, and raises that exception
    with a note of what became of the transaction.
    """

    def __init__(
        self,
        core: ConnectionCore,
        transport: Transport,
        channel: ChannelCore,
        name: str,
        timeout_ms: int,
        window: int,
        seconds: float,
        has_return_hook: Callable[[], bool],
        ask: Callable[[Request[Any], float], Awaitable[Any]],
    ) -> None:
        self._transport = transport
        self._ask = ask
        self._core = TransactionCore(core, channel, name, timeout_ms, seconds, self._resend_in)
        self._publisher = Publisher(
            core, transport, channel, window, seconds, 0, has_return_hook, _no_matter, self._core.publish
        )

    async def _begin(self) -> None:
        """Begin it; `Channel.transaction` does."""
        await self._carry_out(self._core.begin())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._carry_out(self._core.leave(error))

    def __repr__(self) -> str:
        return f"<aio Transaction '{self.name}', number {self.number}, {self._core.state.name.lower()}>"

    @property
    def name(self) -> str:
        """Its name, which makes beginning it again harmless."""
        return self._core.name

    @property
    def number(self) -> int:
        """The broker's number for it."""
        return self._core.number

    @property
    def attempt(self) -> int:
        """This attempt's own number."""
        return self._core.attempt

    @property
    def is_committed(self) -> bool:
        """Whether it is committed. Where it was when it was begun, publishing does nothing, quietly."""
        return self._core.is_committed

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish one message, which is staged: on disk, in no queue. Waits only while the window is full."""
        if self._core.is_taking:
            await self._publisher.publish(exchange, routing_key, body, properties, mandatory, delay_ms)
        else:
            self._core.check_taking()

    async def publish_many(
        self,
        exchange: str,
        routing_key: str,
        bodies: Iterable[bytes],
        properties: Properties | None = None,
        mandatory: bool = False,
        delay_ms: int = 0,
    ) -> None:
        """Publish many messages that share exchange, routing key and properties, in batches of some hundred."""
        if self._core.is_taking:
            await self._publisher.publish_many(exchange, routing_key, bodies, properties, mandatory, delay_ms)
        else:
            self._core.check_taking()

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was published is staged; `seal` and `commit` do."""
        await self._carry_out(self._core.flush(timeout))

    async def seal(self) -> Sealed:
        """Wait until all that was published is confirmed, and say that it is complete. It takes no more then."""
        return await self._carry_out(self._core.seal())

    async def commit(self, sealed: Iterable[tuple[int, int]] | None = None, timeout: float | None = None) -> bool:
        """Make it appear: decided at once and for good, then put into its queues; whether all of it is there."""
        return await self._carry_out(self._core.commit(sealed, timeout))

    async def abort(self) -> None:
        """End it: nothing that anybody published there appears."""
        await self._carry_out(self._core.abort())

    def _resend_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._resend)

    def _resend(self) -> None:
        self._core.resend()
        self._transport.transmit()

    async def _carry_out(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    answer = await self._do(step)
                except BaseException as error:  # noqa: BLE001  it is raised where the step was asked for
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Asking):
            return await self._ask(step.request, step.seconds)
        if isinstance(step, Flush):
            return await self._publisher.flush(step.seconds)
        return await asyncio.sleep(step.seconds)
