"""What the tests of topics do all the time."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.option_values import PARTITION_IDS

Load = Callable[..., DataFrame]


def loader(spark: SparkSession, broker: Broker) -> Load:
    """Reads topics of a broker in a batch: `load("orders", schema="value binary", startingOffsets="earliest")`."""

    def load(topic: str, schema: str | None = None, **options: Any) -> DataFrame:
        source = spark.read.format("shardmq").option("url", broker.url).options(**{"subscribe": topic} | options)
        return (source if schema is None else source.schema(schema)).load()

    return load


def bodies(frame: DataFrame) -> list[int]:
    """The values of messages that are numbers, in rising order."""
    return sorted(int(row.value) for row in frame.select("value").collect())


def publish(channel: shardmq.Channel, queue: str, first: int, end: int, **properties: Any) -> None:
    """Messages whose bodies are numbers, confirmed."""
    with channel.publisher() as publisher:
        given = shardmq.Properties(**properties) if properties else None
        publisher.publish_many("", queue, [b"%d" % number for number in range(first, end)], given)


def start(
    frame: DataFrame, folder: Path, sink: str | None = None, *, trigger: dict[str, Any] | None = None, **options: Any
) -> StreamingQuery:
    """A query into Parquet files of the folder, or into another sink."""
    writer = frame.writeStream.format(sink or "parquet").option("checkpointLocation", str(folder / "checkpoint"))
    if sink is None:
        writer = writer.option("path", str(folder / "out"))
    return writer.options(**options).trigger(**(trigger or {"availableNow": True})).start()


def finish(query: StreamingQuery, seconds: int = 400) -> list[dict[str, Any]]:
    """Wait for the query's end; returns the progress of its micro-batches that had messages."""
    assert query.awaitTermination(seconds), "the query did not end"
    fault = query.exception()
    if fault is not None:
        raise fault
    return [dict(progress) for progress in query.recentProgress if progress["numInputRows"]]


def written(spark: SparkSession, folder: Path) -> list[int]:
    """The numbers that a query has written, in rising order."""
    return sorted(int(row.value) for row in spark.read.parquet(str(folder / "out")).select("value").collect())


def places(table: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The offsets of a checkpoint, without the partitions' ids."""
    return {topic: of_topic for topic, of_topic in table.items() if not topic.startswith(PARTITION_IDS)}


def sizes(progress: Sequence[dict[str, Any]]) -> list[int]:
    """How many messages each micro-batch had."""
    return [batch["numInputRows"] for batch in progress]
