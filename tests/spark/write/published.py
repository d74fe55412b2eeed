"""What the tests of writing do all the time: publish a DataFrame, take what a queue has."""

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import shardmq
from shardmq.cmd.run.broker import Broker


def write(frame: DataFrame, broker: Broker, mode: str = "append", **options: Any) -> None:
    frame.write.format("shardmq").option("url", broker.url).options(**options).mode(mode).save()


def take(channel: shardmq.Channel, queue: str) -> list[shardmq.Message]:
    """All that a queue has."""
    taken = []
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        taken.append(message)
    return taken


def transactions(connection: shardmq.Connection) -> list[str]:
    """The names of those that are open."""
    return [row["name"] for row in connection.topology("transactions")]


def refused(error: pytest.ExceptionInfo[BaseException]) -> str:
    """What Spark says of a failure, its Python part included."""
    assert isinstance(error.value, PySparkException)
    return str(error.value)
