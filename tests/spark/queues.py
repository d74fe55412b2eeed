"""What the tests of reading do all the time."""

import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.options import parse
from shardmq.spark.read.columns import READ_SCHEMA
from shardmq.spark.read.reader import QueueReader, make_reader

PATIENCE_SECONDS = 60.0
BODY = StructType([READ_SCHEMA["body"], READ_SCHEMA["position"]])

Load = Callable[..., DataFrame]


def loader(spark: SparkSession, broker: Broker) -> Load:
    """Reads a queue of a broker: `load(queue, schema, minPartitions=2)`."""

    def load(queue: str, schema: str | None = None, **options: Any) -> DataFrame:
        source = spark.read.format("shardmq").option("url", broker.url).option("queue", queue).options(**options)
        return (source if schema is None else source.schema(schema)).load()

    return load


def reader(broker: Broker, queue: str, **options: Any) -> QueueReader:
    """As Spark makes it, without Spark; of bodies and positions."""
    given = {"url": broker.url, "queue": queue} | {name: str(value) for name, value in options.items()}
    return make_reader(parse(given, "read"), BODY)


def numbers(reader: QueueReader, part: Any) -> list[int]:
    """The bodies of a slice."""
    return [int(body) for batch in reader.read(part) for body in batch.column("body").to_pylist()]


def publish(channel: shardmq.Channel, queue: str, first: int, end: int, **properties: Any) -> None:
    """Messages whose bodies are numbers, confirmed."""
    with channel.publisher() as publisher:
        given = shardmq.Properties(**properties) if properties else None
        publisher.publish_many("", queue, [b"%d" % number for number in range(first, end)], given)


def ready(channel: shardmq.Channel, queue: str) -> list[tuple[bytes, bool]]:
    """What a queue has, and whether it was delivered before; it is taken."""
    taken = []
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        taken.append((message.body, message.redelivered))
    return taken


def counts(connection: shardmq.Connection, queue: str) -> dict[str, Any]:
    """A queue's table in the status; empty while its shard is away."""
    tables = [table for table in connection.status()["queues"] if table["name"] == queue]
    return tables[0] if tables else {}


def until(condition: Callable[[], Any], what: str) -> None:
    """Ask again and again until the answer is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:.0f} s"
        time.sleep(0.01)
