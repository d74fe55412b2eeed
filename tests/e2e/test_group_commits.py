"""Commits of members while shards of other partitions stand still or die, by real processes."""

import signal
from typing import Final

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import publish_all, shard_of, until

TOPIC: Final = "two-shards"


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    return start_broker(shards=2)


def read(consumer: shardmq.GroupConsumer, count: int) -> list[tuple[int | None, bytes]]:
    """The next messages, with their partitions."""
    found: list[tuple[int | None, bytes]] = []

    def are_there() -> bool:
        found.extend((each.partition, each.body) for each in consumer.poll(0.1))
        return len(found) >= count

    until(are_there, "all come")
    return sorted(found)


def other_shard(connection: shardmq.Connection) -> str:
    """The shard of partition 1, which is not that of partition 0."""
    shards = [shard_of(connection, f"{TOPIC}-{number}") for number in range(2)]
    assert len(set(shards)) == 2
    return shards[1]


@pytest.mark.parametrize("shared", [False, True])
def test_a_commit_waits_for_no_shard_of_a_partition_where_all_is_committed(broker: Broker, shared: bool) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.topic_declare(TOPIC, 2)
        for number in range(2):
            publish_all(channel, f"{TOPIC}-{number}", [b"first"])
        with channel.group_consumer(TOPIC, "g", start="earliest", auto_commit=False, shared=shared) as consumer:
            assert read(consumer, 2) == [(0, b"first"), (1, b"first")]
            assert consumer.commit() == {0: 1, 1: 1}
            still = other_shard(connection)
            broker.kill(still, signal.SIGSTOP)
            try:
                publish_all(channel, f"{TOPIC}-0", [b"second"])
                assert read(consumer, 1) == [(0, b"second")]
                assert consumer.commit() == {0: 2}
                assert consumer.commit() == {}
            finally:
                broker.kill(still, signal.SIGCONT)


def test_a_shard_that_dies_takes_no_acks_of_another_partition_with_it(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.topic_declare(TOPIC, 2)
        publish_all(channel, f"{TOPIC}-0", [b"only"])
        with channel.group_consumer(TOPIC, "g", start="earliest", auto_commit=False, shared=True) as consumer:
            [message] = until(lambda: consumer.poll(0.1), "it comes")
            message.ack()
            channel.topic_info(TOPIC)  # the ack was sent before
            broker.kill_and_wait(other_shard(connection))
            assert consumer.commit() == {0: 1}
