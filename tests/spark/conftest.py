"""A Spark session for the tests of a file's worker, and what they ask of the broker."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.source import ShardmqDataSource
from tests.spark.cluster import INTERPRETED

DAEMON = Path(__file__).parent / "daemon"
"""Where the module is that workers are forked from."""

CHECKPOINTED = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""How streams write their checkpoints: what Spark has for local files asks a process of its own, `readlink`, of each
name, which is a quarter of what a micro-batch takes. In clusters and where Spark is killed it writes as it does."""

RETRIES = 4
"""Attempts that a task has; local[2] alone gives one."""


@pytest.fixture(scope="session")
def last_session() -> Iterator[None]:
    """Stops Spark when all is over."""
    yield
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture(scope="module")
def spark(last_session: None) -> SparkSession:  # noqa: ARG001 - it comes behind
    """Spark in this process, two tasks at a time, each tried up to four times. It takes some 8 seconds to start, and
    goes on from file to file; unless a command that was tested in between has stopped it.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer, and there is no java here")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("PYTHONPATH", str(DAEMON), os.pathsep)
        warnings.simplefilter("ignore")  # Spark's own start has some, of sockets and of dependencies
        builder = SparkSession.Builder().master(f"local[2,{RETRIES}]").appName("shardmq tests")
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
            **INTERPRETED,
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTED,
            "spark.python.daemon.module": "warm_daemon",
            "spark.executorEnv.PYTHONPATH": str(DAEMON),  # also where a command started Java before
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.dataSource.register(ShardmqDataSource)
    return session


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    """The SDK's connection to the broker of the file."""
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
    """One of its channels."""
    with connection.channel() as channel:
        yield channel


@pytest.fixture
def queue(connection: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[str]:
    """A durable queue."""
    name = request.node.name[:200]
    with connection.channel() as channel:
        channel.queue_declare(name, durable=True)
        yield name
        channel.queue_delete(name)


@pytest.fixture
def stream(connection: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream of the test's name."""
    name = f"stream-{request.node.name[:200]}".replace(",", ".")
    with connection.channel() as channel:
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        yield name
        channel.queue_delete(name)
