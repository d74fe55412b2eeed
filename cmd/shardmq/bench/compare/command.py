"""`shardmq bench compare`: the same AMQP clients, the same machine, shardmq and RabbitMQ in turns."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from shardmq.cmd.bench.compare.load import compiled_program, pika_program
from shardmq.cmd.bench.compare.rabbitmq import Absent, Server
from shardmq.cmd.bench.compare.rows import ROWS, Comparison, Contestant, Outcome, rate_of
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import counted, whole
from shardmq.errors import ShardmqError
from shardmq.version import VERSION

DISKS: Final = (Path("/var/tmp"), Path(tempfile.gettempdir()))
"""Folders for the brokers' data; the first that is writable is taken. /tmp is often not on a disk."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command("compare")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Rounds that medians are taken over."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 60),
    default=3.0,
    show_default=True,
    help="Time of one measurement; the number of messages follows.",
)
@click.option("--messages", type=click.IntRange(1), help="Messages of each measurement, instead of --seconds.")
@click.option(
    "--only", "names", multiple=True, type=click.Choice(tuple(ROWS)), help="Measure only this row; may be repeated."
)
@click.option(
    "--shards", type=click.IntRange(1, 64), default=4, show_default=True, help="Shards of the shardmq that is started."
)
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
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when one measurement takes longer.",
)
@JSON
def compare(
    *,
    rounds: int,
    seconds: float,
    messages: int | None,
    names: tuple[str, ...],
    shards: int,
    rabbitmq: bool,
    disk: Path | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Measure shardmq and RabbitMQ in turns with the same AMQP clients: messages a second, and the ratios.

    The command starts both brokers on free ports, with their data on the same disk, and stops them at the end. The
    clients are a C program with librabbitmq, compiled on the spot, and pika. Every message is checked: none may be
    lost, delivered twice, changed or out of order.
    """
    from shardmq.cmd.bench.disk import fdatasync_per_s

    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-compare-", dir=disk)))
        programs, absent = programs_of(names or tuple(ROWS), folder)
        contestants, missing = stack.enter_context(contestants_in(folder, shards, rabbitmq))
        absent += missing
        settings = {
            "rounds": rounds,
            "seconds": None if messages else seconds,
            "messages": messages,
            "shards": shards,
            "brokers": [who.name for who in contestants],
            "fdatasync_per_s": fdatasync_per_s(disk),
            "cpus": len(os.sched_getaffinity(0)),
        }
        comparison = Comparison(
            tuple(programs),
            contestants,
            programs,
            rounds=rounds,
            seconds=seconds,
            messages=messages,
            timeout=timeout,
        )
        measure(comparison, rounds, as_json)
    if as_json:
        print_json({"compare": comparison.outcomes(), "absent": absent, "settings": settings})
    else:
        print_outcomes(comparison.outcomes(), absent, settings)


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


def programs_of(names: Sequence[str], folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """The command that makes the load, by row; and what is missing for other rows.

    Raises:
        ShardmqError: no row can be measured.
    """
    programs: dict[str, list[str]] = {}
    absent: list[str] = []
    makers: dict[bool, Callable[[], list[str]]] = {False: lambda: compiled_program(folder), True: pika_program}
    made: dict[bool, list[str] | None] = {}
    for name in names:
        is_pikas = ROWS[name].load.is_pikas
        if is_pikas not in made:
            try:
                made[is_pikas] = makers[is_pikas]()
            except Absent as reason:
                made[is_pikas] = None
                absent.append(str(reason))
        command = made[is_pikas]
        if command is not None:
            programs[name] = command
    if not programs:
        raise ShardmqError("; ".join(absent))
    return programs, absent


@contextlib.contextmanager
def contestants_in(folder: Path, shards: int, rabbitmq: bool) -> Iterator[tuple[list[Contestant], list[str]]]:
    """Start the brokers, shardmq first; yields them, and why others are missing."""
    from shardmq.cmd.run.broker import Broker

    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(folder / "data", shards=shards))
        contestants = [Contestant(f"shardmq {VERSION}", broker.port, tuple(broker.pids.values()))]
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


def measure(comparison: Comparison, rounds: int, as_json: bool) -> None:
    """Measure all rounds, with the progress on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "{task.description}")
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as bar:
        task = bar.add_task("", total=comparison.steps)
        for turn, name, who, make in comparison.run():
            when = f"round {turn} of {rounds}" if turn else "warming up"
            bar.update(task, description=f"{when}: {name}, {who.name}")
            rates = make()
            bar.advance(task)
            if as_json:
                continue
            said = ", ".join(f"{rate_of(rates, figure):,.0f}" for figure in ROWS[name].figures)
            bar.console.print(f"{when}: {name}: {who.name}: {said} msgs/s", highlight=False, soft_wrap=True)


def print_outcomes(outcomes: Sequence[Outcome], absent: Sequence[str], settings: dict[str, Any]) -> None:
    """Print the figures for people."""
    title = (
        f"{' and '.join(settings['brokers'])}, msgs/s, medians of {counted(settings['rounds'], 'round')}; 100-byte "
        f"persistent messages with confirms; {settings['cpus']} CPUs, {settings['fdatasync_per_s']:,} fdatasync/s"
    )
    Table(title, COLUMNS, [{**msgspec.to_builtins(row), "load": label(row)} for row in outcomes]).print()
    for reason in absent:
        click.echo(reason)


def label(row: Outcome) -> str:
    """The name of a row in the table."""
    return row.text if len(ROWS[row.row].figures) == 1 else f"{row.text}: {row.figure}"


def times(number: float) -> str:
    """A ratio for people, as "1.25 x"."""
    return f"{number:.2f} x"


def ratio_style(row: Row) -> str:
    """Red where the ratio is less than asked."""
    asked, ratio = row["asked"], row["ratio"]
    return "bold red" if asked is not None and ratio is not None and ratio < asked else "bold"


COLUMNS: Final = (
    Column("load"),
    Column("shardmq", lambda row: row["shardmq_msgs_per_s"], is_number=True, text=whole),
    Column("RabbitMQ", lambda row: row["rabbitmq_msgs_per_s"], is_number=True, text=whole),
    Column("ratio", is_number=True, text=times, style=ratio_style),
    Column("asked", is_number=True, text=lambda asked: f"{asked:g} x"),
    Column("min", lambda row: row["ratio_min"], is_number=True, text=times),
    Column("max", lambda row: row["ratio_max"], is_number=True, text=times),
)
