"""Declarations as the number of queues grows: what they take of the coordinator, in time and in memory."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq import aio
from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.scaling.processes import Processes, started_in
from shardmq.cmd.bench.scaling.rows import empty
from shardmq.cmd.bench.scaling.usage import between, resident_of_roles, used_by
from shardmq.cmd.terminal.output import Say
from shardmq.errors import Unavailable

POINTS: Final = (0, 1_000, 10_000, 100_000)
MEASURED: Final = 1_000
"""Queues that are declared at each point, after those."""

AT_ONCE: Final = 64
TIMEOUT_SECONDS: Final = 120.0
PAUSE_SECONDS: Final = 0.05


class Grown(msgspec.Struct, frozen=True):
    """The coordinator at a number of queues.

    Attributes:
        id: of the row.
        queues: how many there were before the measurement.
        declare_per_s: declarations a second, 64 under way.
        cpu_us: processor time of a role for each, in µs.
        resident_bytes: memory of a role's process, of the greatest where there are several.
        start_cpu_ms: processor time of a coordinator that is started anew until it answers, in ms.
    """

    id: str
    queues: int
    declare_per_s: float
    cpu_us: dict[str, float]
    resident_bytes: dict[str, int]
    start_cpu_ms: float


EMPTY: Final = [empty(Grown, id=f"queues-{at}", queues=at) for at in POINTS]


def measure(disk: Path, most: int, say: Say) -> list[Grown]:
    """Measure all points up to a number of queues.

    Args:
        disk: folder on the disk that the broker writes to.
        most: leave out greater points.
        say: is told how it goes.
    """
    found = []
    with started_in(disk, gateways=1, shards=4) as processes:
        asyncio.run(_declare(processes.url, (f"warm-{number}" for number in range(MEASURED))))
        made = 0
        for at in (at for at in POINTS if at <= most):
            asyncio.run(_declare(processes.url, (f"queue-{number}" for number in range(made, at))))
            made = at + MEASURED
            found.append(_point(processes, at, (f"queue-{number}" for number in range(at, made))))
            say(f"{at:,} queues: {found[-1].declare_per_s:,.0f} declarations/s, µs {found[-1].cpu_us}")
    return found


def _point(processes: Processes, at: int, names: Iterable[str]) -> Grown:
    before, began = used_by(processes.pids), time.perf_counter()
    asyncio.run(_declare(processes.url, names))
    seconds = time.perf_counter() - began
    used = between(before, used_by(processes.pids))
    memory = resident_of_roles(processes.pids)
    processes.restart("coordinator")
    _ask_until_answered(processes.url, f"after-{at}")
    start_cpu_ms = round(used_by(processes.pids)["coordinator"] * 1000)
    cpu_us = {role: round(spent * 1e6 / MEASURED, 1) for role, spent in used.items()}
    return Grown(f"queues-{at}", at, round(MEASURED / seconds, 1), cpu_us, memory, start_cpu_ms)


def _ask_until_answered(url: str, queue: str) -> None:
    """Declare a queue, which a coordinator that has just been started refuses until it knows everything.

    Raises:
        Timeout: it does for too long.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with connect(url, timeout=TIMEOUT_SECONDS) as connection, connection.channel() as channel:
        while True:
            try:
                channel.queue_declare(queue, durable=True)
                return
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
            time.sleep(PAUSE_SECONDS)


async def _declare(url: str, names: Iterable[str]) -> None:
    waiting = iter(names)

    async def work(channel: Any) -> None:
        for name in waiting:  # shared: each takes the next one
            await channel.queue_declare(name, durable=True)

    async with await aio.connect(url, timeout=TIMEOUT_SECONDS) as connection, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work(await connection.channel()))
