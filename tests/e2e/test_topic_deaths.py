"""A gateway killed in mid-publish to a topic: what is confirmed is there, numbered messages once, keys in order."""

import threading
import time
from collections.abc import Callable
from itertools import count

import pika
import pika.exceptions
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

PARTITIONS = 4
KEYS = 7
KILLS = 3
QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


def stored(url: str, topic: str) -> list[list[int]]:
    """The numbers that each partition has, in order."""
    found = []
    with shardmq.connect(url) as connection:
        channel = connection.channel()
        for row in channel.topic_info(topic)["partitions"]:
            offset, numbers = row["first"], list[int]()
            while offset < row["next"]:
                pulled = channel.pull(topic, row["partition"], offset, 1000)
                numbers += [int(message.body) for message in pulled]
                offset = pulled.next
            found.append(numbers)
    return found


def firsts(numbers: list[int]) -> list[int]:
    """Each number where it is there first."""
    return list(dict.fromkeys(numbers))


def by_key(partitions: list[list[int]]) -> list[list[int]]:
    """The numbers of each key, which are all in one partition."""
    keys = [[firsts([n for n in numbers if n % KEYS == key]) for numbers in partitions] for key in range(KEYS)]
    assert all(sum(bool(numbers) for numbers in places) == 1 for places in keys), "a key is in two partitions"
    return [next(filter(None, places)) for places in keys]


def kill_gateways(broker: Broker, done: Callable[[], int]) -> None:
    """Kill the gateway some times, each time when more was confirmed since."""
    for _ in range(KILLS):
        least = done() + 200
        while done() < least:
            time.sleep(0.001)
        broker.kill_and_wait("gateway-0")


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        connection.channel().topic_declare("orders", PARTITIONS)
    return broker


def test_numbered_messages_are_there_once_and_in_the_order_of_their_keys(broker: Broker) -> None:
    confirmed = 0
    killer = threading.Thread(target=kill_gateways, args=(broker, lambda: confirmed))
    killer.start()
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        channel = connection.channel()
        with channel.publisher(producer="till") as publisher:
            for number in count():
                publisher.publish("orders", f"key-{number % KEYS}", b"%d" % number, sequence=number + 1)
                if number % 50 == 49:
                    publisher.flush()
                    confirmed = number + 1
                    if not killer.is_alive():
                        break
    killer.join()
    partitions = stored(broker.url, "orders")
    assert sorted(n for numbers in partitions for n in numbers) == list(range(confirmed))
    assert all(numbers == sorted(numbers) for numbers in by_key(partitions))


def test_what_amqp_has_confirmed_is_there_and_in_the_order_of_its_keys(broker: Broker) -> None:
    confirmed = 0
    killer = threading.Thread(target=kill_gateways, args=(broker, lambda: confirmed))
    killer.start()
    parameters = pika.URLParameters(broker.url.replace("shardmq://", "amqp://"))
    while killer.is_alive():
        try:
            connection = pika.BlockingConnection(parameters)
            channel = connection.channel()
            channel.confirm_delivery()
            while killer.is_alive():
                channel.basic_publish("orders", f"key-{confirmed % KEYS}", b"%d" % confirmed)
                confirmed += 1
            connection.close()
        except (pika.exceptions.AMQPError, OSError):
            time.sleep(0.01)
    killer.join()
    partitions = stored(broker.url, "orders")
    there = {n for numbers in partitions for n in numbers}
    assert there >= set(range(confirmed))
    assert there <= set(range(confirmed + 1)), "nobody published these"
    assert all(numbers == sorted(numbers) for numbers in by_key(partitions))
