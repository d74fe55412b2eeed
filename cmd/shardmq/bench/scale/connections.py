"""`shardmq bench queues`: thousands of queues and connections, and the memory that each takes."""

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.bench.scale.rows import AT_ONCE, of_queues, record
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD, URL
from shardmq.cmd.terminal.output import Say, narrator, print_json
from shardmq.cmd.terminal.rows import Column
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import counted

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

ONE_BY_ONE: Final = 200
"""Queues that are declared one after the other."""

Memory = dict[str, int]
"""Resident bytes by role."""


@click.command("queues")
@URL
@click.option("--queues", type=WholeNumber(1, 100_000), default=10_000, show_default=True, help="Number of queues.")
@click.option(
    "--connections",
    type=WholeNumber(0, 50_000),
    default=5_000,
    show_default=True,
    help="Number of connections; each has one channel.",
)
@click.option("--transient", is_flag=True, help="Transient queues: they do not survive a restart.")
@click.option(
    "--timeout",
    type=Number(1),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when one step takes longer.",
)
@RECORD
@JSON
def queues_command(
    *,
    url: str,
    queues: int,
    connections: int,
    transient: bool,
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Declare many queues, open many connections, and show what each takes of the broker's memory.

    The queues are deleted at the end. Figures are of resident memory, by the roles of the processes.
    """
    from shardmq.client.sync.connection import connect
    from shardmq.cmd.bench.scale.connection_holders import ConnectionHolders, raise_file_limit

    say = narrator(as_json)
    raise_file_limit()
    prefix = f"bench-{secrets.token_hex(4)}"
    names = [f"{prefix}-{place}" for place in range(queues)]
    with connect(url, timeout=timeout) as connection:
        at_first = memory(connection)
        try:
            figures = declare(url, names, not transient, timeout, say)
            with_queues = memory(connection)
            started_at = time.monotonic()
            clients = ConnectionHolders(url, connections, timeout)
            try:
                clients.wait()
                seconds = time.monotonic() - started_at
                say(f"{counted(connections, 'connection')} opened in {seconds:.1f} s")
                with_connections = memory(connection)
                figures["connect_per_s"] = round(connections / seconds, 1) if connections else None
                figures["publish_ms"] = round(1000 * publish_once(connection, names[-1]), 2)
            finally:
                clients.close()
        finally:
            figures_of_end = delete(url, names, timeout, say)
    figures.update(figures_of_end)
    figures["bytes_per_queue"] = per(queues, at_first, with_queues)
    figures["bytes_per_connection"] = per(connections, with_queues, with_connections)
    figures["rss_bytes"] = with_connections
    if record_to is not None:
        record(record_to, of_queues(figures, queues, connections))
    if not as_json:
        print_figures(figures, queues, connections)
        return
    print_json({**figures, "settings": {"queues": queues, "connections": connections, "transient": transient}})


def memory(connection: "Connection") -> Memory:
    """Resident bytes of the broker's processes, by role, and of all as "all"."""
    sums: Memory = {}
    for process in connection.status()["processes"]:
        for role in (process["role"], "all"):
            sums[role] = sums.get(role, 0) + process["rss_bytes"]
    return sums


def per(count: int, before: Memory, after: Memory) -> dict[str, int]:
    """Growth in bytes for each of `count` things, by role."""
    return {role: round((after[role] - before.get(role, 0)) / count) for role in after} if count else {}


def publish_once(connection: "Connection", queue: str) -> float:
    """Seconds that one confirmed publish takes."""
    channel = connection.channel()
    started_at = time.monotonic()
    channel.basic_publish("", queue, b"there")
    return time.monotonic() - started_at


def declare(url: str, names: list[str], durable: bool, timeout: float, say: Say) -> dict[str, Any]:
    """Declare queues: some one by one, the rest many at a time; returns both rates."""
    from shardmq.client.sync.connection import connect

    first, rest = names[:ONE_BY_ONE], names[ONE_BY_ONE:]
    with connect(url, timeout=timeout) as connection:
        channel = connection.channel()
        started_at = time.monotonic()
        for name in first:
            channel.queue_declare(name, durable=durable)
        figures: dict[str, Any] = {"declare_one_by_one_per_s": rate(len(first), started_at)}
    started_at = time.monotonic()
    asyncio.run(_at_once(url, rest, timeout, lambda channel, name: channel.queue_declare(name, durable=durable)))
    figures["declare_per_s"] = rate(len(rest), started_at) if rest else figures["declare_one_by_one_per_s"]
    say(
        f"{counted(len(names), 'queue')} declared: {figures['declare_one_by_one_per_s']:,.0f}/s one by one, "
        f"{figures['declare_per_s']:,.0f}/s {AT_ONCE} at a time"
    )
    return figures


def delete(url: str, names: list[str], timeout: float, say: Say) -> dict[str, Any]:
    """Delete queues; returns the rate."""
    started_at = time.monotonic()
    asyncio.run(_at_once(url, names, timeout, lambda channel, name: channel.queue_delete(name)))
    say(f"{counted(len(names), 'queue')} deleted, {rate(len(names), started_at):,.0f}/s")
    return {"delete_per_s": rate(len(names), started_at)}


async def _at_once(url: str, names: Iterable[str], timeout: float, action: Callable[[Any, str], Any]) -> None:
    """Do `action` for every name, AT_ONCE at a time, over one connection."""
    from shardmq import aio

    waiting = iter(names)

    async def work(channel: Any) -> None:
        for name in waiting:  # shared: each takes the next one
            await action(channel, name)

    async with await aio.connect(url, timeout=timeout) as connection, asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work(await connection.channel()))


def rate(count: int, started_at: float) -> float:
    """Rate a second since `started_at`."""
    return round(count / max(time.monotonic() - started_at, 1e-9), 1)


def print_figures(figures: dict[str, Any], queues: int, connections: int) -> None:
    """Print the figures for people."""
    from shardmq.cmd.terminal.values import size

    roles = tuple(figures["rss_bytes"])
    columns = (Column("memory"), *(Column(role, is_number=True, text=size) for role in roles))
    rows = [
        {"memory": title, **{role: max(0, figures[name].get(role, 0)) for role in roles}}
        for title, name in (
            ("of a queue", "bytes_per_queue"),
            ("of a connection", "bytes_per_connection"),
            ("in all", "rss_bytes"),
        )
    ]
    Table(f"{counted(queues, 'queue')}, {counted(connections, 'connection')}", columns, rows).print()
