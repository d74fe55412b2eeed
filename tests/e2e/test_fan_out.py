"""Large messages to many queues: each consumer gets every one of them whole, in order, whatever it may hold."""

import threading
import time
from collections.abc import Iterator

import pika
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

PATIENCE_SECONDS = 60.0
QUEUES = 12
MESSAGES = 150
BYTES = 10_000
PREFETCH = (1, 7, 1000)
"""Consumers with these take turns, so that they get other parts of the same batches."""


@pytest.fixture
def broker(start_broker: StartBroker) -> Iterator[Broker]:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for number in range(QUEUES):
            channel.queue_declare(f"copy {number}", durable=True)
            channel.queue_bind(f"copy {number}", "amq.fanout")
        yield broker


def body(number: int) -> bytes:
    return b"%06d" % number * (BYTES // 6)


def publish(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection, connection.channel().publisher() as publisher:
        for number in range(MESSAGES):
            publisher.publish("amq.fanout", "", body(number))


def consume_natively(broker: Broker) -> list[list[bytes]]:
    """What each of the queues has, taken by consumers of one connection at the same time."""
    taken: list[list[bytes]] = [[] for _ in range(QUEUES)]
    with shardmq.connect(broker.url) as connection:

        def consume(number: int) -> None:
            channel = connection.channel()
            for message in channel.consume(f"copy {number}", prefetch=PREFETCH[number % 3], inactivity_timeout=2):
                taken[number].append(message.body)
                message.ack()
                if len(taken[number]) == MESSAGES:
                    return

        threads = [threading.Thread(target=consume, args=(number,)) for number in range(QUEUES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return taken


def consume_over_amqp(broker: Broker) -> list[list[bytes]]:
    """What each of the queues has, taken by consumers of one connection, acked one by one."""
    taken: list[list[bytes]] = [[] for _ in range(QUEUES)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    address = pika.ConnectionParameters("127.0.0.1", broker.port)
    with pika.BlockingConnection(address) as connection:
        for number in range(QUEUES):
            channel = connection.channel()
            channel.basic_qos(prefetch_count=PREFETCH[number % 3])

            def on_message(channel: object, method: object, _properties: object, body: bytes, to: int = number) -> None:
                taken[to].append(body)
                channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

            channel.basic_consume(f"copy {number}", on_message)
        while sum(map(len, taken)) < QUEUES * MESSAGES:
            connection.process_data_events(time_limit=1)
            assert time.monotonic() < deadline, f"{[*map(len, taken)]} came of {MESSAGES}"
    return taken


@pytest.mark.parametrize("consume", [consume_natively, consume_over_amqp])
def test_every_copy_is_whole_and_in_order(broker: Broker, consume: object) -> None:
    publish(broker)
    for copies in consume(broker):  # type: ignore[operator]
        assert copies == [body(number) for number in range(MESSAGES)]


def test_consumers_that_wait_get_what_is_published_meanwhile(broker: Broker) -> None:
    publisher = threading.Thread(target=publish, args=(broker,))
    publisher.start()
    taken = consume_over_amqp(broker)
    publisher.join()
    for copies in taken:
        assert copies == [body(number) for number in range(MESSAGES)]


def test_a_shard_that_comes_back_sends_its_records_again(broker: Broker) -> None:
    publish(broker)
    with shardmq.connect(broker.url) as connection:
        channels = [connection.channel() for _ in range(QUEUES)]
        consumers = [
            channel.consume(f"copy {number}", prefetch=5, inactivity_timeout=5)
            for number, channel in enumerate(channels)
        ]
        for consumer in consumers:
            assert next(iter(consumer)).body == body(0)
        broker.kill("shard-0")
        broker.kill("shard-1")
        for consumer in consumers:
            seen = set()
            for message in consumer:
                assert message.body == body(int(message.body[:6]))
                seen.add(int(message.body[:6]))
                message.ack()
                if len(seen | {0}) == MESSAGES:
                    break
            assert seen | {0} == set(range(MESSAGES))
