"""Transactions for asyncio: messages to any number of queues that appear whole or not at all."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from shardmq.client.aio.groups import GroupConsumer
from shardmq.client.aio.publisher import Publisher
from shardmq.client.aio.transport import Transport
from shardmq.client.api.results import Sealed
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.requests.request import Request
from shardmq.client.core.requests.steps import Asking, Flush, Step, Steps
from shardmq.client.core.transaction import TransactionCore
from shardmq.errors import ChannelError, ConnectionFault, PreconditionFailed
from shardmq.message.properties import Properties

T = TypeVar("T")


def _no_matter(_: Publisher) -> None:
    """Do nothing: the channel does not know a transaction's publisher."""


class Transaction:
    """Messages to any number of queues that appear whole or not at all.

    `Channel.transaction` begins one.

    An async context manager: leaving it seals and commits; leaving it by an exception aborts, and raises that exception
    with a note of what became of the transaction.
    """

    def __init__(self) -> None:
        raise TypeError("a transaction is begun by Channel.transaction()")

    def _set_up(
        self,
        core: ConnectionCore,
        transport: Transport,
        channel: ChannelCore,
        name: str,
        timeout_ms: int,
        window: int | None,
        seconds: float,
        has_return_hook: Callable[[], bool],
        ask: Callable[[Request[Any], float], Awaitable[Any]],
    ) -> None:
        self._transport = transport
        self._ask = ask
        self._core = TransactionCore(core, channel, name, timeout_ms, seconds, self._resend_in)
        self._consumed: list[tuple[GroupConsumer, dict[int, int], list[tuple[int, int]]]] = []
        self._publisher = Publisher.__new__(Publisher)
        self._publisher._set_up(
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
        try:
            await self._carry_out(self._core.leave(error))
        finally:
            self._settle()

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
        """Whether it is committed; where it was when it was begun, publishing quietly does nothing.

        So a program that is run again changes nothing.
        """
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
        """Publish one message, which is staged: on disk, in no queue. Waits only while the window is full.

        What the broker refuses is raised by the next call. It is published again by itself while its shard is away.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with, now.
            body: the message.
            properties: of the message; its time to live begins with the commit.
            mandatory: it comes back where no queue takes it: to the hook (`Connection.on_return`), else `flush`, `seal`
                or the end of `with` raise.
            delay_ms: it joins its queues so many milliseconds after the commit.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit; nothing was sent.
            NotFound, AccessRefused, PublishRefused, …: a message before was refused; it cannot be committed any more.
            PreconditionFailed: it is sealed, committed, aborted or has expired.
            Timeout: the window stayed full; the message was not taken. Where its text begins with "sending", it was
                taken, and the broker reads nothing now.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
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
        """Publish many messages that share exchange, routing key and properties, in batches of some hundred.

        Args:
            exchange: where to.
            routing_key: for all of them.
            bodies: the messages, in any iterable; taken a batch at a time.
            properties: of all of them.
            mandatory: they come back where no queue takes them.
            delay_ms: they join their queues so many milliseconds later.

        Raises:
            ShardmqError: what `publish` raises.
        """
        if self._core.is_taking:
            await self._publisher.publish_many(exchange, routing_key, bodies, properties, mandatory, delay_ms)
        else:
            self._core.check_taking()

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
        if self._core.is_taking:
            await self._publisher.publish_keyed(exchange, messages, properties, mandatory)
        else:
            self._core.check_taking()

    async def commit_offsets(self, consumer: GroupConsumer) -> None:
        """Commit with this transaction what a consumer has handed out: all of it takes effect, or nothing.

        So a program that consumes, transforms and publishes does so exactly once: where it fails in between, what it
        read comes again, and nothing that it published appears. If any of it fails, close the consumer and join again.

        Args:
            consumer: of an ordered group, on the transaction's channel, made with `auto_commit=False`. What it has
                handed out so far counts as handled, and need not be acked.

        Raises:
            PreconditionFailed: a partition was given to another member: the transaction cannot be committed any more.
                Or one of this name was committed before; the names of such transactions are never used twice.
            InvalidRequest: the consumer acknowledges by itself, or its group is shared.
            Timeout, Unavailable: the broker cannot do it now.
        """
        self._check_uncommitted()
        offsets, tags = consumer._to_commit()
        if offsets:
            await self._carry_out(self._core.stage_offsets((consumer.topic, consumer.group), offsets))
            try:
                consumer._check_kept()  # else another member of this channel may have staged it
            except PreconditionFailed as lost:
                self._core.fail(lost)
                raise
            self._consumed.append((consumer, offsets, tags))

    async def group_commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit with this transaction where a group is, for a program that pulls and is no member of the group.

        Args:
            topic: what the group reads.
            group: its name.
            offsets: by partition, the offset of the message that the group reads next.

        Raises:
            PreconditionFailed: the group has members, or an offset is behind the group's or outside of what the
                partition keeps. `commit` raises it where the group had members meanwhile, or was reset or deleted.
            Timeout, Unavailable: the broker cannot do it now.
        """
        self._check_uncommitted()
        await self._carry_out(self._core.stage_offsets((topic, group), offsets, is_member=False))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was published is staged; `seal` and `commit` do.

        Args:
            timeout: seconds to wait; the transaction's when None.

        Raises:
            NotFound, AccessRefused, PublishRefused, …: messages were refused; it cannot be committed any more.
            Unroutable: mandatory messages came back, which is told once.
            Timeout: not all was confirmed in time; it may still be.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        await self._carry_out(self._core.flush(timeout))

    async def seal(self) -> Sealed:
        """Wait until all that was published is confirmed, and say that it is complete. It takes no more then.

        Returns:
            What `commit` has to name, where somebody else commits: (attempt, messages), two ints.

        Raises:
            NotFound, AccessRefused, PublishRefused, …: messages were refused, as `flush` says.
            PreconditionFailed: the transaction was aborted, or has expired.
            Timeout, Unavailable: the broker did not or cannot do it now; it may be sealed again.
        """
        return await self._carry_out(self._core.seal())

    async def commit(self, sealed: Iterable[tuple[int, int]] | None = None, timeout: float | None = None) -> bool:
        """Commit: what was published appears, decided at once and for good. Doing it again does no harm.

        Args:
            sealed: the attempts that count, in this order: what `seal` returned to each. Its own when None. What other
                attempts published disappears.
            timeout: seconds to wait until all is in its queues. When None the transaction's, which begin anew while
                shards get on with reading what was staged.

        Returns:
            Whether all of it is in its queues. False: not within the timeout, it follows by itself.

        Raises:
            PreconditionFailed: an attempt is not sealed or has other messages; or the transaction was aborted.
            StillPreparing: shards still read what was staged, and nothing is decided. Committing again goes on.
            Timeout, Unavailable, ChannelError, ConnectionFault: the answer did not come. Whether it is committed is
                told by beginning it again.
            ShardmqError: what `seal` raises, for what was published here.
        """
        try:
            return await self._carry_out(self._core.commit(sealed, timeout))
        finally:
            self._settle()

    async def abort(self) -> None:
        """Abort: nothing that anybody published there appears. Does nothing where it was aborted.

        Raises:
            PreconditionFailed: it is committed.
            Timeout, Unavailable, ChannelError, ConnectionFault: no answer. It is aborted when its time is over.
        """
        await self._carry_out(self._core.abort())

    def _settle(self) -> None:
        """Have consumers know what of theirs is committed, if it is."""
        if not self._core.is_committed:
            return
        consumed, self._consumed = self._consumed, []
        for consumer, offsets, tags in consumed:
            with suppress(ChannelError, ConnectionFault):  # its channel is closed: nothing there waits for an ack
                consumer._member.committed(offsets, tags)

    def _check_uncommitted(self) -> None:
        """Raise where offsets cannot be committed with it any more."""
        self._core.check_taking()
        if self.is_committed:
            raise PreconditionFailed(
                f"transaction '{self.name}' was committed before, without what was read now; begin one of another name "
                "each time"
            )

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
