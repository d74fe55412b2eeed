"""Tables of benchmarks, the demo and Spark's jobs on a terminal of 80 columns: whole lines, and every column there."""

import io
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from shardmq.cmd.bench import command, features, scattered
from shardmq.cmd.bench.compare import command as compare
from shardmq.cmd.bench.compare import comparison, growth, rows, spark
from shardmq.cmd.bench.results import Figures, Latency
from shardmq.cmd.bench.scale import connections, delays
from shardmq.cmd.bench.settings import FEATURES, Settings
from shardmq.cmd.bench.streams.command import report
from shardmq.cmd.bench.streams.measure import Found
from shardmq.cmd.bench.streams.rows import ROWS
from shardmq.cmd.demo.flights import QUEUES, Tally
from shardmq.cmd.demo.report import print_carriers, print_queues
from shardmq.cmd.demo.topic import READERS, Outcome
from shardmq.cmd.spark.dead_letters import print_groups
from shardmq.cmd.spark.progress import print_summary
from shardmq.spark.jobs.dead_letters import Group, Report
from shardmq.spark.jobs.outcome import Summary

Shown = Callable[[Callable[[], None]], list[str]]

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = 80
SETTINGS = Settings("pipelined", "", 200_000, 100, 1, 1, 1, 1.0, False, 120.0)
DEAD_AT = datetime(2026, 11, 20, 18, tzinfo=UTC)


class Screen(io.StringIO):
    """A terminal, as far as those who print can tell."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """What is printed on a terminal of 80 columns, line by line."""

    def show(prints: Callable[[], None]) -> list[str]:
        screen = Screen()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", screen)
            patch.setenv("COLUMNS", str(COLUMNS))
            patch.setenv("TERM", "xterm")
            prints()
        return ESCAPES.sub("", screen.getvalue()).splitlines()

    return show


def measured() -> None:
    settings = {"mode": "bulk", "messages": 1_000_000, "size": 100, "transient": False, "fdatasync_per_s": 12_345}
    latency = Latency(1.234, 123.456, 12345.678)
    command.print_table(Figures(1_234_567.8, 987_654.3, 876_543.2, latency, settings))


def with_features() -> None:
    costs = [features.Cost(name, 123_456.7, 134_567.8, 0.92, 0.51, 1.03) for name in [*FEATURES][1:]]
    features.print_costs(costs, SETTINGS)


def many_queues() -> None:
    roles = {"coordinator": 9_400_000, "gateway": 67_000_000, "shard": 123_000_000, "all": 199_400_000}
    each = {"bytes_per_queue": roles, "bytes_per_connection": roles, "rss_bytes": roles}
    connections.print_figures(each, 10_000, 5_000)


def delayed() -> None:
    late = {"min": 0.1, "p50": 1.234, "p99": 123.456, "max": 1234.567}
    shards = {f"shard-{number}": 123_456_789 for number in range(4)}
    memory = {"before": shards, "pending": shards, "after_kill": shards}
    rates = {"publish_msgs_per_s": 123_456.7, "late_ms": late, "shards_rss_bytes": memory}
    delays.print_figures({**rates, "settings": {"messages": 1_000_000}})


def compared() -> None:
    turns = comparison.Turns(123_456.7, 45_678.9, (45_678.9, 123_456.7))
    ratio = comparison.Turns(12.703, 10.512, (10.512, 12.703))
    outcomes = [
        comparison.Outcome(
            name,
            figure.name,
            row.text,
            figure.unit,
            turns,
            turns,
            ratio,
            tuple(comparison.Result(comparison.goal_text(goal, figure), 1.0, True) for goal in figure.goals),
            8.1,
            21.3,
        )
        for name, row in rows.ROWS.items()
        for figure in row.figures
    ]
    settings = {"brokers": ["shardmq 0.9.0", "RabbitMQ 4.0.5"], "turns": 3, "cpus": 2, "fdatasync_per_s": 12_345}
    compare.print_outcomes(outcomes, [], settings)


def with_scattered() -> None:
    numbers = {"declarations": 1000, "queues": 10_000, "copies": 1000, "round_trips": 10_000, "connections": 5000}
    figures = {"end_to_end_msgs_per_s": 123_456.7, "broker_cpu_us": 12.3, "p99_ms": 1234.567}
    scattered.print_figures(dict.fromkeys(scattered.PARTS, figures), {**numbers, "rate": 20_000.0, "size": 100})


def with_growth() -> None:
    growth.print_points(
        [growth.Point(name, max(entry.points), 12.345, 11.499, (12.345,)) for name, entry in growth.SERIES.items()]
    )


def compared_in_spark() -> None:
    outcomes = [
        spark.Outcome(f"shardmq, {delivery}", 2_000_000, 234_567.8, 223_456.7, 245_678.9)
        for delivery in ("exactly-once", "at-least-once")
    ]
    for confirms, rate in (("confirms", 1_234.5), ("no confirms", 23_456.7)):
        outcomes.append(spark.Outcome(f"RabbitMQ 4.0.5, pika, {confirms}", 187_000, rate, rate, rate))
    outcomes.append(spark.Outcome("shardmq, readStream", 2_000_000, 1_123_456.7, 999_999.9, 1_234_567.8))
    spark.print_outcomes(outcomes, 2_000_000, 100, 3, "local[2]")


def with_streams() -> None:
    found = [
        Found(name, broker, 1_234_567.8, 1.0, (1.0,), None if ROWS[name].is_less_better else 0.1234)
        for name in ROWS
        for broker in ROWS[name].brokers
    ]
    report(found, {"brokers": {}}, {}, None, as_json=False)


def published() -> None:
    summary = Summary(
        job="publish",
        rows=336_776,
        messages=336_776,
        bytes=33_000_000,
        seconds=3.21,
        transaction="spark-0f8fad5b-d9cb-469f-a165-70867728950e",
        queues={"flights.late": 123_456, "flights.everything": 336_776},
    )
    print_summary(summary, "published to exchange 'flights'")


PRINTED: dict[str, tuple[Callable[[], None], list[str]]] = {
    "demo": (
        lambda: print_queues([Tally(queue, 336_776, 336_776, True) for queue in QUEUES]),
        [*QUEUES, "UA.*.late", "336,776", "in order", "right"],
    ),
    "demo of topics": (
        lambda: print_carriers(Outcome({"UA": 336_776}, {reader: {"UA": 336_776} for reader in READERS})),
        ["carrier", "UA", "336,776", *READERS, "right"],
    ),
    "bench bulk": (measured, ["1,234,568 msgs/s", "1.23 / 123.46 / 12345.68 ms"]),
    "bench features": (with_features, [*[*FEATURES][1:], "msgs/s", "plain", "ratio", "min", "max"]),
    "bench queues": (many_queues, ["of a connection", "coordinator", "gateway", "shard", "all"]),
    "bench delays": (delayed, ["1.2 / 123.5 / 1234.6 ms", "memory of shards, after kill"]),
    "bench compare": (
        compared,
        ["fan-out", "shardmq", "worst", "RabbitMQ", "ratio", "goal"],
    ),
    "bench scattered": (with_scattered, ["end to end msgs/s", "123,457", "broker cpu us", "12.3", "1,235"]),
    "bench growth": (with_growth, ["100,000,000", "12.3", "11.50 x", "of the first"]),
    "bench streams": (with_streams, ["Redis", "1,234,568", "0.12 / 0.12 / 0.12", "300,000"]),
    "bench spark": (
        compared_in_spark,
        ["shardmq, exactly-once", "RabbitMQ 4.0.5, pika, no confirms", "rows/s", "ratio", "min", "max"],
    ),
    "spark publish": (
        published,
        ["spark-0f8fad5b-d9cb-469f-a165-70867728950e", "flights.everything", "ready now"],
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_table_fits_with_all_its_columns(shown: Shown, name: str) -> None:
    prints, words = PRINTED[name]
    lines = shown(prints)
    assert all(len(line) <= COLUMNS for line in lines), lines
    assert [word for word in words if not any(word in line for line in lines)] == []
    assert "not shown" not in " ".join(lines)


@pytest.mark.parametrize(
    ("queue", "exchange", "left_out"),
    [("orders", "shop", None), ("orders.europe.retried", "shop.events", "not shown for want of room: oldest, newest")],
)
def test_dead_letters_fit_and_what_does_not_is_named(
    shown: Shown, queue: str, exchange: str, left_out: str | None
) -> None:
    groups = [
        Group(reason, queue, exchange, DEAD_AT, 12_345, DEAD_AT, DEAD_AT + timedelta(minutes=59))
        for reason in ("rejected", "expired", "maxlen", "delivery_limit", "ack_timeout")
    ]
    groups.append(Group(None, None, None, None, 1, DEAD_AT, DEAD_AT))
    lines = shown(lambda: print_groups(Report(tuple(groups), Summary(job="deadletters")), "dead"))
    assert all(len(line) <= COLUMNS for line in lines), lines
    words = ["dead letters in queue 'dead': 61,726 messages", "delivery_limit", "no x-death", queue, exchange, "12,345"]
    assert [word for word in words if not any(word in line for line in lines)] == []
    assert [line for line in lines if "not shown" in line] == ([left_out] if left_out else [])
