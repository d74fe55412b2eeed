"""A Spark session for the tests of a file's worker, and what they ask of the broker."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.spark.session import DAEMON, local_session


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
        return local_session()


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
