"""`shardmq top`: its options, one snapshot, and the loop on a terminal."""

import sys
import time
from typing import Final

import click

from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import BROKER, JSON
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.top.page import lines, page, rows_for
from shardmq.cmd.top.view import FILTER_MAX, ORDERS, Look, Looker, View
from shardmq.errors import ConnectionLost

SNAPSHOT_ROWS: Final = 20


@click.command(short_help="Watch a broker and its busiest queues.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="publish",
    show_default=True,
    help="What queues are sorted by: numbers from the largest down.",
)
@click.option("--reverse", is_flag=True, help="The other way round.")
@click.option("--filter", "name", default="", metavar="TEXT", help="Only queues whose name contains this.")
@click.option(
    "--vhost",
    shell_complete=completing("vhosts"),
    help="Only queues of this virtual host; otherwise of all that the user may see.",
)
@click.option(
    "--rows",
    type=WholeNumber(1, 500),
    default=SNAPSHOT_ROWS,
    show_default=True,
    help="Queues of a snapshot; on a terminal, as many as there is room for.",
)
@click.option(
    "--interval",
    type=Number(0.1, 60),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--once", is_flag=True, help="One snapshot, as in a pipe.")
@BROKER
@JSON
def top(
    *,
    order: str,
    reverse: bool,
    name: str,
    vhost: str | None,
    rows: int,
    interval: float,
    once: bool,
    url: str,
    as_json: bool,
) -> None:
    """Watch a broker and its busiest queues.

    On a terminal it goes on until q: s sorts by the next column (S by the one before), r reverses, / filters, n and p
    turn pages. In a pipe, with --once or --json it is one snapshot: a line for each queue, tab-separated.
    """
    view = View(order, reverse, name[:FILTER_MAX], vhost)
    looker = Looker(url)
    try:
        if once or as_json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            look = looker.look(view, rows)
            if as_json:
                print_json({"overview": look["overview"], "queues": look["queues"], "found": look["found"]})
            else:
                click.echo("\n".join(lines(look)))
        else:
            watch(looker, view, interval)
    finally:
        looker.close()


def watch(looker: Looker, view: View, interval: float) -> None:
    """Show looks on the terminal until a key says to quit.

    Raises:
        ShardmqError: the first look fails, or the broker refuses one.
    """
    from rich.console import Console
    from rich.live import Live

    from shardmq.cmd.top.keyboard import Keyboard

    console = Console(highlight=False)
    look: Look | None = looker.look(view, rows_for(console.height, None))
    fault = ""
    with Keyboard() as keyboard, Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            due = time.monotonic() + interval
            live.update(page(look, view, console.width, fault), refresh=True)
            while keys := keyboard.wait(due):
                if any(view.press(key) for key in keys):
                    return
                if view.typed is None:
                    break
                live.update(page(look, view, console.width, fault), refresh=True)
            try:
                look, fault = looker.look(view, rows_for(console.height, look)), ""
            except ConnectionLost as lost:
                fault = f"no answer, trying again: {lost}"
