"""Two gateways are one broker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .traffic import bodies, counts, numbers, publish_all, take, until

ITERATIONS = 60


def clients(broker: Broker, gateway: str) -> int:
    connections = psutil.Process(broker.pids[gateway]).net_connections(kind="tcp")
    return sum(connection.status == psutil.CONN_ESTABLISHED for connection in connections)


@contextlib.contextmanager
def connected_to(broker: Broker, gateway: str) -> Iterator[shardmq.Connection]:
    """A connection that the kernel has given to this gateway."""
    while True:
        before = clients(broker, gateway)
        with shardmq.connect(broker.url, recovery=None) as connection:
            if clients(broker, gateway) > before:
                yield connection
                return


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with two gateways, for tests that leave it alive."""
    broker = Broker(tmp_path_factory.mktemp("pair") / "data", gateways=2)
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())


def test_what_is_declared_through_one_gateway_is_there_for_a_publish_through_the_other(pair: Broker) -> None:
    with connected_to(pair, "gateway-0") as one, connected_to(pair, "gateway-1") as other:
        declaring, publishing = one.channel(), other.channel()
        for number in range(ITERATIONS):
            name = f"seen-{number}"
            declaring.exchange_declare(name, ("direct", "fanout", "topic")[number % 3])
            declaring.queue_declare(name, durable=number % 2 == 0)
            publishing.basic_publish("", name, b"by name")
            declaring.queue_bind(name, name, "k")
            publishing.basic_publish(name, "k", b"by key")
            publishing.queue_unbind(name, name, "k")
            declaring.basic_publish(name, "k", b"unbound")
            assert bodies(publishing, name) == [b"by name", b"by key"]
            publishing.exchange_delete(name)
            with pytest.raises(errors.NotFound):
                declaring.basic_publish(name, "k", b"deleted")
            declaring.queue_delete(name)
            publishing.basic_publish("", name, b"to nobody")
            with pytest.raises(errors.NotFound):
                publishing.basic_get(name)
            declaring, publishing = publishing, declaring


def test_publishers_and_consumers_meet_across_gateways(pair: Broker) -> None:
    with connected_to(pair, "gateway-0") as one, connected_to(pair, "gateway-1") as other:
        here, there = one.channel(), other.channel()
        here.queue_declare("across", durable=True)
        messages = there.consume("across", prefetch=10)
        publish_all(here, "across", numbers(0, 1000))
        got = []
        for message in messages:
            got.append(message.body)
            message.ack()
            if len(got) == 1000:
                break
        assert got == numbers(0, 1000)
        until(lambda: counts(one, "across")["valid"] == 0, "acks arrive")


def test_messages_published_through_two_gateways_have_different_ids(pair: Broker) -> None:
    with connected_to(pair, "gateway-0") as one, connected_to(pair, "gateway-1") as other:
        channels = [one.channel(), other.channel()]
        channels[0].queue_declare("ids", durable=True)
        for channel in channels * 20:
            channel.basic_publish("", "ids", b"x")
        assert len({message.message_id for message in take(channels[0], "ids")}) == 40


def test_a_killed_gateway_loses_its_clients_who_are_told_and_what_they_held_returns(tmp_path: Path) -> None:
    with (
        Broker(tmp_path / "data", shards=2, gateways=2) as broker,
        connected_to(broker, "gateway-0") as doomed,
        connected_to(broker, "gateway-1") as other,
    ):
        channel, watching = doomed.channel(), other.channel()
        channel.queue_declare("held", durable=True)
        publish_all(channel, "held", numbers(0, 10))
        messages = channel.consume("held", prefetch=5)
        held = [next(messages) for _ in range(5)]
        held[2].ack()
        until(lambda: counts(other, "held")["valid"] == 9, "the ack arrives")
        known = len(broker.notices)
        broker.kill("gateway-0")
        with pytest.raises(errors.ConnectionLost):
            list(messages)
        with pytest.raises(errors.ConnectionLost):
            channel.basic_publish("", "held", b"x")
        with pytest.raises(errors.ConnectionLost):
            held[0].ack()
        watching.basic_publish("", "held", b"10")
        broker.wait_for("ready", "gateway-0", after=known)
        until(lambda: counts(other, "held")["unacked"] == 0, "what was held returns")
        got = take(watching, "held")
        assert [message.body for message in got] == [b"0", b"1", *numbers(3, 11)]
        assert all(message.redelivered for message in got[:4])
        assert not got[-1].redelivered
        with connected_to(broker, "gateway-0") as again:
            assert again.channel().queue_declare("held", durable=True).messages == 0
