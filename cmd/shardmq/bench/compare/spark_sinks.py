"""The ways of publishing a DataFrame: the data source, exactly once or at least once, and pika."""

import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from shardmq.client.sync.connection import connect
from shardmq.errors import ShardmqError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shardmq.cmd.bench.compare.rabbitmq import Server

VISIBLE_SECONDS: Final = 120.0
"""The queues must have all messages this long after the job."""

LOOK_SECONDS: Final = 0.005
PIKA_SECONDS: Final = 8.0
"""Target time of one turn of pika."""

PROBE_ROWS: Final = 2_000
PROBES: Final = 3
"""Trial turns that find the number of rows: the first is slow, as it starts workers and connections."""


class Sink(Protocol):
    """A way of publishing.

    Attributes:
        name: name for people.
        queues: names of the queues, which are the routing keys.
        rows_max: most rows in one turn, found by `PROBES` trial turns; None without a limit.
        note: remark for people.
    """

    name: str
    queues: list[str]
    rows_max: int | None
    note: str

    def publish(self, rows: "DataFrame") -> float:
        """Publish rows; returns the seconds until all were in their queues, which are empty afterwards."""

    def close(self) -> None:
        """Delete the queues, and close the connection."""


def frame(spark: "SparkSession", rows: int, size: int, queues: list[str], partitions: int) -> "DataFrame":
    """A DataFrame whose bodies are row numbers, padded to `size` bytes; rows go to the queues in turn."""
    from pyspark.sql import functions as F

    names = F.array(*map(F.lit, queues))
    return spark.range(0, rows, 1, partitions).select(
        F.rpad(F.col("id").cast("string"), size, "x").alias("value"),
        names[(F.col("id") % len(queues)).cast("int")].alias("routing_key"),
    )


class ShardmqSink:
    """The data source."""

    def __init__(self, url: str, queues: int, delivery: str) -> None:
        self.name = f"shardmq, {delivery}"
        self.rows_max: int | None = None
        self.note = ""
        self._url = url
        self._delivery = delivery
        self._connection = connect(url)
        self._channel = self._connection.channel()
        prefix = f"bench-{secrets.token_hex(4)}"
        self.queues = [f"{prefix}-{number}" for number in range(queues)]
        for queue in self.queues:
            self._channel.queue_declare(queue, durable=True)

    def publish(self, rows: "DataFrame") -> float:
        """Publish rows; returns the seconds until they are committed and visible."""
        total = rows.count()
        writer = rows.write.format("shardmq").options(url=self._url, exchange="", delivery=self._delivery)
        started_at = time.perf_counter()
        writer.mode("append").save()
        until_all(self._count, total)
        seconds = time.perf_counter() - started_at
        for queue in self.queues:
            self._channel.queue_purge(queue)
        return seconds

    def _count(self) -> int:
        return sum(self._channel.queue_declare(queue, passive=True).messages for queue in self.queues)

    def close(self) -> None:
        """Delete the queues."""
        for queue in self.queues:
            self._channel.queue_delete(queue)
        self._connection.close()


class PikaSink:
    """Pika, with a connection in each partition; messages are persistent and queues durable."""

    def __init__(self, server: "Server", queues: int, confirms: bool) -> None:
        import pika

        self.name = f"RabbitMQ {server.version}, pika, {'confirms' if confirms else 'no confirms'}"
        self.rows_max: int | None = PROBE_ROWS
        self.note = ""
        self._server = server
        self._confirms = confirms
        self._probes = PROBES
        self.queues = [f"bench-{'confirms' if confirms else 'none'}-{number}" for number in range(queues)]
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", server.port, heartbeat=0))
        self._channel = self._connection.channel()
        for queue in self.queues:
            self._channel.queue_declare(queue, durable=True)

    def publish(self, rows: "DataFrame") -> float:
        """Publish rows; returns the seconds until all were in their queues, which are empty afterwards."""
        total = rows.count()
        started_at = time.perf_counter()
        rows.foreachPartition(partial(publish_partition, self._server.port, self._confirms))
        until_all(self._count, total)
        seconds = time.perf_counter() - started_at
        for queue in self.queues:
            self._channel.queue_purge(queue)
        if self._probes:
            self._probes -= 1
            self.rows_max = max(PROBE_ROWS, int(total / seconds * PIKA_SECONDS) // 1000 * 1000)
        return seconds

    def _count(self) -> int:
        counts = [self._channel.queue_declare(queue, passive=True).method.message_count for queue in self.queues]
        return sum(counts)

    def close(self) -> None:
        """Close the connection; the queues end with the server."""
        self._connection.close()


def publish_partition(port: int, confirms: bool, rows: Iterable[Any]) -> None:
    """Publish the rows of a partition over a connection of its own, in a Python worker of Spark."""
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    if confirms:
        channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2)
    for row in rows:
        channel.basic_publish("", row.routing_key, row.value.encode(), properties)
    connection.close()


def until_all(count: Callable[[], int], total: int) -> None:
    """Wait until `count` returns `total`.

    Raises:
        ShardmqError: there are more messages, or still fewer after VISIBLE_SECONDS.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS
    while (found := count()) != total:
        if found > total or time.monotonic() > deadline:
            raise ShardmqError(f"of {total:,} rows published the queues have {found:,} messages")
        time.sleep(LOOK_SECONDS)
