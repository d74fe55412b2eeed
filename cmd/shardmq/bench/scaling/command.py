"""`shardmq bench scaling`: options, and what was measured as tables or JSON."""

import contextlib
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from shardmq.cmd.bench.compare.command import DISKS, ended_by_signals
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.compare.record import machine
from shardmq.cmd.bench.scaling.rows import COPIES, ETCD, GROUPS, MESSAGES, QUEUES, SPARK, TITLES, record
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORDS
from shardmq.cmd.terminal.output import narrator, print_json
from shardmq.cmd.terminal.rows import Column
from shardmq.cmd.terminal.tables import Table
from shardmq.errors import StartupRefused

MODULES: Final = {
    SPARK: "spark",
    MESSAGES: "messages",
    QUEUES: "queues",
    GROUPS: "groups",
    COPIES: "replicas",
    ETCD: "etcd",
}
"""Where a part is measured."""


@click.command("scaling")
@click.option("--part", "parts", multiple=True, type=click.Choice(tuple(TITLES)), help="Only this; may be repeated.")
@click.option("--turns", type=WholeNumber(1, 100), default=3, show_default=True, help="Turns that medians are of.")
@click.option("--rows", type=WholeNumber(1000), default=1_000_000, show_default=True, help="Rows of a job of Spark's.")
@click.option(
    "--messages", type=WholeNumber(1000), default=200_000, show_default=True, help="Messages of one measurement."
)
@click.option(
    "--queues",
    type=WholeNumber(0, 100_000),
    default=100_000,
    show_default=True,
    help="Leave out more queues than these.",
)
@click.option(
    "--groups",
    type=WholeNumber(0, 5_000),
    default=5_000,
    show_default=True,
    help="Leave out more groups than these.",
)
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Directory on the disk that is written to.  [default: {DISKS[0]}]",
)
@RECORDS
@JSON
def scaling(
    *,
    parts: tuple[str, ...],
    turns: int,
    rows: int,
    messages: int,
    queues: int,
    groups: int,
    disk: Path | None,
    record_in: Path | None,
    as_json: bool,
) -> None:
    """Measure what more gateways and shards bring, and what each process takes of a core.

    Each layout of 1 or 2 gateways and 1, 2 or 4 shards has a broker of its own. Spark, in a cluster of two executors on
    this machine, publishes rows exactly once and reads a topic. Two C programs publish and consume messages over AMQP,
    message by message. Declarations are measured beside up to 100,000 queues, groups that begin beside up to 5,000;
    a shard with one copy and with two, and etcd, where that is installed.
    """
    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    say = narrator(as_json)
    measures: dict[str, Callable[[], list[Any]]] = {
        SPARK: lambda: part_of(SPARK).measure(disk, rows, turns, say),
        MESSAGES: lambda: part_of(MESSAGES).measure(disk, messages, turns, say),
        QUEUES: lambda: part_of(QUEUES).measure(disk, queues, say),
        GROUPS: lambda: part_of(GROUPS).measure(disk, groups, say),
        COPIES: lambda: part_of(COPIES).measure(disk, messages, turns, say),
        ETCD: lambda: part_of(ETCD).measure(disk, say),
    }
    settings: dict[str, dict[str, Any]] = {
        SPARK: {"rows": rows, "row_bytes": 100, "queues": 4, "partitions": 8, "turns": turns, "spark": "2 executors"},
        MESSAGES: {"messages": messages, "message_bytes": 100, "programs": 2, "queues": 16, "turns": turns},
        QUEUES: {"measured": 1000, "under_way": 64, "shards": 4, "gateways": 1},
        GROUPS: {"measured": 500, "under_way": 64, "partitions": 4, "shards": 4, "gateways": 1},
        COPIES: {"messages": messages, "message_bytes": 100, "queues": 8, "shards": 1, "turns": turns},
        ETCD: {"swaps": 500, "members": 1},
    }
    found: dict[str, list[Any]] = {}
    absent: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        for part in parts or TITLES:
            try:
                found[part] = measures[part]()
            except (Absent, StartupRefused) as reason:
                absent.append(f"{part}: {reason}")
                say(f"left out: {absent[-1]}")
                continue
            if record_in is not None:
                path = record_in / f"scaling-{part}.json"
                record(path, part, found[part], part_of(part).EMPTY, settings[part], machine(disk))
    if as_json:
        print_json({"scaling": found, "absent": absent, "settings": settings, "machine": machine(disk)})
        return
    for part, rows_of in found.items():
        Table(TITLES[part], COLUMNS[part], msgspec.to_builtins(rows_of)).print()


def part_of(name: str) -> Any:
    """The module that measures a part; each brings along what the others do without."""
    return import_module(f"shardmq.cmd.bench.scaling.{MODULES[name]}")


def _of(table: str, role: str) -> Callable[[Any], Any]:
    return lambda row: row[table][role]


SCALED: Final = (
    Column("load"),
    Column("gateways", is_number=True),
    Column("shards", is_number=True),
    Column("a second", lambda row: row["rate"], is_number=True, text=lambda rate: f"{rate:,.0f}"),
    *(
        Column(f"µs {role}", _of("cpu_us", role), is_number=True, text=lambda spent: f"{spent:.2f}")
        for role in ("gateway", "shard", "client")
    ),
    *(
        Column(f"cores {role}", _of("cores", role), is_number=True, text=lambda taken: f"{taken:.2f}")
        for role in ("gateway", "shard", "client")
    ),
)
GROWN: Final = (
    Column("queues", is_number=True),
    Column("declared/s", lambda row: row["declare_per_s"], is_number=True, text=lambda rate: f"{rate:,.0f}"),
    Column("µs coordinator", _of("cpu_us", "coordinator"), is_number=True, text=lambda spent: f"{spent:.0f}"),
    Column("MB", _of("resident_bytes", "coordinator"), is_number=True, text=lambda size: f"{size / 1e6:.0f}"),
    Column("start, CPU ms", lambda row: row["start_cpu_ms"], is_number=True, text=lambda spent: f"{spent:.0f}"),
)
GATHERED: Final = (
    Column("groups", is_number=True),
    Column("begun/s", lambda row: row["begin_per_s"], is_number=True, text=lambda rate: f"{rate:,.0f}"),
    *(
        Column(f"µs {role}", _of("cpu_us", role), is_number=True, text=lambda spent: f"{spent:.0f}")
        for role in ("coordinator", "gateway", "shard")
    ),
    Column("MB", _of("resident_bytes", "coordinator"), is_number=True, text=lambda size: f"{size / 1e6:.0f}"),
)
COPIED: Final = (
    Column("copies", lambda row: row["replicas"], is_number=True),
    Column("msgs/s", lambda row: row["rate"], is_number=True, text=lambda rate: f"{rate:,.0f}"),
    *(
        Column(f"µs {role}", _of("cpu_us", role), is_number=True, text=lambda spent: f"{spent:.2f}")
        for role in ("gateway", "primary", "follower")
    ),
    Column("written/byte", lambda row: row["written"], is_number=True, text=lambda times: f"{times:.2f}"),
)
SWAPPED: Final = (
    Column("watchers", is_number=True),
    Column("ms a change", lambda row: row["swap_ms"], is_number=True, text=lambda took: f"{took:.2f}"),
    Column("µs of etcd", lambda row: row["cpu_us"], is_number=True, text=lambda spent: f"{spent:.0f}"),
    Column("cores at rest", lambda row: row["rest_cores"], is_number=True, text=lambda taken: f"{taken:.3f}"),
)
COLUMNS: Final = {SPARK: SCALED, MESSAGES: SCALED, QUEUES: GROWN, GROUPS: GATHERED, COPIES: COPIED, ETCD: SWAPPED}
"""By what is measured."""
