"""Groups that begin as their number grows: what they take of the coordinator, in time and in memory."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from shardmq.cmd.bench.scaling.processes import Processes, started_in
from shardmq.cmd.bench.scaling.queues import AT_ONCE, TIMEOUT_SECONDS
from shardmq.cmd.bench.scaling.rows import empty
from shardmq.cmd.bench.scaling.usage import between, resident_of_roles, used_by
from shardmq.cmd.terminal.output import Say

if TYPE_CHECKING:
    from shardmq.client.aio.channel import Channel

POINTS: Final = (0, 500, 1_000, 5_000)
MEASURED: Final = 500
"""Groups that begin at each point, after those."""

TOPIC: Final = "read by all"
WARMING_UP: Final = "read before"
PARTITIONS: Final = 4
POLL_SECONDS: Final = 0.001


class GroupsGrown(msgspec.Struct, frozen=True):
    """The coordinator at a number of groups.

    Attributes:
        id: of the row.
        groups: how many there were before the measurement, each with one member.
        begin_per_s: groups a second whose member has its partitions, 64 under way.
        cpu_us: processor time of a role for each, in µs.
        resident_bytes: memory of a role's process, of the greatest where there are several.
    """

    id: str
    groups: int
    begin_per_s: float
    cpu_us: dict[str, float]
    resident_bytes: dict[str, int]


EMPTY: Final = [empty(GroupsGrown, id=f"groups-{at}", groups=at) for at in POINTS]


def measure(disk: Path, most: int, say: Say) -> list[GroupsGrown]:
    """Measure all points up to a number of groups, which read one topic of four partitions.

    Args:
        disk: folder on the disk that the broker writes to.
        most: leave out greater points.
        say: is told how it goes.
    """
    with started_in(disk, gateways=1, shards=PARTITIONS) as processes:
        return asyncio.run(_measure(processes, most, say))


async def _measure(processes: Processes, most: int, say: Say) -> list[GroupsGrown]:
    from shardmq.client.aio.connection import connect

    found = []
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(connect(processes.url, timeout=TIMEOUT_SECONDS))
        channels = [await connection.channel() for _ in range(AT_ONCE)]
        await channels[0].topic_declare(WARMING_UP, PARTITIONS)
        async with AsyncExitStack() as passing:
            await _begin(passing, channels, WARMING_UP, range(MEASURED))
        await channels[0].topic_delete(WARMING_UP)
        await channels[0].topic_declare(TOPIC, PARTITIONS)
        made = 0
        for at in (at for at in POINTS if at <= most):
            await _begin(stack, channels, TOPIC, range(made, at))
            made = at + MEASURED
            before, began = used_by(processes.pids), time.perf_counter()
            await _begin(stack, channels, TOPIC, range(at, made))
            seconds = time.perf_counter() - began
            used = between(before, used_by(processes.pids))
            cpu_us = {role: round(spent * 1e6 / MEASURED, 1) for role, spent in used.items()}
            rate = round(MEASURED / seconds, 1)
            found.append(GroupsGrown(f"groups-{at}", at, rate, cpu_us, resident_of_roles(processes.pids)))
            say(f"{at:,} groups: {rate:,.0f} a second, µs {cpu_us}")
    return found


async def _begin(stack: AsyncExitStack, channels: "list[Channel]", topic: str, numbers: Iterable[int]) -> None:
    """Have groups of one member each begin, and wait until each of these has its partitions."""
    waiting = iter(numbers)

    async def work(channel: "Channel") -> None:
        for number in waiting:  # shared: each takes the next one
            consumer = await stack.enter_async_context(channel.group_consumer(topic, f"group-{number}"))
            while len(consumer.offsets) < PARTITIONS:
                await consumer.poll(POLL_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        for channel in channels:
            tasks.create_task(work(channel))
