"""A cluster of two workers with nothing but the zip on its executors: speculation, and the pipeline's commands."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.broker import Broker
from shardmq.spark.bundle import make_zip

from .cluster import Cluster, bare_python

SPECULATIVE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}

WRITE_WITH_A_STRAGGLER = '''
import sys, time, uuid
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from shardmq.spark.source import ShardmqDataSource

url, notes = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(ShardmqDataSource)
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")

def stall(batches):
    context = TaskContext.get()
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
'''


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


def test_a_straggler_and_its_copy_publish_each_row_once(
    cluster: Cluster, archive: Path, broker: Broker, tmp_path: Path
) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("rows", durable=True)
    script, notes = tmp_path / "job.py", tmp_path / "notes"
    script.write_text(WRITE_WITH_A_STRAGGLER)
    notes.mkdir()
    said = cluster.submit(script, archive, broker.url, str(notes), conf=SPECULATIVE)
    attempts = sorted(note.name.partition("-")[0] for note in notes.iterdir())
    assert attempts[:2] == ["0", "1"], f"nothing was speculated: {attempts}"
    assert "READ {'rows': 4000, 'bodies': 4000}" in said
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        seen: Counter[int] = Counter()
        for message in channel.consume("rows", auto_ack=True, inactivity_timeout=3.0):
            if message is None:
                break
            seen[int(message.body)] += 1
        assert seen == Counter(range(4000))
