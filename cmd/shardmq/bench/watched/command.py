"""`shardmq bench watched`: rates and latency with browsers open on the page and a scrape a second, and without."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from shardmq.cmd.bench.settings import Settings
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD, URL
from shardmq.cmd.terminal.output import narrator, print_json
from shardmq.cmd.terminal.tables import print_facts

if TYPE_CHECKING:
    from shardmq.cmd.bench.results import Figures

MANAGEMENT_URL: Final = "http://127.0.0.1:15672"
LATENCY_SECONDS: Final = 10
"""How long the latency is measured, unless that is more messages than a bulk run has."""
BYTES: Final = 100

KEPT: Final = {"ratio": "median", "least": "min", "most": "max"}
"""Of the rounds' ratios, as a file of results calls them, and as `spread` does."""


@click.command()
@URL
@click.option("--management", default=MANAGEMENT_URL, show_default=True, help="URL of the management process.")
@click.option("--browsers", type=WholeNumber(1, 500), default=20, show_default=True, help="Pages that are open.")
@click.option("--rounds", type=WholeNumber(1, 100), default=5, show_default=True, help="Rounds, for the medians.")
@click.option(
    "--messages", type=WholeNumber(1000), default=5_000_000, show_default=True, help="Messages of each bulk run."
)
@click.option("--rate", type=Number(1), default=2000.0, show_default=True, help="Messages a second for the latency.")
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
def watched(
    *,
    url: str,
    management: str,
    browsers: int,
    rounds: int,
    messages: int,
    rate: float,
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Measure bulk's rate and the 99th percentile of latency while browsers watch, in turns with nobody watching.

    Browsers ask what the page asks every five seconds, for four of its views; a scrape comes every second. Their own
    processor time is taken from the same machine.
    """
    from shardmq.client.api.url import parse
    from shardmq.cmd.bench.watched.watchers import watching

    say = narrator(as_json)
    bulk = Settings("bulk", url, messages, BYTES, 1, 1, 1, 1.0, False, timeout)
    latency = Settings(
        "latency", url, min(messages, round(rate * LATENCY_SECONDS)), BYTES, 1, 1, 1, rate, False, timeout
    )
    measured: dict[str, list[float]] = {name: [] for name in ("bulk", "bulk_watched", "p99", "p99_watched")}
    answers, scrapes, slowest_ms = 0, 0, 0.0
    address = parse(url)
    for number in range(1, rounds + 1):
        for is_watched in (False, True) if number % 2 else (True, False):
            if not is_watched:
                rate_now, p99 = _both(bulk, latency)
            else:
                with watching(management, address.user, address.password, browsers) as seen:
                    rate_now, p99 = _both(bulk, latency)
                answers, scrapes = answers + seen.answers, scrapes + seen.scrapes
                slowest_ms = max(slowest_ms, seen.slowest_ms)
            end = "_watched" if is_watched else ""
            measured["bulk" + end].append(rate_now)
            measured["p99" + end].append(p99)
            who = "watched" if is_watched else "alone"
            say(f"round {number} of {rounds}, {who}: {rate_now:,.0f} msgs/s, p99 {p99:.2f} ms")
    figures = {
        "bulk_msgs_per_s": spread(measured["bulk"]),
        "bulk_watched_msgs_per_s": spread(measured["bulk_watched"]),
        "bulk_ratio": ratios(measured["bulk_watched"], measured["bulk"]),
        "p99_ms": spread(measured["p99"]),
        "p99_watched_ms": spread(measured["p99_watched"]),
        "p99_ratio": ratios(measured["p99_watched"], measured["p99"]),
        "answers": answers,
        "scrapes": scrapes,
        "slowest_answer_ms": round(slowest_ms, 1),
        "settings": {**msgspec.to_builtins(bulk), "rate": rate, "browsers": browsers, "rounds": rounds},
    }
    if record_to is not None:
        record(record_to, figures)
    if as_json:
        print_json(figures)
    else:
        print_figures(figures)


def _both(bulk: Settings, latency: Settings) -> tuple[float, float]:
    """Messages a second end to end, and the 99th percentile of latency in ms."""
    rate = _figures(bulk).end_to_end_msgs_per_s
    times = _figures(latency).latency_ms
    assert rate is not None  # it has a consumer
    assert times is not None  # likewise
    return rate, times.p99


def _figures(settings: Settings) -> "Figures":
    from shardmq.cmd.bench.results import figures
    from shardmq.cmd.bench.trial import run

    return figures(settings, *run(settings, lambda _published, _consumed: None), {})


def spread(values: list[float]) -> dict[str, float]:
    """The median, the least and the greatest."""
    picks: tuple[tuple[str, Callable[[list[float]], float]], ...]
    picks = (("median", statistics.median), ("min", min), ("max", max))
    return {name: round(pick(values), 3) for name, pick in picks}


def ratios(watched_values: list[float], alone: list[float]) -> dict[str, float]:
    """The median, the least and the greatest of the rounds' ratios."""
    return spread([one / other for one, other in zip(watched_values, alone, strict=True)])


def record(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures into a file, which need not exist."""
    from shardmq.cmd.bench.compare.record import machine, merge, today, versions

    settings = figures["settings"]
    about = {
        "title": "What open pages and scrapes cost those who publish",
        "command": "shardmq bench watched --record docs/benchmarks/results/watched.json",
        "machine": machine(path.resolve().parent),
        "versions": versions(),
        "settings": {name: settings[name] for name in ("messages", "rate", "browsers", "rounds")},
        "statistic": f"medians of {settings['rounds']}, in turns with nobody watching",
        "kept": "medians, least and most",
    }
    rows = [
        {
            "id": row,
            "text": text,
            "unit": unit,
            "alone": round(figures[alone]["median"], digits),
            "watched": round(figures[seen]["median"], digits),
            **{name: round(figures[ratio][kept], 2) for name, kept in KEPT.items()},
            "recorded": today(),
        }
        for row, text, unit, alone, seen, ratio, digits in (
            ("bulk", "bulk", "msgs/s", "bulk_msgs_per_s", "bulk_watched_msgs_per_s", "bulk_ratio", -4),
            ("p99", "99th percentile of latency", "ms", "p99_ms", "p99_watched_ms", "p99_ratio", 2),
        )
    ]
    merge(path, about, rows, rows)


def print_figures(figures: dict[str, Any]) -> None:
    """Print the figures for people."""
    rate, p99 = figures["bulk_ratio"], figures["p99_ratio"]
    print_facts(
        f"{figures['settings']['browsers']} browsers and a scrape a second, medians of {figures['settings']['rounds']}",
        {
            "bulk, alone": f"{figures['bulk_msgs_per_s']['median']:,.0f} msgs/s",
            "bulk, watched": f"{figures['bulk_watched_msgs_per_s']['median']:,.0f} msgs/s",
            "ratio": f"{rate['median']:.2f} ({rate['min']:.2f} to {rate['max']:.2f})",
            "p99, alone": f"{figures['p99_ms']['median']:.2f} ms",
            "p99, watched": f"{figures['p99_watched_ms']['median']:.2f} ms",
            "its ratio": f"{p99['median']:.2f} ({p99['min']:.2f} to {p99['max']:.2f})",
            "answers": f"{figures['answers']:,} to browsers, {figures['scrapes']:,} scrapes, "
            f"the slowest in {figures['slowest_answer_ms']:.0f} ms",
        },
    )
