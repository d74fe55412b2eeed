"""A connection and channels to the broker of a file, and a queue of each test's own."""

from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def channel(connection: shardmq.Connection) -> Iterator[shardmq.Channel]:
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
