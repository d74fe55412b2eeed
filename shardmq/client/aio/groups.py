"""Consumers of groups: a topic's messages, shared out between the members, acknowledged when they are handled."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Self, TypeVar

from shardmq.client.aio.consumer import ChannelConsumers
from shardmq.client.api.defaults import PULL_COUNT
from shardmq.client.api.message import Batch, Message
from shardmq.client.api.topics import GroupOptions
from shardmq.client.core.groups.changes import Change, Revoked
from shardmq.client.core.groups.membership import Membership
from shardmq.client.core.requests import consuming, groups
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_wait
from shardmq.errors import InvalidRequest, PreconditionFailed

T = TypeVar("T")


class GroupConsumer:
    """A member of a group that consumes a topic: iterate over it for messages. One task uses it.

    `Channel.group_consumer` makes one. What was handed out is acknowledged with the next step (the next message, `poll`
    or batch), and so after it was handled; with `auto_commit=False` by `commit`, or message by message.

    An async context manager: leaving it leaves the group. What was handed out last is acknowledged, unless it is left
    by an exception or `auto_commit` is off; what is not acknowledged goes to other members.
    """

    def __init__(self) -> None:
        raise TypeError("a consumer of a group is made by Channel.group_consumer()")

    def _set_up(
        self,
        consumers: ChannelConsumers,
        ask: Callable[[Request[Any]], Awaitable[Any]],
        topic: str,
        group: str,
        options: GroupOptions,
    ) -> None:
        operation = consuming.group_consume(topic, group, options)
        self._topic = topic
        self._group = group
        self._consumers = consumers
        self._ask = ask
        self._pull = options.get("pull", PULL_COUNT)
        self._is_shared = options.get("shared", False)
        self._commits = options.get("auto_commit", True)
        self._seconds = options.get("inactivity_timeout")
        self._on_assigned = options.get("on_assigned")
        self._on_revoked = options.get("on_revoked")
        self._came = asyncio.Event()
        self._member = Membership(consumers.settler, nullcontext(), self._came.set)
        self._is_closed = False
        self._operation = operation

    async def _begin(self) -> None:
        self._tag = await self._consumers.begin(self._operation, self._member)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self._is_closed:
            self._handled()
        await self.close()

    def __repr__(self) -> str:
        return f"<aio GroupConsumer of group '{self._group}', topic '{self._topic}', partitions {sorted(self.offsets)}>"

    @property
    def topic(self) -> str:
        """The topic it consumes."""
        return self._topic

    @property
    def group(self) -> str:
        """Its group."""
        return self._group

    @property
    def offsets(self) -> dict[int, int]:
        """The partitions that it has: number, and the offset behind what the program got of each."""
        return dict(self._member.offsets)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        self._handled()
        member = self._member
        message = member.message() if member.is_calm else None
        if message is None:
            message = await self._next(member.message, self._seconds)
        if message is None:
            raise StopAsyncIteration
        return message

    async def poll(self, timeout: float | None = None) -> list[Message]:
        """The next messages, as many as are there, `pull` at most.

        Args:
            timeout: seconds to wait for the first one; None for as long as it takes.

        Returns:
            Them; none where none came in time, or the consumer has ended.
        """
        check_wait("timeout", timeout)
        self._handled()
        found: list[Message] = []
        message = await self._next(self._member.message, timeout)
        while message is not None:
            found.append(message)
            if len(found) >= self._pull:
                break
            message = self._member.message()
        return found

    async def batches(self) -> AsyncIterator[Batch]:
        """Iterate over messages in batches, as they travelled: for bulk work."""
        while True:
            self._handled()
            batch = await self._next(self._member.batch, self._seconds)
            if batch is None:
                return
            yield batch

    async def commit(self) -> dict[int, int]:
        """Acknowledge all that was handed out, and wait until that is on disk.

        Only the partitions are asked of which something was handed out since the last commit: what others have, or
        has nothing new, may be away or out of service.

        Returns:
            By partition, of those, the offset of the message that the group reads next.

        Raises:
            PreconditionFailed: not all of it is acknowledged: partitions were taken from this consumer, or their shard
                was away. What is not comes again, here or to another member; go on, or close the consumer.
            Unavailable: one of those partitions cannot answer now; what of the others was acknowledged stays so.
        """
        member = self._member
        had_acks = bool(member.handed_out.held())
        member.handed_out.ack_all()
        partitions = member.uncommitted(is_shared=self._is_shared)
        rows = await self._ask(groups.group_offsets(self._topic, self._group, partitions))
        offsets = {row["partition"]: row["offset"] for row in rows if row["offset"] is not None}
        if self._is_shared:
            member.check_acked(self._topic, self._group, had_acks)
        else:
            member.check_committed(self._topic, self._group, offsets)
        member.note_commit(partitions)
        return offsets

    async def close(self) -> None:
        """Leave the group; what is not acknowledged goes to other members. Does nothing when it is closed."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._consumers.end(self._tag, self._member)

    def _to_commit(self) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """What a transaction is to commit: offsets by partition, and the delivery tags below them.

        Raises:
            InvalidRequest: it acknowledges by itself, or its group is shared.
            PreconditionFailed: partitions were taken whose messages it has handed out.
        """
        if self._commits or self._is_shared:
            raise InvalidRequest(
                f"a transaction commits offsets of ordered groups, for consumers with auto_commit=False; group "
                f"'{self._group}' of topic '{self._topic}' is {'shared' if self._is_shared else 'committed by itself'}"
            )
        self._check_kept()
        member = self._member
        if member.repeated:
            raise PreconditionFailed(
                f"messages of partitions {sorted(member.repeated)} of topic '{self._topic}' came twice, as a shard was "
                "away: abort the transaction, and join again"
            )
        member.is_transactional = True
        return dict(self._member.read), self._member.handed_out.held()

    def _check_kept(self) -> None:
        """Make sure that the consumer has the partitions that it has read.

        Raises:
            PreconditionFailed: some were taken, or the connection was lost.
        """
        if self._member.abandoned or self._member.has_lost():
            raise PreconditionFailed(
                f"partitions of topic '{self._topic}' were taken from this consumer before what it had read was "
                "committed: abort the transaction, and join again"
            )

    def _handled(self) -> None:
        """Acknowledge what the program got before it came back for more."""
        if self._commits:
            self._member.handed_out.ack_all()

    async def _next(self, take: Callable[[], T | None], seconds: float | None) -> T | None:
        """What comes next, once it has followed all changes; None when nothing came in time, or it has ended."""
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while not self._is_closed:
            while (change := self._member.change()) is not None:
                await self._follow(change)
            taken = take()
            if taken is not None:
                return taken
            if self._member.ended is not None:
                if self._member.ended.error is not None:
                    raise self._member.ended.error
                return None
            try:
                if until is None:  # a timeout without a time takes 1.5 µs
                    await self._came.wait()
                else:
                    async with asyncio.timeout_at(until):
                        await self._came.wait()
            except TimeoutError:
                self._consumers.settler.flush()
                return None
            self._came.clear()
        return None

    async def _follow(self, change: Change) -> None:
        """Tell the program of a change of its partitions, and let go of those that it has no more."""
        if not isinstance(change, Revoked):
            if self._on_assigned is not None:
                await _called(self._on_assigned(change.partitions))
            return
        if change.is_lost:
            self._member.abandon(change.partitions or [])
        try:
            if self._on_revoked is not None and change.partitions:
                await _called(self._on_revoked(change.partitions, change.is_lost))
        finally:
            if not change.is_lost:
                self._member.abandon(change.partitions or [])
            if change.is_answered:
                self._consumers.let_go(self._tag, change.partitions or [])


async def _called(outcome: object) -> None:
    """Wait for what a program's function returned, where that is to be awaited."""
    if inspect.isawaitable(outcome):
        await outcome
