"""What groups cost: how soon partitions have another owner, what a message costs as groups grow, a cursor's memory."""

import asyncio
import gc
import multiprocessing
import os
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.compare.load import Contestant, Figures, new_name
from shardmq.cmd.bench.streams.sdk import START_SECONDS, publish, scaled
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel
    from shardmq.client.aio.groups import GroupConsumer

MEMBERS: Final = 100
PARTITIONS: Final = 1000
OWNED: Final = 4
"""Partitions of the topic whose owner is lost."""

HEARTBEAT_SECONDS: Final = 1
"""A client that is silent for two of them is taken for dead."""

CURSORS: Final = 10_000


class Ownership:
    """Who has which partition, as the members hear of it, and when that changed last.

    Args:
        partitions: of the topic.
    """

    def __init__(self, partitions: int) -> None:
        self._owners: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._partitions = partitions
        self._changed = asyncio.Event()
        self.changed_at = 0.0
        self.told: set[int] = set()  # partitions of which somebody heard something

    def watch(self, member: int) -> dict[str, Callable[..., None]]:
        """The callbacks of a member's consumer."""
        self._counts[member] = 0

        def assigned(partitions: list[tuple[int, int]]) -> None:
            for number, _ in partitions:
                self._owners[number] = member
            self._counts[member] += len(partitions)
            self._note([number for number, _ in partitions])

        def revoked(partitions: list[int], _is_lost: bool) -> None:
            for number in partitions:
                self._owners.pop(number, None)
            self._counts[member] -= len(partitions)
            self._note(partitions)

        return {"on_assigned": assigned, "on_revoked": revoked}

    def owners(self) -> dict[int, int]:
        """Who has each partition now."""
        return dict(self._owners)

    async def settle(self, members: Iterable[int]) -> None:
        """Wait until all partitions are owned, and these members have about as many each.

        Raises:
            TimeoutError: they have not after a long time.
        """
        async with asyncio.timeout(START_SECONDS):
            while not self._is_even([self._counts.get(member, 0) for member in members]):
                await self._changed.wait()
                self._changed.clear()

    def _is_even(self, counts: list[int]) -> bool:
        return len(self._owners) == self._partitions and max(counts) - min(counts) <= 1

    def _note(self, partitions: Iterable[int]) -> None:
        self.told.update(partitions)
        self.changed_at = time.monotonic()
        self._changed.set()


def rebalance(who: Contestant, messages: int) -> Figures:
    """Have a member join a hundred that share a thousand partitions."""
    return asyncio.run(_rebalance(who, scaled(MEMBERS, messages), scaled(PARTITIONS, messages)))


async def _rebalance(who: Contestant, members: int, partitions: int) -> Figures:
    from shardmq.client.aio.connection import connect

    topic = new_name()
    ownership = Ownership(partitions)
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connect(who.url)) for _ in range(10)]
        control = await connections[0].channel()
        await control.topic_declare(topic, partitions)
        for member in range(members):
            await _join(stack, await connections[member % 10].channel(), topic, ownership, member)
        await ownership.settle(range(members))
        before, start = ownership.owners(), time.monotonic()
        ownership.told.clear()
        used = cpu_seconds(who.pids)
        await _join(stack, await connections[0].channel(), topic, ownership, members)
        await ownership.settle(range(members + 1))
        stable_ms = (ownership.changed_at - start) * 1000
        used = cpu_seconds(who.pids) - used
        after = ownership.owners()
        moved = {number for number in after if after[number] != before[number]}
        await stack.aclose()
    async with connect(who.url) as connection:
        await (await connection.channel()).topic_delete(topic)
    return {
        "stable_ms": stable_ms,
        "moved": len(moved),
        "interrupted": len(ownership.told - moved),
        "seconds": stable_ms / 1000,
        "broker_ms": used * 1000,
    }


async def _join(stack: AsyncExitStack, channel: "Channel", topic: str, ownership: Ownership, member: int) -> None:
    """Have a member consume until the stack is closed."""
    consumer = await channel.group_consumer(topic, "bench", **ownership.watch(member))  # type: ignore[arg-type]
    task = asyncio.create_task(_follow(consumer))

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def _follow(consumer: "GroupConsumer") -> None:
    async for _ in consumer:
        pass


def broken(who: Contestant, _messages: int) -> Figures:
    """Have the process of a partition's owner be killed: its connection breaks."""
    return asyncio.run(_take_over(who, signal.SIGKILL))


def silent(who: Contestant, _messages: int) -> Figures:
    """Have the process of a partition's owner stand still: it is silent until its session of 2 seconds is over."""
    return asyncio.run(_take_over(who, signal.SIGSTOP))


async def _take_over(who: Contestant, sign: signal.Signals) -> Figures:
    from shardmq.client.aio.connection import connect

    topic = new_name()
    ownership = Ownership(OWNED)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_own, args=(who.url, topic, theirs), daemon=True)
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect(who.url))
        channel = await connection.channel()
        await channel.topic_declare(topic, OWNED)
        process.start()
        try:
            loop = asyncio.get_running_loop()
            if not await loop.run_in_executor(None, ours.poll, START_SECONDS):
                raise ShardmqError("a member of a group had no partitions after a minute")
            await _join(stack, channel, topic, ownership, 0)
            await asyncio.sleep(HEARTBEAT_SECONDS)
            start = time.monotonic()
            assert process.pid is not None
            os.kill(process.pid, sign)
            await ownership.settle([0])
            taken_ms = (ownership.changed_at - start) * 1000
        finally:
            process.kill()
            process.join()
        await stack.aclose()
    async with connect(who.url) as connection:
        await (await connection.channel()).topic_delete(topic)
    return {"taken_ms": taken_ms, "seconds": time.monotonic() - start}


def _own(url: str, topic: str, pipe: Any) -> None:
    """The main function of an owner's process; it says when it has partitions, and lasts until it is killed."""
    from shardmq.client.sync.connection import connect

    with connect(url, heartbeat=HEARTBEAT_SECONDS) as connection:
        channel = connection.channel()
        options = {"on_assigned": lambda _: pipe.send(True)}
        for _ in channel.group_consumer(topic, "bench", **options):  # type: ignore[arg-type]
            pass


def read_by_groups(who: Contestant, messages: int, groups: int) -> Figures:
    """Have groups read a stream at the same time, as many messages in all whatever their number.

    Raises:
        ShardmqError: a group got something else than all messages in order.
    """
    from shardmq.client.sync.connection import connect

    assert who.url is not None
    name, each = new_name(), max(1, messages // groups)
    with connect(who.url) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        members = connection.channel()
        consumers = [members.group_consumer(name, f"group-{number}", start="earliest") for number in range(groups)]
        before, start = cpu_seconds(who.pids), time.monotonic()
        publish(channel, name, each)
        for consumer in consumers:
            got = 0
            for batch in consumer.batches():
                if int.from_bytes(batch.bodies[0][:8], "big") != got:
                    raise ShardmqError(f"a group got another message than {got}")
                got += len(batch)
                if got >= each:
                    break
            consumer.commit()
        seconds = time.monotonic() - start
        used = cpu_seconds(who.pids) - before
    with connect(who.url) as connection:
        connection.channel().queue_delete(name)
    total = each * groups
    return {"read_msgs_per_s": total / seconds, "seconds": seconds, "cpu_us": used * 1e6 / total}


def cursor(folder: Path) -> Figures:
    """The memory of a group's cursor between members, as the process of a shard has it."""
    from shardmq.runtime.clock import SteadyClock
    from shardmq.shards.storage.entries import CursorRow, GroupSettings, common_settings
    from shardmq.shards.storage.store import Store
    from shardmq.shards.storage.write_buffer import WriteBuffer
    from shardmq.shards.topics.group_cursor import GroupCursor
    from shardmq.shards.topics.partition import Partition
    from shardmq.topology.entities import Queue

    start = time.monotonic()
    buffer = WriteBuffer(Store.open(folder / "cursors"), 1 << 20)
    partition = Partition(Queue("/", "bench", 1, 0, arguments={"x-queue-type": "stream"}), buffer, SteadyClock(1))
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = {
            name: GroupCursor(
                partition, buffer, name, CursorRow(number, number, number, common_settings(GroupSettings(False)))
            )
            for number in range(1_000_000, 1_000_000 + CURSORS)
            for name in [f"group-{number}"]
        }
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {"cursor_bytes": (after - before) / len(kept), "seconds": time.monotonic() - start}
