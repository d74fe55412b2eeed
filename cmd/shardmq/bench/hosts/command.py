"""`shardmq bench hosts`: a broker on three hosts, RabbitMQ's quorum queues beside it."""

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from shardmq.cmd.bench.compare.command import DISKS, ended_by_signals, number
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.compare.record import machine, merge, today, versions
from shardmq.cmd.bench.hosts.measure import empty_row
from shardmq.cmd.bench.hosts.rows import ONE, RABBITMQ, ROWS, RUNS, THREE, TWO
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD
from shardmq.cmd.terminal.output import CommandFailed, Say, narrator, print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.cmd.bench.hosts.measure import Turns


def run_names(_context: click.Context, _option: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The loads and faults that were asked for, in order; all where none were.

    Raises:
        BadParameter: there is no such thing.
    """
    wanted = [word for pattern in patterns for word in pattern.split(",") if word]
    for word in wanted:
        if not any(fnmatchcase(name, word) for name in RUNS):
            raise click.BadParameter(f"there is no row '{word}'; there are {', '.join(RUNS)}")
    return tuple(name for name in RUNS if not wanted or any(fnmatchcase(name, word) for word in wanted))


@click.command("hosts")
@click.option("--turns", type=WholeNumber(1, 100), default=3, show_default=True, help="Turns of each load.")
@click.option(
    "--seconds", type=Number(0.05, 60), default=2.0, show_default=True, help="Time of one load; messages follow."
)
@click.option("--faults", type=WholeNumber(1, 1000), default=5, show_default=True, help="How often each fault happens.")
@click.option(
    "--etcd-away",
    type=Number(0.1, 36_000),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long etcd is away.",
)
@click.option(
    "--join-mb", type=WholeNumber(1, 1_000_000), default=1000, show_default=True, help="MB in a shard that is joined."
)
@click.option(
    "--stored",
    type=WholeNumber(1, 100_000_000),
    default=10_000_000,
    show_default=True,
    help="Messages stored when a primary is lost.",
)
@click.option(
    "--rows",
    "runs",
    multiple=True,
    callback=run_names,
    metavar="NAME,…",
    help=f"Measure only these, by name or 'full-*': {', '.join(RUNS)}; may be repeated.  [default: all]",
)
@click.option("--shards", type=WholeNumber(1, 16), default=2, show_default=True, help="Shards of each shardmq.")
@click.option("--rabbitmq/--no-rabbitmq", default=True, show_default=True, help="Measure RabbitMQ, too.")
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Directory on the disk that all hosts write to.  [default: {DISKS[0]}]",
)
@click.option(
    "--timeout", type=Number(1), default=60.0, show_default=True, metavar="SECONDS", help="Give a longer load up."
)
@RECORD
@JSON
def hosts(
    *,
    runs: tuple[str, ...],
    rabbitmq: bool,
    disk: Path | None,
    record_to: Path | None,
    as_json: bool,
    **amounts: Any,
) -> None:
    """Measure shardmq on three hosts, and RabbitMQ's quorum queues on three others: rates, latency, and failovers.

    The hosts are network namespaces of this machine, which only root may make; etcd has three more. The clients are
    those of `bench compare`. When a host is lost, the longest time without a confirm is measured, by a publisher that
    is connected to another host. Everything is stopped at the end, and takes about a quarter of an hour.
    """
    from shardmq.cmd.bench.hosts.session import Amounts, Session

    say = timed(narrator(as_json))
    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    how = Amounts(**amounts)
    session = Session(how, rabbitmq, say)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-hosts-", dir=disk)))
        try:
            session.run(runs, folder)
        except Absent as reason:
            raise ShardmqError(str(reason)) from reason
    settings = {**msgspec.to_builtins(how), "cpus": len(os.sched_getaffinity(0))}
    report(session.measured, settings, session.peers, machine(disk), record_to, as_json)
    for sentence in session.absent:
        say(sentence)
    if session.measured.failures:
        raise CommandFailed("; ".join(session.measured.failures.values()))


def timed(say: Say) -> Say:
    """Say how far into the run something is said."""
    began = time.monotonic()

    def with_time(sentence: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        say(f"{minutes:02}:{seconds:02} {sentence}")

    return with_time


def report(
    measured: "Turns",
    settings: dict[str, Any],
    peers: dict[str, str],
    where: dict[str, Any],
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Print the figures, and write them into a file where one is named."""
    rows = list(measured.rows())
    if record_to is not None:
        about = {
            "title": "Several hosts",
            "command": "shardmq bench hosts --record docs/benchmarks/results/hosts.json",
            "machine": where,
            "versions": versions() | peers,
            "settings": {**settings, "message_bytes": 100, "three": "3 replicas, 2 in sync at least"},
            "peer_settings": "three nodes with default settings, quorum queues of 3 replicas",
            "statistic": "medians and worst of the turns, all brokers in turns; all hosts share the cores and the disk",
            "kept": "every turn's figures",
        }
        new = [{**row, "recorded": today()} for row in rows]
        merge(record_to, about, [empty_row(name) for name in ROWS], new)
    if as_json:
        print_json({"hosts": rows, "settings": settings, "machine": where})
    else:
        Table("three hosts on one machine: medians of the turns, and the worst", COLUMNS, rows).print()


def cell(broker: str) -> Callable[[Row], str]:
    """A cell with a broker's median and worst."""

    def text(row: Row) -> str:
        found = row[broker]
        return "" if found is None else f"{number(found['median'])} ({number(found['worst'])})"

    return text


def style(row: Row) -> str:
    """Red where a goal was missed."""
    return "bold red" if row["is_met"] is False else "bold"


COLUMNS: Final = (
    Column("what", lambda row: f"{row['text']}, {row['unit']}", is_wrapped=True),
    Column("one host", cell(ONE), is_number=True, is_wrapped=True),
    Column("2 replicas", cell(TWO), is_number=True, is_wrapped=True, style=style),
    Column("3 replicas", cell(THREE), is_number=True, is_wrapped=True),
    Column("RabbitMQ", cell(RABBITMQ), is_number=True, is_wrapped=True),
    Column("goal", is_wrapped=True),
)
