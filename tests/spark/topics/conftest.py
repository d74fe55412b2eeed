"""A stream for each test."""

from collections.abc import Iterator

import pytest

import shardmq


@pytest.fixture
def stream(connection: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream of the test's name."""
    name = request.node.name[:200].replace(",", ".")
    with connection.channel() as channel:
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        yield name
        channel.queue_delete(name)
