"""Space that acked messages took is given back, and nothing else."""

import random
from collections.abc import Callable

import pytest

import shardmq
from shardmq.cmd.broker import Broker

from .traffic import counts, numbers, publish_all, take, until

StartBroker = Callable[..., Broker]


@pytest.mark.parametrize("one_by_one", [False, True], ids=["runs", "singles"])
def test_messages_acked_out_of_order_are_collected_and_the_others_survive_a_kill(
    start_broker: StartBroker, one_by_one: bool
) -> None:
    broker = start_broker(shards=1)
    dice = random.Random(7)
    padding = bytes(500)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("sparse", durable=True)
        sent = [number + b" " + padding for number in numbers(0, 5000)]
        if one_by_one:
            with channel.publisher() as publisher:
                for body in sent:
                    publisher.publish("", "sparse", body)
        else:
            publish_all(channel, "sparse", sent)
        held = {}
        for message in channel.consume("sparse", prefetch=0):
            held[int(message.body.split()[0])] = message
            if len(held) == 5000:
                break
        gone = dice.sample(range(5000), 4000)
        full = counts(connection, "sparse")
        assert (full["total"], full["valid"], full["unacked"]) == (5000, 5000, 5000)
        for number in gone:
            held[number].ack()

        def collected() -> bool:
            table = counts(connection, "sparse")
            return bool(table["valid"] == 1000 and table["total"] < 2000)

        until(collected, "the dead are collected")
        table = counts(connection, "sparse")
        assert table["bytes"] < full["bytes"] * table["total"] / 4900
        alive = sorted(set(range(5000)) - set(gone))
        broker.kill_everything()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        table = counts(connection, "sparse")
        assert (table["valid"], table["ready"], table["unacked"]) == (1000, 1000, 0)
        assert table["total"] < 2000
        got = take(channel, "sparse")
        assert [int(message.body.split()[0]) for message in got] == alive
        assert all(message.redelivered for message in got)
        assert all(message.body == sent[number] for message, number in zip(got, alive, strict=True))


def test_a_store_uses_the_space_of_drained_queues_again(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("drained", durable=True)

        def file_bytes() -> int:
            [shard] = [each for each in connection.status()["processes"] if each["role"] == "shard"]
            return int(shard["store"]["file_bytes"])

        for _ in range(5):
            publish_all(channel, "drained", [bytes(10_000)] * 800)
            assert len(take(channel, "drained")) == 800
            table = counts(connection, "drained")
            assert [table[name] for name in ("total", "valid", "bytes", "segments")] == [0, 0, 0, 0]
        assert 8_000_000 < file_bytes() < 25_000_000  # of 40,000,000 written
