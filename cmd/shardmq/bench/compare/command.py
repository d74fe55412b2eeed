"""`shardmq bench compare`: the same clients, the same machine, shardmq and RabbitMQ in turns."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from shardmq.cmd.bench.compare.comparison import Comparison, Limits, Outcome, Result
from shardmq.cmd.bench.compare.load import PROGRAMS, Contestant
from shardmq.cmd.bench.compare.rabbitmq import Absent, Server
from shardmq.cmd.bench.compare.record import machine, record
from shardmq.cmd.bench.compare.rows import ROWS
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD
from shardmq.cmd.terminal.output import CommandFailed, print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import counted
from shardmq.errors import ShardmqError
from shardmq.version import VERSION

DISKS: Final = (Path("/var/tmp"), Path(tempfile.gettempdir()))
"""Folders for the brokers' data; the first that is writable is taken. /tmp is often not on a disk."""

GATEWAYS: Final = click.option(
    "--gateways",
    type=WholeNumber(1, 64),
    help="Gateways of the shardmq that is started.  [default: as `shardmq up`]",
)

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def row_names(_context: click.Context, _option: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The names of rows that were asked for, in the table's order; all where none were.

    Raises:
        BadParameter: there is no such row.
    """
    wanted = [word for pattern in patterns for word in pattern.split(",") if word]
    for word in wanted:
        if not any(fnmatchcase(name, word) for name in ROWS):
            raise click.BadParameter(f"there is no row '{word}'; there are {', '.join(ROWS)}")
    return tuple(name for name in ROWS if not wanted or any(fnmatchcase(name, word) for word in wanted))


@click.command("compare")
@click.option(
    "--turns",
    type=WholeNumber(1, 100),
    default=3,
    show_default=True,
    help="Turns that the median and the worst are taken of.",
)
@click.option(
    "--seconds",
    type=Number(0.1, 60),
    default=2.0,
    show_default=True,
    help="Time of one measurement; the number of messages follows.",
)
@click.option("--messages", type=WholeNumber(1), help="Messages of each measurement, instead of --seconds.")
@click.option(
    "--rows",
    "names",
    multiple=True,
    callback=row_names,
    metavar="NAME,…",
    help="Measure only these rows, as both-100-shared or 'latency-*'; may be repeated.  [default: all]",
)
@click.option(
    "--shards", type=WholeNumber(1, 64), default=4, show_default=True, help="Shards of the shardmq that is started."
)
@GATEWAYS
@click.option(
    "--rabbitmq/--no-rabbitmq", default=True, show_default=True, help="Measure RabbitMQ too, where it is installed."
)
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Directory on the disk that both write to.  [default: {DISKS[0]}]",
)
@click.option(
    "--timeout",
    type=Number(1),
    default=90.0,
    show_default=True,
    metavar="SECONDS",
    help="Give a row up when one measurement takes longer.",
)
@RECORD
@JSON
def compare(
    *,
    turns: int,
    seconds: float,
    messages: int | None,
    names: tuple[str, ...],
    shards: int,
    gateways: int | None,
    rabbitmq: bool,
    disk: Path | None,
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Measure shardmq and RabbitMQ in turns with the same clients: median and worst of each workload, and the ratios.

    The command starts both brokers on free ports, with their data on the same disk, and stops them at the end. The
    clients are a C program with librabbitmq, compiled on the spot, pika, shardmq's SDK and Spark. Every message is
    checked: none may be lost, delivered twice, changed or out of order.

    All rows take about a quarter of an hour. A row that fails is named at the end, and the exit code is 1.
    """
    from shardmq.cmd.bench.disk import fdatasync_per_s

    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-compare-", dir=disk)))
        programs, absent = programs_of(names, folder)
        contestants, missing = stack.enter_context(contestants_in(folder, shards, gateways, rabbitmq))
        absent += missing
        settings = {
            "turns": turns,
            "seconds": None if messages else seconds,
            "messages": messages,
            "shards": shards,
            "gateways": gateways_of(shards, gateways),
            "brokers": [who.name for who in contestants],
            "fdatasync_per_s": fdatasync_per_s(disk),
            "cpus": len(os.sched_getaffinity(0)),
        }
        comparison = Comparison(programs, contestants, Limits(turns, seconds, messages, timeout))
        measure(comparison, turns, as_json)
    where = machine(disk)
    outcomes, failures = comparison.outcomes(), list(comparison.failures.values())
    if record_to is not None:
        record(record_to, outcomes, settings, where)
    if as_json:
        print_json(
            {"compare": outcomes, "failures": failures, "absent": absent, "settings": settings, "machine": where}
        )
    else:
        print_outcomes(outcomes, absent, settings)
    if failures:
        raise CommandFailed("; ".join(failures))


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP end this process as Ctrl-C does: not before what it has started is stopped."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def programs_of(names: Sequence[str], folder: Path) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """The commands that make the loads, by row and program; and what is missing for other rows.

    Raises:
        ShardmqError: no row can be measured.
    """
    made: dict[str, list[str] | None] = {}
    absent: list[str] = []
    programs: dict[str, dict[str, list[str]]] = {}
    for name in names:
        needed = {load.program for load in (ROWS[name].ours, ROWS[name].theirs) if load is not None}
        commands: dict[str, list[str]] = {}
        for program in needed:
            if program not in made:
                try:
                    made[program] = PROGRAMS[program].command(folder)
                except Absent as reason:
                    made[program] = None
                    absent.append(str(reason))
            command = made[program]
            if command is not None:
                commands[program] = command
        if len(commands) == len(needed):
            programs[name] = commands
    if not programs:
        raise ShardmqError("; ".join(absent))
    return programs, absent


def gateways_of(shards: int, gateways: int | None) -> int:
    """How many gateways were asked for; as many as `shardmq up` starts by itself where none were."""
    from shardmq.cmd.run.up import default_gateways
    from shardmq.runtime.cores import core_count

    return gateways or default_gateways(core_count(), shards)


@contextlib.contextmanager
def contestants_in(
    folder: Path, shards: int, gateways: int | None, rabbitmq: bool
) -> Iterator[tuple[list[Contestant], list[str]]]:
    """Start the brokers, shardmq first; yields them, and why others are missing."""
    from shardmq.cmd.run.broker import Broker

    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "data", shards=shards, gateways=gateways_of(shards, gateways)))
        contestants = [
            Contestant(f"shardmq {VERSION}", broker.port, tuple(broker.pids.values()), broker.url, str(folder))
        ]
        absent = []
        if rabbitmq:
            try:
                server = stack.enter_context(Server(folder))
                contestants.append(Contestant(f"RabbitMQ {server.version}", server.port, (server.pid,)))
            except Absent as reason:
                absent.append(f"{reason}; these are shardmq's figures alone")
        try:
            yield contestants, absent
        finally:
            for number in ENDING:  # stopping must not be interrupted
                signal.signal(number, signal.SIG_IGN)


def measure(comparison: Comparison, turns: int, as_json: bool) -> None:
    """Measure all turns, with the progress on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "{task.description}")
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as bar:
        task = bar.add_task("", total=comparison.steps)
        for turn, name, who, make in comparison.run():
            when = f"turn {turn} of {turns}" if turn else "warming up"
            bar.update(task, description=f"{when}: {name}, {who.name}")
            figures = make()
            bar.advance(task)
            if as_json:
                continue
            said = comparison.failures.get(name) or ", ".join(
                f"{number(figures[figure.name])} {figure.unit}" for figure in ROWS[name].figures if figures
            )
            bar.console.print(f"{when}: {name}: {who.name}: {said}", highlight=False, soft_wrap=True)


def print_outcomes(outcomes: Sequence[Outcome], absent: Sequence[str], settings: dict[str, Any]) -> None:
    """Print the figures for people."""
    title = (
        f"{' and '.join(settings['brokers'])}, medians and worst of {counted(settings['turns'], 'turn')}; 100-byte "
        f"persistent messages with confirms; {settings['cpus']} CPUs, {settings['fdatasync_per_s']:,} fdatasync/s"
    )
    Table(title, COLUMNS, [fields(row) for row in outcomes]).print()
    for reason in absent:
        click.echo(reason)


def fields(row: Outcome) -> Row:
    """An outcome as a row of the table."""
    shown = row.text
    if len(ROWS[row.row].figures) > 1:
        shown += f": {row.figure.removesuffix('_msgs_per_s').replace('_', ' ')}"
    elif row.unit != "msgs/s":
        shown += f", {row.unit or row.figure.replace('_', ' ')}"
    goals = ", ".join(goal.text for goal in row.goals)
    return {**msgspec.to_builtins(row), "workload": shown, "goal": goals, "missed": missed(row.goals)}


def missed(goals: Sequence[Result]) -> bool:
    """Whether a goal was not reached."""
    return any(goal.is_met is False for goal in goals)


def number(value: float) -> str:
    """A figure for people: four digits at most, as "123,500" or "0.63"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def times(value: float) -> str:
    """A ratio for people, as "1.25 x"."""
    return f"{value:.2f} x"


def part(of: str, which: str) -> Any:
    """A function of a row: the median or the worst of its figure; None where it was not measured."""
    return lambda row: row[of] and row[of][which]


COLUMNS: Final = (
    Column("workload", is_wrapped=True),
    Column("shardmq", part("shardmq", "median"), is_number=True, text=number),
    Column("worst", part("shardmq", "worst"), is_number=True, text=number),
    Column("RabbitMQ", part("rabbitmq", "median"), is_number=True, text=number),
    Column(
        "ratio",
        part("ratio", "median"),
        is_number=True,
        text=times,
        style=lambda row: "bold red" if row["missed"] else "bold",
    ),
    Column("worst ratio", part("ratio", "worst"), is_number=True, is_wrapped=True, text=times),
    Column("goal", is_wrapped=True, style=lambda row: "red" if row["missed"] else ""),
)
