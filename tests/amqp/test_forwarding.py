"""Consumers get messages while these are on their way to their shard: seen where the shard stands still, or dies."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicConsumeOk, BasicDeliver
from shardmq.protocol.amqp.methods.topology import QueueDeclareOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from tests.amqp import asking as ask
from tests.conftest import StartBroker
from tests.gateway.amqp.rawclient import RawClient, Said

PERSISTENT = b"\x10\x00\x02"
"""Properties: delivery mode 2."""


@contextmanager
def standing_still(broker: Broker) -> Iterator[None]:
    """Its shard does nothing."""
    os.kill(broker.pids["shard-0"], signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pids["shard-0"], signal.SIGCONT)


def begin(publisher: RawClient, consumer: RawClient) -> None:
    """A publisher with confirms, and a consumer that is alone with its queue."""
    publisher.ask(ask.declare_queue("q", durable=True), QueueDeclareOk)
    publisher.ask(ConfirmSelect(), ConfirmSelectOk)
    consumer.ask(ask.consume("q", "c"), BasicConsumeOk)


def publish(client: RawClient, body: bytes) -> None:
    client.publish(ask.publish("", "q"), body, properties=PERSISTENT)


def hear(client: RawClient) -> tuple[bytes, bool]:
    """The next message: its body, and whether it was delivered before."""
    said = client.hear()
    assert isinstance(said.method, BasicDeliver), said
    client.send(1, BasicAck(said.method.delivery_tag))
    return said.body, said.method.redelivered


def test_it_has_them_while_the_shard_stands_still_and_their_publisher_hears_later(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker.port) as publisher, RawClient(broker.port) as consumer:
        begin(publisher, consumer)
        publish(publisher, b"first")
        assert hear(consumer) == (b"first", False)
        assert publisher.hear() == Said(1, BasicAck(1))
        with standing_still(broker):
            for body in (b"second", b"third"):
                publish(publisher, body)
                assert hear(consumer) == (body, False)
            publisher.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                publisher.hear()
            publisher.socket.settimeout(60)
        upto = 1
        while upto < 3:
            method = publisher.hear().method
            assert isinstance(method, BasicAck)
            upto = method.delivery_tag
        assert publisher.ask(ask.declare_queue("q", passive=True), QueueDeclareOk).message_count == 0


def test_what_it_has_not_acknowledged_when_all_die_comes_again_and_says_so(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker.port) as publisher, RawClient(broker.port) as consumer:
        begin(publisher, consumer)
        for number in range(1, 4):
            publish(publisher, b"%d" % number)
            assert publisher.hear() == Said(1, BasicAck(number))
            assert isinstance(consumer.hear().method, BasicDeliver)
    broker.kill_everything()
    broker.start()
    with RawClient(broker.port) as consumer:
        consumer.ask(ask.consume("q", "c"), BasicConsumeOk)
        assert [hear(consumer) for _ in range(3)] == [(b"%d" % number, True) for number in range(1, 4)]
