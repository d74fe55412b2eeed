"""`shardmq bench growth`: what a message costs as queues, consumers, bindings, connections and a backlog grow."""

import contextlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from shardmq.cmd.bench.compare.command import DISKS, GATEWAYS, contestants_in, ended_by_signals, gateways_of
from shardmq.cmd.bench.compare.comparison import cpu_seconds, rounded
from shardmq.cmd.bench.compare.load import Contestant, Load, compiled_program, new_name, run_load
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.compare.record import machine, record_growth
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD
from shardmq.cmd.terminal.output import Say, narrator, print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel

BYTES_STORED: Final = 300
"""Room on the disk for each message of a backlog: a body of 100 bytes, twice while segments are written anew."""

STEP: Final = 500
"""Messages of one call while a backlog is published and measured."""

PORTION: Final = 50_000
"""Messages that are published before as many are consumed."""

GROWTH_MAX: Final = 1.5
"""What the last point of a series may cost, in multiples of the first."""


class Series(msgspec.Struct, frozen=True):
    """Something that grows.

    Attributes:
        text: description for people.
        points: how many of it there are.
        load: makes the load at a point; None for the backlog, which is measured by the SDK.
    """

    text: str
    points: tuple[int, ...]
    load: Callable[[int], Load] | None = None


SERIES: Final = {
    "queues": Series(
        "queues, messages to them in turn",
        (1, 10, 100, 1_000, 10_000),
        lambda at: Load("amqp", "flow", 1, {"queues": at, "global": 1}),
    ),
    "consumers": Series(
        "consumers of one queue",
        (1, 10, 100, 1_000),
        lambda at: Load("amqp", "flow", 1, {"consumers": at, "global": 1}),
    ),
    "bindings": Series(
        "bindings of a topic exchange, 10 queues",
        (10, 100, 1_000, 10_000, 100_000),
        lambda at: Load(
            "amqp", "flow", 1, {"queues": 10, "exchange": "topic", "bindings": at // 10 * 10 or 10, "global": 1}
        ),
    ),
    "connections": Series(
        "connections with a queue each, 5,000 msgs/s together",
        (1, 10, 100, 1_000, 5_000),
        lambda at: Load("amqp", "devices", 1, {"connections": at, "rate": 5_000}),
    ),
    "backlog": Series("messages in one queue before", (0, 1_000_000, 10_000_000, 100_000_000)),
}
"""All series, by name."""


class Point(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        along: name of the series.
        at: how many there were.
        cpu_us: processor time of the broker for each message, published, confirmed, delivered and acked, in µs.
        of_first: cpu_us divided by the first point's.
        turns: of the measurement; cpu_us is their median.
    """

    along: str
    at: int
    cpu_us: float
    of_first: float
    turns: tuple[float, ...]


@click.command("growth")
@click.option(
    "--along", "names", multiple=True, type=click.Choice(tuple(SERIES)), help="Measure only this; may be repeated."
)
@click.option(
    "--most",
    type=WholeNumber(1, 100_000_000),
    default=10_000_000,
    show_default=True,
    help="Leave out greater points; 100,000,000 messages of backlog take 30 GB of disk and some minutes.",
)
@click.option(
    "--turns", type=WholeNumber(1, 100), default=1, show_default=True, help="Turns that medians are taken of."
)
@click.option(
    "--messages",
    type=WholeNumber(1, 10_000_000),
    default=30_000,
    show_default=True,
    help="Messages of one measurement; of one under a backlog ten times as many, which the SDK sends in batches.",
)
@click.option(
    "--shards", type=WholeNumber(1, 64), default=4, show_default=True, help="Shards of the shardmq that is started."
)
@GATEWAYS
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Directory on the disk that is written to.  [default: {DISKS[0]}]",
)
@click.option(
    "--timeout",
    type=Number(1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when one measurement takes longer.",
)
@RECORD
@JSON
def growth(
    *,
    names: tuple[str, ...],
    most: int,
    turns: int,
    messages: int,
    shards: int,
    gateways: int | None,
    disk: Path | None,
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Measure the broker's processor time for each message as something grows: queues, consumers, bindings and so on.

    Each series has a broker of its own. The load is the C program of `bench compare`; a backlog is published by the
    SDK, and as many messages as are published then are consumed.
    """
    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    say = narrator(as_json)
    points: list[Point] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-growth-", dir=disk)))
        program = program_for(names or tuple(SERIES), folder)
        for name in names or SERIES:
            chosen = points_of(name, most, shutil.disk_usage(folder).free, say)
            with contestants_in(folder, shards, gateways, rabbitmq=False) as ((broker,), _):
                measure = measured_load(name, program, broker, messages, timeout)
                points += series(name, chosen, turns, measure, say)
            shutil.rmtree(folder / "data")
    settings = {
        "turns": turns,
        "messages": messages,
        "shards": shards,
        "gateways": gateways_of(shards, gateways),
        "most": most,
    }
    where = machine(disk)
    if record_to is not None:
        record_growth(record_to, {name: entry.points for name, entry in SERIES.items()}, points, settings, where)
    if as_json:
        print_json({"growth": points, "settings": settings, "machine": where})
    else:
        print_points(points)


def program_for(names: tuple[str, ...], folder: Path) -> list[str]:
    """The C program's command, where a series needs it.

    Raises:
        ShardmqError: it cannot be compiled here.
    """
    if all(SERIES[name].load is None for name in names):
        return []
    try:
        return compiled_program(folder)
    except Absent as reason:
        raise ShardmqError(str(reason)) from reason


def points_of(name: str, most: int, free_bytes: int, say: Say) -> list[int]:
    """The points of a series that are measured: the others are too great for what was asked, or for the disk."""
    room = most if SERIES[name].load else min(most, free_bytes // BYTES_STORED)
    chosen = [at for at in SERIES[name].points if at <= room]
    left_out = [f"{at:,}" for at in SERIES[name].points if at > room]
    if left_out:
        say(f"{name}: not measured at {', '.join(left_out)}: more than {room:,}, by --most or by the disk")
    return chosen


def series(name: str, points: list[int], turns: int, measure: Callable[[int], float], say: Say) -> Iterator[Point]:
    """Measure the points of a series, from the least on."""
    first = 0.0
    for at in points:
        found = tuple(rounded(measure(at)) for _ in range(turns))
        cpu_us = rounded(statistics.median(found))
        first = first or cpu_us
        say(f"{name} {at:,}: {cpu_us:g} µs a message")
        yield Point(name, at, cpu_us, rounded(cpu_us / first) if first else 1.0, found)


def measured_load(
    name: str, program: list[str], broker: Contestant, messages: int, timeout: float
) -> Callable[[int], float]:
    """A function that measures at a point; returns µs a message.

    Messages for each queue or binding, and some more, come first: what only a first message costs is no growth.
    """
    make = SERIES[name].load
    if make is None:
        return Backlog(broker, 10 * messages).measure

    def measure(at: int) -> float:
        load = make(at)
        if load.mode == "flow":
            options = {**load.options, "warmup": at + messages // 3}
            load = msgspec.structs.replace(load, options=options)
        return run_load(program, load, broker, messages, timeout)["cpu_us"]

    return measure


class Backlog:
    """A queue that grows, and what publishing and consuming cost then.

    Args:
        broker: where the queue is.
        messages: so many are measured at each point.
    """

    def __init__(self, broker: Contestant, messages: int) -> None:
        self._broker = broker
        self._messages = messages
        self._queue = new_name()
        self._length = 0

    def measure(self, at: int) -> float:
        """Fill the queue up to so many messages; then publish more, and consume as many, by turns: µs for each.

        Raises:
            ShardmqError: it does not have as many messages as were published.
        """
        from shardmq.client.sync.connection import connect

        assert self._broker.url is not None
        with connect(self._broker.url) as connection:
            channel = connection.channel()
            channel.queue_declare(self._queue, durable=True)
            self._publish(channel, at - self._length)
            self._length = at
            before = cpu_seconds(self._broker.pids)
            for start in range(0, self._messages, PORTION):
                count = min(PORTION, self._messages - start)
                self._publish(channel, count)
                self._consume(channel, count)
            used = cpu_seconds(self._broker.pids) - before
            found = channel.queue_declare(self._queue, passive=True).messages
            if found != at:
                raise ShardmqError(f"queue '{self._queue}' has {found:,} messages instead of {at:,}")
        return used * 1e6 / self._messages

    def _publish(self, channel: "Channel", count: int) -> None:
        bodies = [bytes(100)] * STEP
        with channel.publisher(window=50_000) as publisher:
            for start in range(0, count, STEP):
                publisher.publish_many("", self._queue, bodies[: min(STEP, count - start)])

    def _consume(self, channel: "Channel", count: int) -> None:
        """Consume exactly so many: a prefetch of their number, and no ack before the consumer has ended."""
        taken = []
        for batch in channel.consume_batches(self._queue, prefetch=count):  # left, it ends
            taken.append(batch)
            count -= len(batch.bodies)
            if count <= 0:
                break
        for batch in taken:
            batch.ack()


def print_points(points: list[Point]) -> None:
    """Print the figures for people."""
    Table("processor time of the broker for each message", COLUMNS, msgspec.to_builtins(points)).print()


def style(row: Row) -> str:
    """Red where a message costs more than it may."""
    return "bold red" if row["of_first"] > GROWTH_MAX else "bold"


COLUMNS: Final = (
    Column("along", lambda row: SERIES[row["along"]].text, is_wrapped=True),
    Column("at", is_number=True),
    Column("µs a message", lambda row: row["cpu_us"], is_number=True, text=lambda value: f"{value:.3g}"),
    Column(
        "of the first", lambda row: row["of_first"], is_number=True, text=lambda value: f"{value:.2f} x", style=style
    ),
)
