"""Where AMQP clients connect to, a queue of each test's own, and where clients of other languages are."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.run.broker import Broker

PEERS: Final = Path(sys.prefix) / "peers"
"""What peers.py has fetched: clients of other languages, and the sources of Python's."""

QUEUES: Final = 9
"""Enough to have some on each of four shards."""

FindPeer = Callable[..., Path]


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


@pytest.fixture
def tx(connection: pika.BlockingConnection) -> Iterator[BlockingChannel]:
    """A transactional channel."""
    channel = connection.channel()
    channel.tx_select()
    yield channel
    if channel.is_open:
        channel.close()


@pytest.fixture
def queues(channel: BlockingChannel, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Durable queues on all shards, all bound to an exchange of the test's name."""
    name = request.node.name
    names = [f"{name}-{number}" for number in range(QUEUES)]
    channel.exchange_declare(name, "fanout", durable=True)
    for each in names:
        channel.queue_declare(each, durable=True)
        channel.queue_bind(each, name)
    yield names
    for each in names:
        channel.queue_delete(each)
    channel.exchange_delete(name)


@pytest.fixture(scope="session")
def find_peer() -> FindPeer:
    """Finds what peers.py has fetched: `find_peer("amqp-tools", "debian/usr/bin/amqp-get", Path("/usr/bin/amqp-get"))`.

    A test whose peer is not there is skipped; where `.ci/run` runs it, it fails.
    """

    def find(package: str, fetched: str, *installed: Path) -> Path:
        for place in (PEERS / fetched, *installed):
            if place.exists():
                return place
        reason = f"{package} is not here: `make test` fetches it where apt-get, npm and a network are; or install it"
        if os.environ.get("SHARDMQ_PEERS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)

    return find
