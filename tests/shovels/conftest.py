"""Two brokers, the shovels of the first, and a RabbitMQ, each one for all tests of a file."""

from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.bench.compare.rabbitmq import Absent, Server
from shardmq.cmd.run.broker import Broker
from tests.running import running, without

from .moving import put


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker that has the shovels, with a management process."""
    with running(Broker(tmp_path_factory.mktemp("here") / "data", shards=2, management=True)) as broker:
        yield broker


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Another broker, which tests may kill."""
    with running(Broker(tmp_path_factory.mktemp("there") / "data", shards=2)) as broker:
        yield broker


@pytest.fixture(scope="module")
def connection(here: Broker) -> Iterator[shardmq.Connection]:
    """A connection to the broker with the shovels, as its administrator."""
    with shardmq.connect(here.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
    """A channel of that."""
    with connection.channel() as channel:
        yield channel


@pytest.fixture(scope="module")
def resident(connection: shardmq.Connection) -> None:
    """A shovel that stays, so that the process of shovels need not start with each test."""
    put(connection, "resident", "resident.in", "resident.out")


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[Server]:
    """A RabbitMQ, where it is installed."""
    try:
        with Server() as server:
            yield server
    except Absent as reason:
        without(reason)
