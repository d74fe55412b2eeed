"""Topics of several partitions, and their readers as Spark makes them."""

import json
from collections import defaultdict
from typing import Any

from pyspark.sql.types import StructType

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.options import parse
from shardmq.spark.topics.batch import TopicReader
from shardmq.spark.topics.columns import TOPIC_SCHEMA
from shardmq.spark.topics.stream import TopicStreamReader

COLUMNS = StructType([TOPIC_SCHEMA["value"], TOPIC_SCHEMA["partition"], TOPIC_SCHEMA["offset"]])


def publish(channel: shardmq.Channel, topic: str, first: int, end: int) -> None:
    """Messages whose bodies are numbers, each with a key of its own, confirmed."""
    with channel.publisher() as publisher:
        for number in range(first, end):
            publisher.publish(topic, f"key-{number}", b"%d" % number)


def batch(broker: Broker, **options: Any) -> TopicReader:
    """As Spark makes it, without Spark."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return TopicReader(parse({"url": broker.url} | texts, "topic"), COLUMNS)


def stream_of(broker: Broker, **options: Any) -> TopicStreamReader:
    """As Spark makes it, without Spark."""
    texts = {name: str(value) for name, value in options.items()}
    return TopicStreamReader(parse({"url": broker.url} | texts, "readStream"), COLUMNS)


def found(made: TopicReader | TopicStreamReader, parts: Any) -> dict[int, list[tuple[int, int]]]:
    """The offsets and values of each partition, in the order they came."""
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for part in parts:
        for arrow in made.read(part):
            for row in arrow.to_pylist():
                rows[row["partition"]].append((row["offset"], int(row["value"])))
    return rows


def values(made: TopicReader | TopicStreamReader, parts: Any) -> list[int]:
    """The values of all partitions, in rising order."""
    return sorted(value for rows in found(made, parts).values() for _, value in rows)
