"""A topic gets partitions while a producer sends again what a lost connection left unconfirmed: what guarantees say."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import TYPES
from shardmq.protocol.native.operations.connection import ConnectionOpen
from shardmq.protocol.native.operations.topics import TopicExtend
from tests.conftest import StartBroker
from tests.spark.proxy import Fate, Proxy

from .traffic import numbers, until

QUICK = shardmq.Recovery(first_seconds=0.02, max_seconds=0.1)
COUNT = 20
MOVING_KEY = "key-12"
"""Its partition is another one of 2 and of 5, on another shard."""

PATIENCE_SECONDS = 60.0

Publish = Callable[[shardmq.Channel], object]


def port_of(broker: Broker) -> int:
    return int(broker.url.rstrip("/").rsplit(":", 1)[1])


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(port_of(broker)) as proxy:
        yield proxy


def by_key(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        publisher.publish_keyed("grows", [(f"key-{number}", b"%d" % number) for number in range(COUNT)])


def one_by_one(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        for number in range(COUNT):
            publisher.publish("grows", f"key-{number}", b"%d" % number)


def under_a_key(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("grows", MOVING_KEY, numbers(0, COUNT))


def by_turns(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("grows", "any", numbers(0, COUNT // 2))
        publisher.publish_many("grows", "other", numbers(COUNT // 2, COUNT))


def by_another_exchange(channel: shardmq.Channel) -> None:
    channel.exchange_bind("grows", "amq.fanout")
    with channel.publisher() as publisher:
        publisher.publish_many("amq.fanout", MOVING_KEY, numbers(0, COUNT))


def by_header(channel: shardmq.Channel) -> None:
    properties = shardmq.Properties(headers={"x-partition": 1})
    with channel.publisher() as publisher:
        publisher.publish_many("grows", "key", numbers(0, COUNT), properties)


def by_queue(channel: shardmq.Channel) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("", "grows-1", numbers(0, COUNT))


def in_transaction(channel: shardmq.Channel) -> None:
    with channel.transaction("keys") as transaction:
        for number in range(COUNT):
            transaction.publish("grows", f"key-{number}", b"%d" % number)


def under_a_key_in_transaction(channel: shardmq.Channel) -> None:
    with channel.transaction("key") as transaction:
        transaction.publish_many("grows", MOVING_KEY, numbers(0, COUNT))


def with_properties_in_transaction(channel: shardmq.Channel) -> None:
    with channel.transaction("properties") as transaction:
        transaction.publish_many("grows", MOVING_KEY, numbers(0, COUNT), shardmq.Properties(priority=1))


def by_turns_in_transaction(channel: shardmq.Channel) -> None:
    with channel.transaction("turns") as transaction:
        for number in range(COUNT):
            transaction.publish("grows", "", b"%d" % number)


def by_another_exchange_in_transaction(channel: shardmq.Channel) -> None:
    channel.exchange_bind("grows", "amq.fanout")
    with channel.transaction("exchange") as transaction:
        transaction.publish_many("amq.fanout", MOVING_KEY, numbers(0, COUNT))


@pytest.mark.parametrize(
    ("publish", "partitioner", "grows"),
    [
        pytest.param(by_key, "key", False, id="the topic stays as it is"),
        pytest.param(by_key, "key", True, id="keys have another partition"),
        pytest.param(one_by_one, "key", True, id="keys have another partition, one by one"),
        pytest.param(under_a_key, "key", True, id="one key has another partition"),
        pytest.param(by_turns, "round-robin", True, id="in turns"),
        pytest.param(by_another_exchange, "key", True, id="another exchange"),
        pytest.param(by_header, "explicit", True, id="messages say their partition"),
        pytest.param(by_queue, "key", True, id="partitions are named as queues"),
        pytest.param(in_transaction, "key", True, id="a transaction"),
        pytest.param(under_a_key_in_transaction, "key", True, id="a transaction, one key"),
        pytest.param(with_properties_in_transaction, "key", True, id="a transaction, properties"),
        pytest.param(by_turns_in_transaction, "key", True, id="a transaction, in turns"),
        pytest.param(by_another_exchange_in_transaction, "key", True, id="a transaction, another exchange"),
    ],
)
def test_what_is_sent_again_as_a_topic_grows_is_stored_once(
    channel: shardmq.Channel, proxy: Proxy, publish: Publish, partitioner: str, grows: bool
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
        return len(found) == found.total() == COUNT

    until(are_there, "all is stored")
    channel.topic_delete("grows")


class StagingProducer(threading.Thread):
    """Stages one transaction; its connection is lost before the answer, and comes back when `may_return` is set."""

    def __init__(self, broker: Broker, name: str, key: str, may_return: threading.Event) -> None:
        super().__init__(daemon=True)
        self.transaction, self._key = name, key
        self.is_staged = threading.Event()
        self._proxy = Proxy(port_of(broker))
        self._proxy.judge = self._judge
        self._may_return = may_return
        self._is_cut = False

    def _judge(self, kind: int) -> Fate:
        if kind == TYPES[BasicPublish] and not self._is_cut:
            self._is_cut = True
            return Fate.IS_NEVER_ANSWERED
        if kind == TYPES[ConnectionOpen] and self._is_cut:
            assert self._may_return.wait(PATIENCE_SECONDS)
        return Fate.PASSES

    def run(self) -> None:
        with self._proxy, shardmq.connect(self._proxy.url, recovery=QUICK, timeout=PATIENCE_SECONDS) as connection:
            connection.on_lost(lambda _: self.is_staged.set())
            with connection.channel().transaction(self.transaction) as transaction:
                transaction.publish("grows", self._key, self.transaction.encode())

    def begin(self) -> None:
        """Return when the broker has the messages, and the producer has no answer."""
        self.start()
        assert self.is_staged.wait(PATIENCE_SECONDS)


def test_transactions_go_by_the_partitions_of_their_beginning_whoever_dies_and_however_often_topics_grow(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(shards=2)
    may_return = threading.Event()
    keys = {
        "early": "key-27",
        "meanwhile": "key-27",
        "between": "key-5",
    }  # move to other shards, which count on their own
    producers = [StagingProducer(broker, name, key, may_return) for name, key in keys.items()]
    early, meanwhile, between = producers
    is_extending = threading.Event()

    def notice(kind: int) -> Fate:
        if kind == TYPES[TopicExtend]:
            is_extending.set()
        return Fate.PASSES

    with (
        Proxy(port_of(broker)) as proxy,
        shardmq.connect(proxy.url, recovery=QUICK, timeout=PATIENCE_SECONDS) as connection,
    ):
        proxy.judge = notice
        channel, other = connection.channel(), connection.channel()
        channel.topic_declare("grows", 1)
        early.begin()

        (partition,) = channel.topic_info("grows")["partitions"]
        frozen = broker.pids[f"shard-{1 - partition['shard']}"]
        os.kill(frozen, signal.SIGSTOP)  # so that partitions are decided on, and gateways do not hear of them
        extending = threading.Thread(target=channel.topic_extend, args=("grows", 3), daemon=True)
        extending.start()
        assert is_extending.wait(PATIENCE_SECONDS)
        other.exchange_declare("behind it")
        meanwhile.begin()
        broker.kill("gateway-0")
        os.kill(frozen, signal.SIGCONT)
        extending.join(PATIENCE_SECONDS)

        between.begin()
        channel.topic_extend("grows", 5)
        may_return.set()
        for producer in producers:
            producer.join(PATIENCE_SECONDS)
        channel.basic_publish("grows", "key-27", b"new")
        found = [[message.body for message in channel.pull("grows", number, 0, 1000)] for number in range(5)]
    assert [sorted(bodies) for bodies in found] == [[b"early", b"meanwhile"], [], [b"between"], [b"new"], []]


KILLED = ("gateway-0", "gateway-1", "coordinator", "gateway-0")


class KeyedProducer(threading.Thread):
    """Publishes under keys of its own, in all the ways there are, over a connection that recovers."""

    def __init__(self, broker: Broker, name: str) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.confirmed = self._seen = 0
        self.is_stopping = threading.Event()
        self._url = broker.url

    def has_gone_on(self) -> bool:
        """Whether it published something since this was asked and true."""
        before, self._seen = self._seen, self.confirmed
        return self._seen > before

    def run(self) -> None:
        with shardmq.connect(self._url, recovery=QUICK, timeout=60) as connection:
            channel = connection.channel()
            while not self.is_stopping.is_set():
                bodies = [f"{self.name} {self.confirmed + number}".encode() for number in range(300)]
                with channel.publisher() as publisher:
                    publisher.publish_keyed("grows", [(f"key-{body[-2:]!r}", body) for body in bodies[:100]])
                    publisher.publish_many("grows", MOVING_KEY, bodies[100:200])
                    for body in bodies[200:]:
                        publisher.publish("grows", f"key-{body[-2:]!r}", body)
                self.confirmed += len(bodies)


def test_what_is_published_is_stored_once_as_a_topic_grows_and_processes_are_killed(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2, gateways=2)
    producers = [KeyedProducer(broker, name) for name in ("first", "second")]
    with shardmq.connect(broker.url, recovery=QUICK, timeout=60) as connection:
        channel = connection.channel()
        channel.topic_declare("grows", 1)
        for producer in producers:
            producer.start()
        for count, killed in enumerate(KILLED, 2):
            for producer in producers:
                until(producer.has_gone_on, f"{producer.name} goes on")
            growing = threading.Thread(target=channel.topic_extend, args=("grows", count), daemon=True)
            growing.start()
            broker.kill_and_wait(killed)
            growing.join(60)
            assert not growing.is_alive()
        for producer in producers:
            producer.is_stopping.set()
        for producer in producers:
            producer.join(60)
            assert not producer.is_alive()
        found: Counter[bytes] = Counter()
        for number in range(1 + len(KILLED)):
            offset = 0
            while messages := channel.pull("grows", number, offset, 10_000).messages:
                found.update(message.body for message in messages)
                offset += len(messages)
    wanted = {f"{producer.name} {number}".encode() for producer in producers for number in range(producer.confirmed)}
    assert found.keys() == wanted
    assert found.total() == len(wanted)
