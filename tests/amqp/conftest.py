"""Where AMQP clients connect to, and a queue of each test's own."""

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.broker import Broker


def amqp_url(broker: Broker) -> str:
    """A broker's address as AMQP clients write it."""
    return broker.url.replace("shardmq://", "amqp://").rstrip("/") + "/%2F"


@pytest.fixture(scope="module")
def url(broker: Broker) -> str:
    return amqp_url(broker)


@pytest.fixture(scope="module")
def connection(url: str) -> Iterator[pika.BlockingConnection]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> Iterator[BlockingChannel]:
    channel = connection.channel()
    yield channel
    if channel.is_open:
        channel.close()


@pytest.fixture(scope="module")
def native(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def queue(native: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[str]:
    """A durable queue, empty."""
    name = request.node.name[:200]
    with native.channel() as channel:
        channel.queue_declare(name, durable=True)
        yield name
        channel.queue_delete(name)
