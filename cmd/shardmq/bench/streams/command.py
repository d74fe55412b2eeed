"""`shardmq bench streams`: streams beside RabbitMQ's and Redis's, in turns."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from shardmq.cmd.bench.compare.command import DISKS, contestants_in, ended_by_signals
from shardmq.cmd.bench.compare.load import Contestant, Figures
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.bench.compare.record import machine, merge, versions
from shardmq.cmd.bench.streams.measure import Found, Programs, Turns, attempt, by_program, by_program_on_topic
from shardmq.cmd.bench.streams.redis import RedisServer
from shardmq.cmd.bench.streams.rows import ON_TOPIC, RABBITMQ, REDIS, ROWS, SDK, SHARDMQ
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD
from shardmq.cmd.terminal.output import CommandFailed, Say, narrator, print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table

LONG_ROWS: Final = ("restart", "seek")
"""Rows that are measured on a long stream, in a broker of its own."""

CURSOR: Final = "cursor"
"""The row that is measured without a broker."""

PARTITION_ROWS: Final = ("partition", "partition-all")
"""Rows that are measured in a broker of their own, which has used no memory before."""


@click.command("streams")
@click.option("--turns", type=WholeNumber(1, 100), default=3, show_default=True, help="Turns that medians are of.")
@click.option(
    "--messages",
    type=WholeNumber(100, 5_000_000),
    default=200_000,
    show_default=True,
    help="Messages of one measurement; the SDK, which sends batches, has several times as many.",
)
@click.option(
    "--long",
    "long_messages",
    type=WholeNumber(1000, 100_000_000),
    default=10_000_000,
    show_default=True,
    help="Messages of the stream that a broker is started with; 10,000,000 take 1.3 GB of disk.",
)
@click.option("--rows", "names", multiple=True, type=click.Choice(tuple(ROWS)), help="Only this; may be repeated.")
@click.option("--peers/--no-peers", default=True, show_default=True, help="Measure RabbitMQ and Redis, too.")
@click.option("--shards", type=WholeNumber(1, 64), default=4, show_default=True, help="Shards of shardmq.")
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help=f"Directory on the disk that is written to.  [default: {DISKS[0]}]",
)
@click.option(
    "--timeout",
    type=Number(1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Give a measurement up that takes longer.",
)
@RECORD
@JSON
def streams(
    *,
    turns: int,
    messages: int,
    long_messages: int,
    names: tuple[str, ...],
    peers: bool,
    shards: int,
    disk: Path | None,
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Measure streams beside RabbitMQ's and Redis's, in turns with clients that do the same: medians and worst.

    RabbitMQ's streams are used over AMQP 0-9-1, with the same C program as shardmq's. Redis has a C program of its
    own, and writes each command to disk before it answers (appendfsync always). Every message is checked.
    """
    from shardmq.cmd.bench.streams import groups, tails

    disk = disk or next(place for place in DISKS if os.access(place, os.W_OK))
    say = narrator(as_json)
    chosen = tuple(name for name in ROWS if not names or name in names)
    measured = Turns()
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-streams-", dir=disk)))
        programs = Programs(folder)
        with brokers_in(folder, shards, peers) as (brokers, absent):
            for turn in range(turns + 1):
                for name in chosen if turn % 2 else reversed(chosen):  # what a row leaves to do falls on the next
                    if not turn and ROWS[name].is_less_better:
                        continue  # times need no warming up
                    for broker, who in brokers if turn % 2 else reversed(brokers):
                        measure = measurement(programs, name, broker, who, messages, timeout)
                        if measure is not None:
                            said = attempt(measured, name, broker, measure, counts=turn > 0)
                            say(f"turn {turn} of {turns}: {name}: {broker}: {said}")
        if CURSOR in chosen:
            measured.add(CURSOR, SHARDMQ, groups.cursor(folder))
        if any(name in chosen for name in PARTITION_ROWS):
            figures = tails.partitions(folder, messages)
            for name in PARTITION_ROWS:
                measured.add(name, SHARDMQ, figures)
        if any(name in chosen for name in LONG_ROWS):
            measure_long(measured, folder, long_messages, turns, say)
    settings = {
        "turns": turns,
        "messages": messages,
        "long_messages": long_messages,
        "shards": shards,
        "brokers": {broker: who.name for broker, who in brokers},
    }
    report(list(measured.found()), settings, machine(disk), record_to, as_json)
    for reason in [*programs.absent, *absent]:
        say(reason)
    if measured.failures:
        raise CommandFailed("; ".join(measured.failures.values()))


@contextlib.contextmanager
def brokers_in(folder: Path, shards: int, peers: bool) -> Iterator[tuple[list[tuple[str, Contestant]], list[str]]]:
    """Start the brokers, shardmq first; yields them by name, and why others are missing."""
    with contextlib.ExitStack() as stack:
        found, absent = stack.enter_context(contestants_in(folder, shards, None, peers))
        brokers = list(zip((SHARDMQ, RABBITMQ), found, strict=False))
        if peers:
            try:
                server = stack.enter_context(RedisServer(folder))
                brokers.append((REDIS, Contestant(f"Redis {server.version}", server.port, (server.pid,))))
            except Absent as reason:
                absent.append(str(reason))
        yield brokers, absent


def measurement(
    programs: Programs, name: str, broker: str, who: Contestant, messages: int, timeout: float
) -> Callable[[], Figures] | None:
    """A function that measures a row once; None where this broker has no such thing."""
    row = ROWS[name]
    count = int(messages * row.share)
    if name in (*LONG_ROWS, *PARTITION_ROWS, CURSOR) or broker not in row.brokers:
        return None
    if row.mode != SDK:
        words = programs.words(name, broker, who, count)
        run = by_program_on_topic if row.mode == ON_TOPIC else by_program
        return None if words is None else partial(run, words, who, count, timeout)
    return by_sdk(name, who, count)


def by_sdk(name: str, who: Contestant, count: int) -> Callable[[], Figures]:
    """A function that measures a row of the SDK once."""
    from shardmq.cmd.bench.streams import groups, sdk, tails, workers

    options = {key: int(value) for key, value in (ROWS[name].options or {}).items()}
    measures: dict[str, Callable[..., Figures]] = {
        "sdk-append": partial(sdk.append, is_stream=True),
        "sdk-queue": partial(sdk.append, is_stream=False),
        "sdk-read-10": sdk.read_together,
        "keys": partial(sdk.append_keys, is_many=False),
        "keys-many": partial(sdk.append_keys, is_many=True),
        "join": groups.rebalance,
        "interrupted": groups.rebalance,
        "broken": groups.broken,
        "silent": groups.silent,
        "groups": groups.read_by_groups,
        "group": tails.follow,
        "workers": workers.work,
    }
    measure = measures.get(name) or measures[name.partition("-")[0]]
    return partial(measure, who, count, **options)


def measure_long(measured: Turns, folder: Path, messages: int, turns: int, say: Say) -> None:
    """Measure the rows of a long stream."""
    from shardmq.cmd.bench.streams.sdk import long_stream

    for figures in long_stream(folder, messages, turns, say):
        for name, one in figures.items():
            measured.add(name, SHARDMQ, one)
            say(f"{name}: {one[ROWS[name].figure]:,.4g} ms")


def report(
    found: Sequence[Found],
    settings: dict[str, Any],
    where: dict[str, Any],
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Print the figures, and write them into a file where one is named."""
    rows = by_row(found)
    if record_to is not None:
        peers = {name.lower(): said.rpartition(" ")[2] for name, said in settings["brokers"].items()}
        about = {
            "title": "Streams",
            "command": "shardmq bench streams --record docs/benchmarks/results/streams.json",
            "machine": where,
            "versions": versions() | {name: version for name, version in peers.items() if name != SHARDMQ},
            "settings": {**settings, "message_bytes": 100, "window": 1000, "prefetch": 1000, "worker_prefetch": 10},
            "peer_settings": {
                "rabbitmq": "its default configuration without plugins, a stream over AMQP 0-9-1, as shardmq's",
                "redis": "appendonly yes, appendfsync always; XADD with 1,000 unanswered, XREAD COUNT 1000",
            },
            "statistic": "medians and worst of the turns, all brokers in turns; every message is checked",
            "kept": "every turn's figures",
        }
        merge(record_to, about, [empty_row(name) for name in ROWS], rows)
    if as_json:
        print_json({"streams": rows, "settings": settings, "machine": where})
    else:
        Table("streams: medians of the turns", COLUMNS, rows).print()


def empty_row(name: str) -> dict[str, Any]:
    """A row that was not measured yet."""
    row = ROWS[name]
    names = {broker.lower(): None for broker in (SHARDMQ, RABBITMQ, REDIS)}
    return {"id": name, "text": row.text, "unit": row.unit, "goal": goal_of(name), **names}


def by_row(found: Sequence[Found]) -> list[dict[str, Any]]:
    """The figures of all brokers by row."""
    rows: dict[str, dict[str, Any]] = {}
    for one in sorted(found, key=lambda each: list(ROWS).index(each.row)):
        rows.setdefault(one.row, empty_row(one.row))[one.broker.lower()] = msgspec.to_builtins(one)
    return list(rows.values())


def goal_of(name: str) -> str:
    """A row's goal for people."""
    row = ROWS[name]
    if row.goal is None:
        return ""
    sign = "≤" if row.is_less_better else "≥"
    return f"{sign} {row.goal:,g} x {ROWS[row.of].text}" if row.of else f"{sign} {row.goal:,.10g}"


def figure(broker: str) -> Callable[[Row], str]:
    """A cell with a broker's figure."""

    def cell(row: Row) -> str:
        found = row[broker]
        if found is None:
            return ""
        return f"{found['median']:,.0f}" if found["median"] >= 100 else f"{found['median']:.3g}"

    return cell


def costs(row: Row) -> str:
    """What a message costs each broker."""
    found = [row[broker.lower()] for broker in (SHARDMQ, RABBITMQ, REDIS)]
    return " / ".join([f"{one['cpu_us']:.2g}" for one in found if one is not None and one["cpu_us"] is not None])


def style(row: Row) -> str:
    """Red where a goal was missed."""
    return "bold red" if row["shardmq"] and row["shardmq"]["is_met"] is False else "bold"


COLUMNS: Final = (
    Column("workload", lambda row: f"{row['text']}, {row['unit']}", is_wrapped=True),
    Column("shardmq", figure("shardmq"), is_number=True, style=style),
    Column("RabbitMQ", figure("rabbitmq"), is_number=True),
    Column("Redis", figure("redis"), is_number=True),
    Column("cpu µs", costs, is_number=True),
    Column("goal", is_wrapped=True),
)
