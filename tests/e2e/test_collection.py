"""Space that acked messages took is given back, and nothing else."""

import random

import shardmq
from tests.conftest import StartBroker

from .traffic import counts, numbers, publish_all, take, until


def test_messages_acked_out_of_order_are_collected_and_the_others_survive_a_kill(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    sent = [number + b" " + bytes(500) for number in numbers(0, 5000)]
    alive: dict[str, list[int]] = {}
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for queue in ("batches", "singles"):
            channel.queue_declare(queue, durable=True)
        publish_all(channel, "batches", sent)
        with channel.publisher() as publisher:
            for body in sent:
                publisher.publish("", "singles", body)
        for queue in ("batches", "singles"):
            full = counts(connection, queue)
            alive[queue] = ack_at_random(channel, queue)
            until(lambda: is_collected(connection, queue), "the dead are collected")  # noqa: B023
            table = counts(connection, queue)
            assert table["bytes"] < full["bytes"] * table["total"] / 4900
        channel.queue_declare("purged", durable=True)
        channel.queue_purge("purged")  # which is answered when all that was acked before is on disk
        broker.kill_everything()
    broker.start()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for queue, numbers_alive in alive.items():
            assert is_collected(connection, queue), str(counts(connection, queue))
            got = take(channel, queue)
            assert [message.body for message in got] == [sent[number] for number in numbers_alive]
            assert all(message.redelivered for message in got)


def ack_at_random(channel: shardmq.Channel, queue: str) -> list[int]:
    """Take all 5,000, ack 4,000 of them in no order; returns the numbers of the others."""
    held = {}
    for message in channel.consume(queue, prefetch=0):
        held[int(message.body.split()[0])] = message
        if len(held) == 5000:
            break
    gone = random.Random(7).sample(range(5000), 4000)
    for number in gone:
        held[number].ack()
    return sorted(set(range(5000)) - set(gone))


def is_collected(connection: shardmq.Connection, queue: str) -> bool:
    """Whether of what is stored no less than half is valid, as much as the collector promises."""
    table = counts(connection, queue)
    return bool(table["valid"] == 1000 and table["total"] <= 2000)


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
