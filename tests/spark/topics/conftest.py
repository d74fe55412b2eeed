"""A topic for the tests of this folder."""

from collections.abc import Iterator

import pytest

import shardmq


@pytest.fixture
def topic(connection: shardmq.Connection, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of four partitions."""
    name = f"topic-{request.node.name[:200]}"
    with connection.channel() as channel:
        channel.topic_declare(name, 4)
        yield name
        channel.topic_delete(name)
