"""A topic gets partitions while a producer sends again what a lost connection left unconfirmed: what guarantees say."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import TYPES
from shardmq.protocol.native.operations.connection import ConnectionOpen
from tests.spark.proxy import Fate, Proxy

from .traffic import numbers, until

QUICK = shardmq.Recovery(first_seconds=0.02, max_seconds=0.1)
COUNT = 20
PATIENCE_SECONDS = 20

Publish = Callable[[shardmq.Channel], object]


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(int(broker.url.rstrip("/").rsplit(":", 1)[1])) as proxy:
        yield proxy


def by_key(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        publisher.publish_keyed("grows", [(f"key-{number}", b"%d" % number) for number in range(COUNT)])


def by_header(channel: shardmq.Channel) -> None:
    properties = shardmq.Properties(headers={"x-partition": 1})
    with channel.publisher() as publisher:
        publisher.publish_many("grows", "key", numbers(0, COUNT), properties)


def by_queue(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("", "grows-1", numbers(0, COUNT))


def in_transaction(channel: shardmq.Channel) -> None:
    with channel.transaction("grows") as transaction:
        for number in range(COUNT):
            transaction.publish("grows", f"key-{number}", b"%d" % number)


@pytest.mark.parametrize(
    ("publish", "partitioner", "grows", "copies"),
    [
        pytest.param(by_key, "key", False, 1, id="the topic stays as it is"),
        pytest.param(by_key, "key", True, 2, id="keys have another partition"),
        pytest.param(by_header, "explicit", True, 1, id="messages say their partition"),
        pytest.param(by_queue, "key", True, 1, id="partitions are named as queues"),
        pytest.param(in_transaction, "key", True, 2, id="staged in a transaction"),
    ],
)
def test_what_is_sent_again_as_a_topic_grows_is_stored_once_only_where_its_partition_is_the_same(
    channel: shardmq.Channel, proxy: Proxy, publish: Publish, partitioner: str, grows: bool, copies: int
) -> None:
    channel.topic_declare("grows", 2, partitioner=partitioner)
    is_cut, has_grown = threading.Event(), threading.Event()

    def judge(kind: int) -> Fate:
        if kind == TYPES[BasicPublish] and not is_cut.is_set():
            is_cut.set()
            return Fate.IS_NEVER_ANSWERED
        if kind == TYPES[ConnectionOpen] and is_cut.is_set():
            assert has_grown.wait(PATIENCE_SECONDS)
        return Fate.PASSES

    with shardmq.connect(proxy.url, recovery=QUICK, timeout=PATIENCE_SECONDS) as connection:
        lost = threading.Event()
        connection.on_lost(lambda _: lost.set())
        publishing = connection.channel()
        proxy.judge = judge
        producer = threading.Thread(target=publish, args=(publishing,))
        producer.start()
        assert lost.wait(PATIENCE_SECONDS)  # its answer had come: the broker has the messages
        if grows:
            channel.topic_extend("grows", 5)
        has_grown.set()
        producer.join(PATIENCE_SECONDS)
        assert not producer.is_alive()

    def are_there() -> bool:
        partitions = range(5 if grows else 2)
        found = Counter(message.body for number in partitions for message in channel.pull("grows", number, 0, 1000))
        return len(found) == COUNT and max(found.values()) == copies  # of a transaction, what was staged before the cut

    until(are_there, "all is stored")
    channel.topic_delete("grows")
