"""What the tests of jobs look at: messages of queues, and what a job has said."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker

HEADERS: dict[str, Any] = {"attempt": 3, "exact": True, "raw": b"\x00\xff", "deep": {"a": [1, "b"]}, "text": "x"}


class Told(list[str]):
    """What a job has said."""

    def __call__(self, sentence: str) -> None:
        self.append(sentence)


def queue_of(spark: SparkSession, broker: Broker, queue: str) -> DataFrame:
    return spark.read.format("shardmq").options(url=broker.url, queue=queue).load()


def sums(rows: DataFrame, *columns: str) -> Any:
    """Count and checksum of rows, whatever their order."""
    checksum = F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))
    return tuple(rows.agg(F.count(F.lit(1)), checksum, F.sum(F.crc32(columns[0]))).collect()[0])


def bodies(channel: shardmq.Channel, queue: str) -> list[bytes]:
    """What is ready, in order; all of it stays."""
    found = []
    for part in channel.queue_slices(queue, 1):
        place: int | None = part.first
        while place is not None:
            more, place = channel.queue_read(queue, place, part.end)
            found += [message.body for message in more]
    return found


def everything(channel: shardmq.Channel, queue: str) -> list[shardmq.Message]:
    [part] = channel.queue_slices(queue, 1)
    found, after = channel.queue_read(queue, part.first, part.end)
    assert after is None
    return found


def told_of(message: shardmq.Message) -> tuple[Any, ...]:
    """What a replay has to keep: where the publisher set no id, the broker's is the message's own from then on."""
    headers = message.properties.headers
    return (
        message.body,
        message.exchange,
        message.routing_key,
        message.message_id,
        message.persistent,
        headers,
        message.properties.priority,
    )


def number_of(told: tuple[Any, ...]) -> int:
    return int(told[0])


def until_ready(channel: shardmq.Channel, queue: str, count: int) -> None:
    import time

    deadline = time.monotonic() + 30
    while channel.queue_declare(queue, passive=True).messages != count:
        assert time.monotonic() < deadline, f"{queue} has not got {count} messages"
        time.sleep(0.01)
