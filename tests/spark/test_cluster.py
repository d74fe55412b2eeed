"""A cluster of two workers with nothing but the zip on its executors: speculation, and the pipeline's commands."""

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.bundle import make_zip
from tests.spark.cluster import Cluster, bare_python

SENSED = 5000
"""Messages of the topic; a micro-batch has a thousand."""

SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}

STREAM_AND_BATCH = """
import sys, time, uuid
from pathlib import Path
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from shardmq.spark.source import ShardmqDataSource

url, checkpoint, notes = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(ShardmqDataSource)

source = spark.readStream.format("shardmq").option("url", url).option("subscribe", "sensors")
source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1000)
stream = (
    source.load().selectExpr("value", "'sensed' as routing_key")
    .writeStream.format("shardmq").option("url", url).option("exchange", "")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True)
)

def streamed():
    while True:
        query = stream.start()
        try:
            query.awaitTermination()
            return sum(batch["numInputRows"] for batch in query.recentProgress)
        except StreamingQueryException as failure:
            if query.recentProgress or "failed to connect back" not in str(failure):
                raise  # but Spark gives a Python no more than 10 s to start, which a busy machine may need

print("STREAMED", streamed())

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")

def stall(batches):
    context = TaskContext.get()
    deadline = time.monotonic() + 60
    if context.partitionId() == 3 and context.attemptNumber():
        while not list(Path(notes).glob("0-*")) and time.monotonic() < deadline:
            time.sleep(0.05)  # the first attempt is to get to its end, too
    for batch in batches:
        yield batch
    if context.partitionId() == 3:
        Path(notes, f"{context.attemptNumber()}-{uuid.uuid4().hex}").touch()
        if context.attemptNumber() == 0:
            time.sleep(600)  # all of its rows are staged, and it does not end

frame = spark.range(0, 4000, 1, 4).selectExpr("cast(id as string) as value", "'rows' as routing_key")
stalling = frame.mapInArrow(stall, frame.schema)
stalling.write.format("shardmq").option("url", url).option("txnId", "speculated").mode("append").save()
read = spark.read.format("shardmq").option("url", url).option("queue", "rows").option("minPartitions", 4).load()
print("READ", read.selectExpr("count(*) as rows", "count(distinct body) as bodies").collect()[0].asDict())
"""

WHOLE_JOBS = """
import json, sys
from pathlib import Path
import shardmq.spark
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
shardmq.spark.register(spark)
rows = Path(folder, "rows.csv")
rows.write_text("carrier,flight\\n" + "".join(f"{'UA' if n % 3 else 'AA'},{n}\\n" for n in range(900)))
quiet = {"url": url, "say": lambda text: None}
published = shardmq.spark.publish(spark, str(rows), exchange="whole", key="{carrier}", txn_id="whole", **quiet)
again = shardmq.spark.publish(spark, str(rows), exchange="whole", key="{carrier}", txn_id="whole", **quiet)
exported = shardmq.spark.export(spark, "flights", f"{folder}/archive", drain=True, **quiet)
replayed = shardmq.spark.replay(spark, f"{folder}/archive", exchange="whole", **quiet)
before = shardmq.spark.deadletters(spark, "graves", **quiet)
sent = shardmq.spark.deadletters(spark, "graves", reason="rejected", republish=True, **quiet)
print("JOBS", json.dumps([published.rows, again.rows, exported.rows, replayed.rows,
                          sum(group.count for group in before.groups), sent.summary.rows]))
"""


class Submitted(NamedTuple):
    """What became of a program on the cluster.

    Attributes:
        said: what it printed.
        killed: the executors that were killed meanwhile.
        attempts: the numbers of the attempts of the batch's straggler.
    """

    said: str
    killed: list[int]
    attempts: list[str]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "shardmq-spark.zip"
    make_zip(path)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    python = bare_python(folder / "python")
    script = "import pyspark, pyarrow\ntry:\n import shardmq\nexcept ImportError:\n print('bare')"
    probe = subprocess.run([python, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert probe.stdout == "bare\n"
    with Cluster(folder, python) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def submitted(cluster: Cluster, archive: Path, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """One program on the cluster, a stream and then a batch; while the stream runs, an executor is killed."""
    folder = tmp_path_factory.mktemp("submitted")
    script, notes, killed = folder / "job.py", folder / "notes", []
    script.write_text(STREAM_AND_BATCH)
    notes.mkdir()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("rows", durable=True)
        channel.topic_declare("sensors", 4)
        channel.queue_declare("sensed", durable=True)
        with channel.publisher() as publisher:
            for number in range(SENSED):
                publisher.publish("sensors", f"sensor-{number % 50}", b"%d" % number)

        def kill() -> None:
            deadline = time.monotonic() + 300
            while channel.queue_declare("sensed", durable=True, passive=True).messages < 2000:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.05)
            killed.append(cluster.kill_executor())

        killer = threading.Thread(target=kill)
        killer.start()
        said = cluster.submit(script, archive, broker.url, str(folder / "checkpoint"), str(notes), conf=SPECULATIVE)
        killer.join()
    return Submitted(said, killed, sorted(note.name.partition("-")[0] for note in notes.iterdir()))


def numbers(broker: Broker, queue: str) -> Counter[int]:
    """How often a queue has each number; it is empty then."""
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        messages = channel.consume(queue, auto_ack=True, inactivity_timeout=3.0)
        return Counter(int(message.body) for message in messages)


def test_a_straggler_and_its_copy_publish_each_row_once(submitted: Submitted, broker: Broker) -> None:
    assert submitted.attempts[:2] == ["0", "1"], f"nothing was speculated: {submitted.attempts}"
    assert "READ {'rows': 4000, 'bodies': 4000}" in submitted.said
    assert numbers(broker, "rows") == Counter(range(4000))


def test_a_topic_goes_to_a_queue_once_while_an_executor_is_killed(submitted: Submitted, broker: Broker) -> None:
    assert submitted.killed, "no executor was killed in time"
    assert f"STREAMED {SENSED}" in submitted.said
    assert numbers(broker, "sensed") == Counter(range(SENSED))


def test_whole_jobs_run_on_executors_that_have_nothing_of_ours(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.exchange_declare("whole", "topic", durable=True)
        channel.queue_declare("flights", durable=True)
        channel.queue_bind("flights", "whole", "#")
        channel.queue_declare("graves", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
        channel.queue_declare("mortal", durable=True, arguments=arguments)
        with channel.publisher() as publisher:
            publisher.publish_many("", "mortal", [b"%d" % number for number in range(10)])
        for _ in range(10):
            message = channel.basic_get("mortal")
            assert message is not None
            message.nack(requeue=False)
        deadline = time.monotonic() + 60
        while channel.queue_declare("graves", passive=True).messages < 10:
            assert time.monotonic() < deadline, "not all are dead letters"
            time.sleep(0.05)
    script = tmp_path / "jobs.py"
    script.write_text(WHOLE_JOBS)
    said = cluster.drive(script, broker.url, str(tmp_path))
    (jobs,) = [line for line in said.splitlines() if line.startswith("JOBS ")]
    assert json.loads(jobs.removeprefix("JOBS ")) == [900, 0, 900, 900, 10, 10]
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        ready = [channel.queue_declare(queue, passive=True).messages for queue in ("flights", "mortal", "graves")]
        assert ready == [900, 10, 0]
