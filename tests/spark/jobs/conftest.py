"""What a job says, and an exchange for each test."""

from collections.abc import Iterator

import pytest

import shardmq
import shardmq.spark
from tests.spark.jobs.messages import Told


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def exchange(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic exchange."""
    name = f"x-{request.node.name[:200]}"
    channel.exchange_declare(name, "topic", durable=True)
    yield name
    channel.exchange_delete(name)
