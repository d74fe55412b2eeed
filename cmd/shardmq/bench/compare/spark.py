"""`shardmq bench spark`: a DataFrame published exactly once, at least once, with pika to RabbitMQ, and topics read."""

import contextlib
import importlib.metadata
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from shardmq.cmd.bench.compare.record import machine, merge, today, versions
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD, BrokerUrl
from shardmq.cmd.terminal.output import Say, narrator, print_json
from shardmq.cmd.terminal.rows import Column, Row
from shardmq.cmd.terminal.tables import Table
from shardmq.cmd.terminal.values import counted, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shardmq.cmd.bench.compare.spark_sinks import Sink
    from shardmq.cmd.bench.compare.spark_sources import Source

WARM_ROWS: Final = 200_000
"""Rows published before the measurement: Java compiles what runs often, Python workers import modules."""

ASKED_ROWS_PER_S: Final = 200_000
"""The rate asked of exactly-once on two cores, broker included."""

TEXTS: Final = {
    "shardmq, exactly-once": (
        "exactly_once",
        "shardmq, exactly once",
        f"shardmq, exactly-once: staged, committed, visible ({ASKED_ROWS_PER_S:,} were asked)",
    ),
    "shardmq, at-least-once": ("at_least_once", "shardmq, at least once", "shardmq, at-least-once"),
    "RabbitMQ, pika, confirms": (
        "rabbitmq_confirms",
        "RabbitMQ, pika, a confirm for each",
        "RabbitMQ, pika, a confirm for each message (pika waits for each)",
    ),
    "RabbitMQ, pika, no confirms": ("rabbitmq", "RabbitMQ, pika, no confirms", "RabbitMQ, pika, no confirms"),
    "shardmq, read": (
        "read",
        "shardmq, a topic read",
        "shardmq, a topic of 8 partitions read by `spark.read`, all columns",
    ),
    "shardmq, readStream": (
        "read_stream",
        "shardmq, a topic read as a stream",
        "shardmq, the same by `spark.readStream`, from its start to the end of the topic",
    ),
}
"""What ways of publishing and reading are called in a file of results, in the order of its rows: id, in plots, in
tables."""

COMPARED: Final = ("at_least_once", "rabbitmq_confirms", "rabbitmq")
"""Rows of which a file says how many times as fast exactly-once is."""

PEER: Final = re.compile(r"RabbitMQ (\S+)(?=,)")
"""What a sink of RabbitMQ is called, with its version."""


class Outcome(msgspec.Struct, frozen=True):
    """The figures of one way of publishing or reading.

    Attributes:
        sink: name of that way.
        rows: rows of each turn.
        rows_per_s: median of the turns, from the job's start to the last message in its queue, or to the job's end.
        rows_per_s_min: the least of them.
        rows_per_s_max: the greatest.
        note: remark for people, such as why there are no figures.
    """

    sink: str
    rows: int
    rows_per_s: float | None
    rows_per_s_min: float | None
    rows_per_s_max: float | None
    note: str = ""


@click.command("spark")
@click.option("--rows", type=WholeNumber(1), default=2_000_000, show_default=True, help="Of the DataFrame.")
@click.option("--size", type=WholeNumber(8, 1 << 20), default=100, show_default=True, help="Bytes of a body.")
@click.option(
    "--queues", type=WholeNumber(1, 1000), default=4, show_default=True, help="Queues; rows go to them in turn."
)
@click.option("--partitions", type=WholeNumber(1), default=8, show_default=True, help="Of the DataFrame.")
@click.option(
    "--turns", type=WholeNumber(1, 100), default=3, show_default=True, help="Turns that medians are taken over."
)
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
@click.option(
    "--url",
    type=BrokerUrl(),
    envvar="SHARDMQ_URL",
    show_envvar=True,
    metavar="URL",
    help="A running broker.  [default: a new one with 4 shards in a temporary directory]",
)
@click.option(
    "--rabbitmq/--no-rabbitmq", default=True, show_default=True, help="Measure RabbitMQ too, where it is installed."
)
@click.option("--topic/--no-topic", default=True, show_default=True, help="Measure reading a topic, too.")
@RECORD
@JSON
def spark(
    *,
    rows: int,
    size: int,
    queues: int,
    partitions: int,
    turns: int,
    master: str,
    url: str | None,
    rabbitmq: bool,
    topic: bool,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Measure how many rows a second Spark publishes, exactly once and at least once, and reads from a topic.

    The time is from the start of the job until the queues have all messages; the ways of publishing take turns.
    RabbitMQ is given rows of the same DataFrame for a few seconds, by pika in foreachPartition, with a confirm for each
    message and without confirms. A topic with as many messages and partitions is read whole, as a batch and as a
    stream, until the job's end.
    """
    from shardmq.cmd.bench.compare.spark_sinks import PROBES, frame
    from shardmq.cmd.spark.session import session

    say = narrator(as_json)
    with contextlib.ExitStack() as stack:
        url = url or stack.enter_context(_broker())
        say(f"a broker at {url.rpartition('@')[2]}; starting Spark, {master}")
        sinks, absent = stack.enter_context(sinks_of(url, queues, rabbitmq))  # first: Spark takes seconds to start
        started = stack.enter_context(session("shardmq bench spark", master))
        for sink in [*sinks] * PROBES:
            count = min(rows, sink.rows_max or WARM_ROWS)
            sink.publish(frame(started, count, size, sink.queues, partitions))
        load = Load(rows, size, partitions)
        rates = measure(started, sinks, load, turns, say)
        read = read_topic(started, url, load, turns, say) if topic else []
    outcomes = [outcome(sink, rows, rates[sink.name]) for sink in sinks] + absent + read
    settings = {"rows": rows, "size": size, "queues": queues, "partitions": partitions, "turns": turns}
    settings_of_all = {**settings, "master": master}
    if record_to is not None:
        record(record_to, outcomes, settings_of_all)
    if as_json:
        print_json({"spark": outcomes, "settings": settings_of_all})
    else:
        print_outcomes(outcomes, rows, size, turns, master)


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    from shardmq.cmd.run.broker import Broker

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-bench-")))
        yield stack.enter_context(Broker(folder / "data", shards=4)).url


@contextlib.contextmanager
def sinks_of(url: str, queues: int, rabbitmq: bool) -> "Iterator[tuple[list[Sink], list[Outcome]]]":
    """The ways of publishing that are installed, and outcomes that say why others are missing."""
    from shardmq.cmd.bench.compare.load import need_pika
    from shardmq.cmd.bench.compare.rabbitmq import Absent, Server
    from shardmq.cmd.bench.compare.spark_sinks import PikaSink, ShardmqSink

    with contextlib.ExitStack() as stack:
        sinks: list[Sink] = [
            stack.enter_context(contextlib.closing(ShardmqSink(url, queues, delivery)))
            for delivery in ("exactly-once", "at-least-once")
        ]
        absent = []
        if rabbitmq:
            try:
                need_pika()
                server = stack.enter_context(Server())
            except Absent as reason:
                absent = [Outcome("RabbitMQ, pika", 0, None, None, None, str(reason))]
            else:
                for confirms in (True, False):
                    sinks.append(stack.enter_context(contextlib.closing(PikaSink(server, queues, confirms))))
        yield sinks, absent


@dataclass(frozen=True, slots=True)
class Load:
    """The DataFrame of each turn.

    Attributes:
        rows: of the DataFrame.
        size: bytes of a body.
        partitions: of the DataFrame.
    """

    rows: int
    size: int
    partitions: int


def measure(session: "SparkSession", sinks: "list[Sink]", load: Load, turns: int, say: Say) -> dict[str, list[float]]:
    """Publish by each sink in each turn; returns rows a second, by sink."""
    from shardmq.cmd.bench.compare.spark_sinks import frame

    rates: dict[str, list[float]] = {sink.name: [] for sink in sinks}
    for turn in range(1, turns + 1):
        for sink in sinks:
            count = load.rows if sink.rows_max is None else min(load.rows, sink.rows_max)
            seconds = sink.publish(frame(session, count, load.size, sink.queues, load.partitions))
            rate = count / seconds
            rates[sink.name].append(rate)
            say(f"turn {turn} of {turns}: {sink.name}: {count:,} rows in {seconds:.2f} s, {rate:,.0f} rows/s")
    return rates


def read_topic(session: "SparkSession", url: str, load: Load, turns: int, say: Say) -> list[Outcome]:
    """Read a topic by each source in each turn, after one that does not count."""
    from shardmq.cmd.bench.compare.spark_sources import BatchSource, StreamSource, Topic

    outcomes = []
    with contextlib.closing(Topic(url, load.rows, load.size, load.partitions)) as topic:
        sources: list[Source] = [BatchSource(topic), StreamSource(topic)]
        rates: dict[str, list[float]] = {source.name: [] for source in sources}
        for turn in range(turns + 1):
            for source in sources:
                rate = load.rows / source.read(session)
                if turn:
                    rates[source.name].append(rate)
                    say(f"turn {turn} of {turns}: {source.name}: {rate:,.0f} rows/s")
        for name, found in rates.items():
            median, least, most = (round(each, 1) for each in (statistics.median(found), min(found), max(found)))
            outcomes.append(Outcome(name, load.rows, median, least, most))
    return outcomes


def outcome(sink: "Sink", rows: int, rates: list[float]) -> Outcome:
    """The median of a sink's turns."""
    count = rows if sink.rows_max is None else min(rows, sink.rows_max)
    note = "" if count == rows else f"{count:,} of the {rows:,} rows, so that a turn ends in seconds"
    return Outcome(
        sink.name, count, round(statistics.median(rates), 1), round(min(rates), 1), round(max(rates), 1), note
    )


def record(path: Path, outcomes: Sequence[Outcome], settings: Mapping[str, Any]) -> None:
    """Write figures into a file; rows of it that were not measured now stay.

    Args:
        path: of the file; it need not exist.
        outcomes: the figures.
        settings: of the measurement.
    """
    exactly_once = outcomes[0].rows_per_s
    assert exactly_once is not None  # shardmq is never absent
    new = [recorded(each, exactly_once) for each in outcomes if each.rows_per_s is not None]
    peer = next((found[1] for each in outcomes if (found := PEER.match(each.sink))), None)
    about = {
        "title": "Spark: publishing beside RabbitMQ, and reading a topic",
        "command": "shardmq bench spark --record docs/benchmarks/results/spark.json",
        "machine": machine(path.resolve().parent),
        "versions": {
            **versions(),
            "pyspark": importlib.metadata.version("pyspark"),
            **({"rabbitmq": peer} if peer else {}),
        },
        "settings": {
            **settings,
            "measured": "from the job's start until all is in its queues; of reads, until the job's end",
        },
        "peer_settings": {
            "rabbitmq": "pika from the same DataFrame's foreachPartition, measured in between, with as many rows as "
            "end in seconds"
        },
        "statistic": f"medians of {settings['turns']} turns",
        "kept": "medians, least and most",
    }
    nothing = dict.fromkeys(("rate", "least", "most", "times", "recorded"))
    merge(
        path, about, [{"id": name, "label": label, "what": what} | nothing for name, label, what in TEXTS.values()], new
    )


def recorded(found: Outcome, exactly_once: float) -> dict[str, Any]:
    """The row of a file of results for a way that was measured.

    Args:
        found: its figures.
        exactly_once: rows a second that shardmq published exactly once.
    """
    assert found.rows_per_s is not None  # else it was not measured
    peer = PEER.match(found.sink)
    name, label, what = TEXTS[found.sink.replace(peer[0], "RabbitMQ") if peer else found.sink]
    times = exactly_once / found.rows_per_s
    return {
        "id": name,
        "label": label,
        "what": what.replace("RabbitMQ", peer[0]) if peer else what,
        "rate": round(found.rows_per_s),
        "least": found.rows_per_s_min,
        "most": found.rows_per_s_max,
        "times": (round(times) if peer else round(times, 2)) if name in COMPARED else None,
        "recorded": today(),
    }


def print_outcomes(outcomes: list[Outcome], rows: int, size: int, turns: int, master: str) -> None:
    """Print the figures for people."""
    first = outcomes[0].rows_per_s

    def ratio(row: Row) -> float | None:
        return first / row["rows_per_s"] if first and row["rows_per_s"] else None

    columns = (
        Column("by", lambda row: row["sink"]),
        Column("rows/s", lambda row: row["rows_per_s"], is_number=True, text=whole, style=lambda _row: "bold"),
        Column("ratio", ratio, is_number=True, text=lambda times: f"{times:.1f} x"),
        Column("min", lambda row: row["rows_per_s_min"], is_number=True, text=whole),
        Column("max", lambda row: row["rows_per_s_max"], is_number=True, text=whole),
    )
    what = f"{rows:,} rows of {size} bytes, {master}, {counted(turns, 'turn')}"
    title = f"{what}: from the job's start until all is in its queues; ratio: exactly-once to each"
    Table(title, columns, msgspec.to_builtins(outcomes)).print()
    for row in outcomes:
        if row.note:
            click.echo(f"{row.sink}: {row.note}")
