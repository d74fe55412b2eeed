"""Jobs on a broker with two gateways: tasks share them, and one that dies under a job costs no row and doubles none."""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import shardmq
from shardmq.cmd.bench.scaling.processes import Processes
from tests.spark.topics.streams import bodies

ROWS = 8000
PARTITIONS = 4
BATCH_ROWS = 500


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("gateways") / "data"
    folder.mkdir()
    with Processes(folder, shards=2, gateways=2) as processes:
        yield processes
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def gateways_used(connection: shardmq.Connection) -> set[str]:
    """The gateways that Spark's processes are connected to."""
    rows = connection.topology("connections")
    return {row["gateway"] for row in rows if row["client_properties"]["product"] == "shardmq.spark"}


def test_tasks_share_gateways_and_go_on_when_one_dies(
    spark: SparkSession, processes: Processes, tmp_path: Path
) -> None:
    note = tmp_path / "killed"
    first = processes.url.replace(f",127.0.0.1:{processes.ports[1]}", "")
    with shardmq.connect(first) as connection, connection.channel() as channel:
        channel.topic_declare("readings", PARTITIONS)
        channel.queue_declare("rows", durable=True)
        with channel.publisher() as publisher:
            pairs = [(f"sensor-{number % 50}", b"%d" % number) for number in range(ROWS)]
            publisher.publish_keyed("readings", pairs)
        source = spark.read.format("shardmq").options(url=processes.url, subscribe="readings")
        topic = source.schema("value binary").load()
        assert bodies(topic) == [*range(ROWS)]
        assert gateways_used(connection) == {"gateway-0", "gateway-1"}

        pid, written = processes.pids["gateway-1"], str(note)

        def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            for number, batch in enumerate(batches):
                if TaskContext.get().partitionId() == 1 and number == 2 and not Path(written).exists():
                    Path(written).touch()
                    os.kill(pid, signal.SIGKILL)
                yield batch

        frame = topic.selectExpr("value", "'rows' as routing_key")
        writer = frame.mapInArrow(kill_once, frame.schema).write.format("shardmq").option("url", processes.url)
        writer.option("exchange", "").mode("append").save()
        assert note.exists()
        seen: Counter[int] = Counter()
        for message in channel.consume("rows", auto_ack=True, prefetch=5000, inactivity_timeout=20):
            assert message is not None, f"{seen.total()} of {ROWS} came"
            seen[int(message.body)] += 1
            if seen.total() >= ROWS:
                break
        assert seen == Counter(range(ROWS))
        assert channel.queue_declare("rows", passive=True).messages == 0
        assert gateways_used(connection) == {"gateway-0"}
