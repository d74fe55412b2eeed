"""The ways of reading a topic with Spark: a batch, and a stream up to the topic's end."""

import tempfile
import time
from typing import TYPE_CHECKING, Any, Protocol

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.compare.load import new_name
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

STEP_BYTES = 100_000
"""Bodies of about so many bytes are published with one call."""


class Source(Protocol):
    """A way of reading a topic.

    Attributes:
        name: name for people.
    """

    name: str

    def read(self, session: "SparkSession") -> float:
        """Read all of the topic; returns the seconds from the job's start to its end."""


class Topic:
    """A topic with messages, evenly in its partitions; it is deleted when this is closed.

    Args:
        url: of the broker.
        messages: how many there are.
        size: bytes of a body.
        partitions: of the topic.
    """

    def __init__(self, url: str, messages: int, size: int, partitions: int) -> None:
        self.url = url
        self.name = new_name()
        self.messages = messages
        self._connection = connect(url)
        self._channel = self._connection.channel()
        self._channel.topic_declare(self.name, partitions)
        step = max(1, STEP_BYTES // size)
        with self._channel.publisher(window=50_000) as publisher:
            for turn, first in enumerate(range(0, messages, step)):
                bodies = [b"%d" % number for number in range(first, min(first + step, messages))]
                queue = f"{self.name}-{turn % partitions}"
                publisher.publish_many("", queue, [body.ljust(size, b"x") for body in bodies])

    def options(self, reader: Any) -> Any:
        """A reader of Spark that has the topic's options, from its first message on."""
        return reader.format("shardmq").options(url=self.url, subscribe=self.name, startingOffsets="earliest")

    def check(self, rows: int) -> None:
        """Make sure that all messages were read.

        Raises:
            ShardmqError: they were not.
        """
        if rows != self.messages:
            raise ShardmqError(f"of {self.messages:,} messages of the topic Spark read {rows:,}")

    def close(self) -> None:
        """Delete the topic, and close the connection."""
        self._channel.topic_delete(self.name)
        self._connection.close()


class BatchSource:
    """`spark.read`, all columns."""

    name = "shardmq, read"

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def read(self, session: "SparkSession") -> float:
        """Read all of the topic; returns the seconds from the job's start to its end."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        rows: DataFrame = self._topic.options(session.read).load()
        observation = Observation()
        started_at = time.perf_counter()
        observed = rows.observe(observation, F.count(F.lit(1)).alias("rows"))
        observed.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started_at
        self._topic.check(observation.get["rows"])
        return seconds


class StreamSource:
    """`spark.readStream` with `availableNow`, all columns, from the query's start to its end."""

    name = "shardmq, readStream"

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def read(self, session: "SparkSession") -> float:
        """Read all of the topic; returns the seconds from the query's start to its end."""
        reader: DataStreamReader = self._topic.options(session.readStream)
        writer = reader.load().writeStream.format("noop").trigger(availableNow=True)
        with tempfile.TemporaryDirectory(prefix="shardmq-bench-") as checkpoint:
            started_at = time.perf_counter()
            query = writer.option("checkpointLocation", checkpoint).start()
            query.awaitTermination()
            seconds = time.perf_counter() - started_at
        self._topic.check(sum(progress.numInputRows for progress in query.recentProgress))
        return seconds
