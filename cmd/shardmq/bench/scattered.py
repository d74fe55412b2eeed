"""`shardmq bench scattered`: the traffic that cannot travel in batches by itself."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from shardmq.cmd.bench.scattered_parts import STAMP, Bench, Figures
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import Say, narrator, print_json
from shardmq.cmd.terminal.rows import Column
from shardmq.cmd.terminal.tables import Table
from shardmq.errors import Timeout

PARTS: Final = ("declarations", "queues", "fan-out", "round-trips", "connections")

COLUMNS: Final = (
    Column("part", is_wrapped=True),
    Column("figure"),
    Column("measured", is_number=True, text=lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"),
)


def count_option(name: str, default: int, most: int, text: str) -> Callable[..., Any]:
    """An option with a number."""
    return click.option(name, type=WholeNumber(1, most), default=default, show_default=True, help=text)


@click.command("scattered")
@URL
@count_option("--messages", 20_000, 10_000_000, "Messages to many queues in turn; a tenth of them is fanned out.")
@count_option("--queues", 100, 10_000, "Queues that messages go to in turn.")
@count_option("--copies", 10, 1_000, "Queues that each message is fanned out to.")
@count_option("--round-trips", 500, 1_000_000, "Requests that are answered, one at a time.")
@count_option("--declarations", 100, 100_000, "Queues that are declared, bound, consumed and deleted one by one.")
@count_option("--connections", 100, 5_000, "Connections with a queue each.")
@click.option(
    "--rate",
    type=Number(1),
    default=2_000.0,
    show_default=True,
    help="Messages a second of all connections together.",
)
@click.option(
    "--seconds",
    type=Number(0.1, 600),
    default=3.0,
    show_default=True,
    help="Time that the connections publish for.",
)
@click.option(
    "--size",
    type=WholeNumber(STAMP.size, 1 << 20),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="Size of a body.",
)
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), help="Measure only this; may be repeated.")
@click.option(
    "--timeout",
    type=Number(1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when one part takes longer.",
)
@JSON
def scattered(*, url: str, parts: tuple[str, ...], timeout: float, as_json: bool, **numbers: Any) -> None:
    """Measure many queues, fan-out, round trips, declarations and connections: one message or request at a time.

    Everything runs in one process, by the asynchronous SDK, with persistent messages and confirms. Queues are deleted
    at the end. A message that is lost or comes twice is an error.
    """
    wanted = parts or PARTS
    check(wanted, numbers)
    figures = asyncio.run(measure(url, wanted, numbers, timeout, narrator(as_json)))
    if as_json:
        print_json({**figures, "settings": numbers})
    else:
        print_figures(figures, numbers)


def check(parts: tuple[str, ...], numbers: dict[str, Any]) -> None:
    """Refuse what cannot be measured.

    Raises:
        UsageError: there are fewer messages than queues or connections.
    """
    messages, queues = numbers["messages"], numbers["queues"]
    if "queues" in parts and messages < queues:
        raise click.UsageError(f"{messages:,} messages are too few for {queues:,} queues; give more --messages")
    published, connections = numbers["rate"] * numbers["seconds"], numbers["connections"]
    if "connections" in parts and published < connections:
        raise click.UsageError(
            f"{published:,.0f} messages are too few for {connections:,} connections; give a higher --rate, or more "
            "--seconds"
        )


async def measure(
    url: str, parts: tuple[str, ...], numbers: dict[str, Any], timeout: float, say: Say
) -> dict[str, Figures]:
    """Measure the parts, one after the other; returns their figures.

    Raises:
        Timeout: one takes too long.
    """
    from shardmq import aio
    from shardmq.cmd.bench.scale.connection_holders import raise_file_limit

    raise_file_limit()
    found: dict[str, Figures] = {}
    async with await aio.connect(url, timeout=timeout) as connection:
        bench = Bench(connection, f"bench-{secrets.token_hex(4)}", numbers["size"])
        steps: dict[str, Callable[[], Awaitable[Figures]]] = {
            "declarations": lambda: bench.one_by_one(numbers["declarations"]),
            "queues": lambda: bench.scattered(numbers["queues"], numbers["messages"]),
            "fan-out": lambda: bench.fan_out(numbers["copies"], max(1, numbers["messages"] // 10)),
            "round-trips": lambda: bench.round_trips(numbers["round_trips"]),
            "connections": lambda: bench.connections(url, numbers["connections"], numbers["rate"], numbers["seconds"]),
        }
        try:
            for place, part in enumerate(parts, 1):
                say(f"{place} of {len(parts)}: {part} …")
                try:
                    async with asyncio.timeout(timeout):
                        found[part] = await steps[part]()
                except TimeoutError:
                    raise Timeout(f"{part} took longer than {timeout:.0f} s; see --timeout") from None
        finally:
            await bench.clean()
    return found


def print_figures(figures: dict[str, Figures], numbers: dict[str, Any]) -> None:
    """Print the figures for people."""
    texts = {
        "declarations": f"{numbers['declarations']:,} declarations, one by one",
        "queues": f"{numbers['queues']:,} queues in turn",
        "fan-out": f"fan-out to {numbers['copies']:,} queues",
        "round-trips": f"{numbers['round_trips']:,} round trips, one at a time",
        "connections": f"{numbers['connections']:,} connections, {numbers['rate']:,.0f} msgs/s together",
    }
    rows = [
        {"part": texts[part], "figure": name.replace("_per_s", "/s").replace("_", " "), "measured": value}
        for part, measured in figures.items()
        for name, value in measured.items()
    ]
    Table(f"one message or request at a time, {numbers['size']} bytes, persistent", COLUMNS, rows).print()
