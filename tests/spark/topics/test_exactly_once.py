"""From a topic through Spark to a queue, each message counts once: whoever is killed, and whenever."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.spark.cluster import INTERPRETED
from tests.spark.session import DAEMON, RETRIES
from tests.spark.topics.streams import publish

StartBroker = Callable[..., Broker]

MESSAGES = 10_000
BATCH = 1000
PATIENCE_SECONDS = 240.0  # Spark alone takes half a minute to start where the machine is busy

DRIVER = """
import sys
from pyspark.sql import SparkSession
from shardmq.spark.source import ShardmqDataSource

url, topic, checkpoint, master, settings = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]
builder = SparkSession.builder.master(master)
for setting in settings:
    builder = builder.config(*setting.split("=", 1))
spark = builder.getOrCreate()
spark.dataSource.register(ShardmqDataSource)
source = (
    spark.readStream.format("shardmq").option("url", url).option("subscribe", topic)
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 1000).option("minPartitions", 2).load()
)
query = (
    source.selectExpr("concat('<', cast(value as string), '>') as value", "'out' as routing_key")
    .writeStream.format("shardmq").option("url", url).option("exchange", "")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
"""


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(shards=2)


@contextmanager
def driver(script: Path, broker: Broker, checkpoint: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of its own with Spark in it, and gone with all its processes in the end."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "warm_daemon",
        **INTERPRETED,
    }
    given = [f"{name}={value}" for name, value in settings.items()]
    command = [sys.executable, str(script), broker.url, "in", str(checkpoint), f"local[2,{RETRIES}]", *given]
    paths = os.pathsep.join([str(DAEMON), *filter(None, [os.environ.get("PYTHONPATH")])])
    named = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths}
    environment = {**os.environ, **named}
    with (script.parent / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the condition is true, or the driver has ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
        time.sleep(0.02)
    fine = process.poll() in (None, 0) or is_worker_missed(process, log)
    assert fine, log.read_text(errors="replace")[-4000:]


def is_worker_missed(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether a driver has ended as a worker was killed in which Spark planned or committed; it retries tasks alone."""
    return bool(process.poll()) and "Python worker exited unexpectedly" in log.read_text(errors="replace")


def workers(of: int) -> list[int]:
    """The Python workers that a driver's tasks run in."""
    parents = {
        int(folder.name): int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and (folder / "stat").exists()
    }

    def is_below(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == of:
                return True
        return False

    def is_worker(pid: int) -> bool:
        try:
            return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    daemons = {pid for pid in parents if is_below(pid) and is_worker(pid)}
    return [pid for pid in daemons if parents[pid] in daemons]


def test_a_topic_goes_through_spark_to_a_queue_exactly_once_whoever_is_killed(broker: Broker, tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.queue_declare("in", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("out", durable=True)
        publish(channel, "in", 0, MESSAGES)

        def done() -> int:
            return channel.queue_declare("out", durable=True, passive=True).messages

        log = tmp_path / "driver.log"
        with driver(script, broker, tmp_path / "checkpoint") as process:
            wait(lambda: done() >= BATCH, process, log)
            broker.kill("gateway-0")
            wait(lambda: done() >= 3 * BATCH, process, log)
            assert process.poll() is None, "the driver was to be killed on its way"
        broker.kill("shard-1")
        with driver(script, broker, tmp_path / "checkpoint") as process:
            wait(lambda: done() >= 5 * BATCH, process, log)
            for pid in workers(process.pid):
                os.kill(pid, signal.SIGKILL)
            broker.kill("shard-0")
            wait(lambda: done() >= 7 * BATCH or is_worker_missed(process, log), process, log)
            broker.kill("coordinator")
            wait(lambda: process.poll() is not None, process, log)
        if process.returncode:
            with driver(script, broker, tmp_path / "checkpoint") as process:
                wait(lambda: process.poll() is not None, process, log)
        assert done() == MESSAGES
        seen: Counter[bytes] = Counter()
        for message in channel.consume("out", auto_ack=True, prefetch=5000, inactivity_timeout=20):
            assert message is not None
            seen[message.body] += 1
            if seen.total() == MESSAGES:
                break
        assert seen == Counter(b"<%d>" % number for number in range(MESSAGES))
