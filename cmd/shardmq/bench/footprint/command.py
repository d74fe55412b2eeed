"""`shardmq bench footprint`: options, and what was measured as a table or JSON."""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from shardmq.cmd.bench.compare.command import DISKS, ended_by_signals
from shardmq.cmd.bench.compare.load import need_pika
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.compare.record import machine, merge, today, versions
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORDS
from shardmq.cmd.terminal.output import narrator, print_json
from shardmq.cmd.terminal.rows import Column
from shardmq.cmd.terminal.tables import Table
from shardmq.errors import ShardmqError

REST: Final = "rest"
LARGE: Final = "large-messages"
STARTS: Final = "checks-at-start"

TITLES: Final = {
    REST: "At rest",
    LARGE: "Memory that one large message takes",
    STARTS: "How long a start looks through a store",
}
"""Parts, and what their files of results are called inside."""

STATISTICS: Final = {
    REST: "as measured",
    LARGE: "the most that a process took above what it takes at rest",
    STARTS: "medians of 5 starts, less that of 5 starts with an empty store",
}


@click.command("footprint")
@click.option("--part", "parts", multiple=True, type=click.Choice(tuple(TITLES)), help="Only this; may be repeated.")
@click.option(
    "--seconds", type=Number(0.1, 3600), default=20.0, show_default=True, help="Time at rest that is looked at."
)
@click.option(
    "--connections", type=WholeNumber(1, 10_000), default=1000, show_default=True, help="Idle AMQP connections."
)
@click.option("--size-mib", type=WholeNumber(1, 512), default=128, show_default=True, help="MiB of the large message.")
@click.option(
    "--segments",
    type=WholeNumber(1, 10_000_000),
    default=100_000,
    show_default=True,
    help="Stored segments that a start looks through; each has 100 messages.",
)
@click.option(
    "--delayed",
    type=WholeNumber(1, 100_000_000),
    default=1_000_000,
    show_default=True,
    help="Delayed messages beside them.",
)
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Directory on the disk that is written to.  [default: {DISKS[0]}]",
)
@RECORDS
@JSON
def footprint(
    *,
    parts: tuple[str, ...],
    seconds: float,
    connections: int,
    size_mib: int,
    segments: int,
    delayed: int,
    disk: Path | None,
    record_in: Path | None,
    as_json: bool,
) -> None:
    """Measure what a broker takes at rest, for a large message and to start with a full store.

    Brokers of its own are started, one after another. Idle connections and large messages need pika. The kernel is
    asked for the most memory that a process took, which only its owner may.
    """
    from shardmq.cmd.bench.footprint import large, rest, starts

    say = narrator(as_json)
    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    wanted = [part for part in TITLES if part in (parts or TITLES)]
    if {REST, LARGE}.intersection(wanted):
        try:
            need_pika()
        except Absent as reason:
            raise ShardmqError(f"{reason}, or measure --part {STARTS} alone") from reason
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-footprint-", dir=disk)))
        works = {
            REST: lambda: rest.rows(folder, seconds, connections, say),
            LARGE: lambda: large.rows(folder, size_mib << 20, say),
            STARTS: lambda: starts.rows(folder, segments, delayed, say),
        }
        found = {part: works[part]() for part in wanted}
        where = machine(disk)
    settings: dict[str, dict[str, Any]] = {
        REST: {"shards": 4, "seconds": seconds, "connections": connections},
        LARGE: {"shards": 1, "message_mib": size_mib},
        STARTS: {"shards": 1, "segments": segments, "delayed": delayed},
    }
    if record_in is not None:
        for part, rows in found.items():
            record(record_in / f"{part}.json", part, rows, settings[part], where)
    if as_json:
        print_json({**found, "settings": settings, "machine": where})
        return
    for part, rows in found.items():
        print_rows(part, rows)


def record(
    path: Path, part: str, rows: Sequence[dict[str, Any]], settings: dict[str, Any], where: dict[str, Any]
) -> None:
    """Write the rows of a part into its file.

    Args:
        path: of the file; it need not exist.
        part: which one.
        rows: all that it has.
        settings: of the measurement.
        where: the machine.
    """
    about = {
        "title": TITLES[part],
        "command": f"shardmq bench footprint --part {part} --record docs/benchmarks/results",
        "machine": where,
        "versions": versions(),
        "settings": settings,
        "statistic": STATISTICS[part],
        "kept": "the figures alone",
    }
    merge(path, about, rows, [{**row, "recorded": today()} for row in rows])


COLUMNS: Final = {
    REST: (Column("what", is_wrapped=True), Column("measured"), Column("asked")),
    LARGE: (Column("message", lambda row: row["what"], is_wrapped=True), Column("gateway"), Column("shard")),
    STARTS: (
        Column("stored", lambda row: row["what"], is_wrapped=True),
        Column("start takes longer by", lambda row: f"{row['seconds']:.1f} s", is_number=True),
    ),
}
"""Columns of the tables that are printed."""


def print_rows(part: str, rows: list[dict[str, Any]]) -> None:
    """Print the figures of a part for people."""
    Table(TITLES[part].lower(), COLUMNS[part], [{**row, "what": row["what"].replace("`", "")} for row in rows]).print()
