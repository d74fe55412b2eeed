"""`shardmq bench features`: the pipelined benchmark with and without features of queues and messages.

Each feature is measured between two plain measurements and compared with their mean, so that other load on the machine
affects both.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from shardmq.cmd.bench.compare.record import machine, merge, today, versions
from shardmq.cmd.bench.settings import FEATURES, STAMP, Settings
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD, URL
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import whole

ASKED_RATIO: Final = 0.6
"""The least share of the plain queue's rate that a feature is to reach."""


def two_digits(number: float) -> str:
    """A ratio for people, as "0.85"."""
    return f"{number:.2f}"


def ratio_style(row: Row) -> str:
    """Red where the ratio is less than asked."""
    return "bold" if row["ratio"] >= ASKED_RATIO else "bold red"


COLUMNS: Final = (
    Column("feature"),
    Column("msgs/s", lambda row: row["end_to_end_msgs_per_s"], is_number=True, text=whole),
    Column("plain", lambda row: row["plain_msgs_per_s"], is_number=True, text=whole),
    Column("ratio", is_number=True, text=two_digits, style=ratio_style),
    Column("min", lambda row: row["ratio_min"], is_number=True, text=two_digits),
    Column("max", lambda row: row["ratio_max"], is_number=True, text=two_digits),
)


TEXTS: Final = {
    "ttl of the queue": ("ttl", "x-message-ttl", "`x-message-ttl`"),
    "ttl of messages": ("expiration", "expiration", "`expiration` on every message"),
    "dead-letter exchange": ("dead_letter", "x-dead-letter-exchange", "`x-dead-letter-exchange`"),
    "max-length": ("max_length", "x-max-length", "`x-max-length`"),
    "priority, blocks of 500": (
        "priority_blocks",
        "priorities in blocks of 500",
        "`x-max-priority: 10`, priorities in blocks of 500",
    ),
    "priority, alternating": ("priority_mixed", "priorities mixed", "the same, another priority with each message"),
    "properties": ("content_type", "content_type, to compare", "for comparison: `content_type` on every message"),
}
"""What features are called in a file of results, in the order of its rows: id, in plots, in tables."""


class Cost(msgspec.Struct, frozen=True):
    """The cost of a feature.

    Attributes:
        feature: its name.
        end_to_end_msgs_per_s: median rate.
        plain_msgs_per_s: median rate of the plain measurements beside it.
        ratio: median of the rounds' ratios.
        ratio_min: the least of them.
        ratio_max: the greatest.
    """

    feature: str
    end_to_end_msgs_per_s: float
    plain_msgs_per_s: float
    ratio: float
    ratio_min: float
    ratio_max: float


@click.command()
@URL
@click.option(
    "--messages", type=WholeNumber(1000), default=200_000, show_default=True, help="Messages of each measurement."
)
@click.option("--size", type=WholeNumber(STAMP.size, 65_536), default=100, show_default=True, help="Bytes of a body.")
@click.option(
    "--rounds", type=WholeNumber(1, 100), default=5, show_default=True, help="Rounds that medians are taken over."
)
@click.option(
    "--only",
    "names",
    multiple=True,
    type=click.Choice(tuple(FEATURES)[1:]),
    help="Measure only this feature; may be repeated.",
)
@click.option(
    "--timeout",
    type=Number(1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when one measurement takes longer.",
)
@RECORD
@JSON
def features(
    *,
    url: str,
    messages: int,
    size: int,
    rounds: int,
    names: tuple[str, ...],
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Measure what TTL, priority, a dead-letter exchange and length limits cost, compared with a plain queue.

    One producer, one consumer, one message a call, end to end. Every measurement of a feature stands between two of
    plain queues.
    """
    wanted = names or tuple(FEATURES)[1:]
    settings = Settings("pipelined", url, messages, size, 1, 1, 1, 1.0, False, timeout)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in wanted}
    for number, name, plain, rate in measurements(settings, wanted, rounds):
        rates[name].append((rate, plain))
        if not as_json:
            click.echo(f"round {number} of {rounds}: {name}: {rate:,.0f} msgs/s, {rate / plain:.2f} of plain", err=True)
    costs = [cost(name, pairs) for name, pairs in rates.items()]
    if record_to is not None:
        record(record_to, costs, settings, rounds)
    if as_json:
        print_json({"features": costs, "settings": {**msgspec.to_builtins(settings), "rounds": rounds}})
    else:
        print_costs(costs, settings)


def measurements(settings: Settings, names: tuple[str, ...], rounds: int) -> Iterator[tuple[int, str, float, float]]:
    """Measure; yields (round, feature, mean rate of the plain measurements around it, its rate)."""
    before = end_to_end(settings)
    for number in range(1, rounds + 1):
        for name in names:
            rate = end_to_end(msgspec.structs.replace(settings, feature=name))
            after = end_to_end(settings)
            yield number, name, (before + after) / 2, rate
            before = after


def end_to_end(settings: Settings) -> float:
    """Messages a second, from the first publish to the last delivery."""
    from shardmq.cmd.bench.results import figures
    from shardmq.cmd.bench.trial import run

    published, notes = run(settings, lambda _published, _consumed: None)
    measured = figures(settings, published, notes, {}).end_to_end_msgs_per_s
    assert measured is not None  # it has a consumer
    return measured


def cost(name: str, pairs: list[tuple[float, float]]) -> Cost:
    """The medians of a feature's rounds; `pairs` are (rate, plain rate)."""
    ratios = [rate / plain for rate, plain in pairs]
    return Cost(
        name,
        round(statistics.median(rate for rate, _ in pairs), 1),
        round(statistics.median(plain for _, plain in pairs), 1),
        round(statistics.median(ratios), 3),
        round(min(ratios), 3),
        round(max(ratios), 3),
    )


def record(path: Path, costs: Sequence[Cost], settings: Settings, rounds: int) -> None:
    """Write costs into a file; rows of it that were not measured now stay.

    Args:
        path: of the file; it need not exist.
        costs: the figures.
        settings: of the measurements.
        rounds: that medians were taken over.
    """
    about = {
        "title": "What queue arguments and properties cost",
        "command": "shardmq bench features --record docs/benchmarks/results/features.json",
        "machine": machine(path.resolve().parent),
        "versions": versions(),
        "settings": {
            "messages": settings.messages,
            "message_bytes": settings.size,
            "baseline": "the pipelined benchmark on a plain queue, measured before and after each",
        },
        "statistic": f"medians of {rounds}",
        "kept": "medians, least and most",
    }
    nothing = dict.fromkeys(("rate", "share", "least", "most", "recorded"))
    empty = [{"id": name, "label": label, "what": what, **nothing} for name, label, what in TEXTS.values()]
    known = {row["id"]: row for row in empty}
    new = [
        {
            **known[TEXTS[cost.feature][0]],
            "rate": round(round(cost.end_to_end_msgs_per_s), -4),
            "share": round(cost.ratio, 2),
            "least": round(cost.ratio_min, 2),
            "most": round(cost.ratio_max, 2),
            "recorded": today(),
        }
        for cost in costs
    ]
    merge(path, about, empty, new)


def print_costs(costs: list[Cost], settings: Settings) -> None:
    """Print the figures for people."""
    title = f"pipelined, {settings.messages:,} messages of {settings.size} bytes, persistent"
    Table(title, COLUMNS, msgspec.to_builtins(costs)).print()
