"""Queues of answers: made by consuming them, one a channel, gone with their consumer."""

import time

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.protocol.native.operations.connection import Ok, Refused
from tests.gateway.rawclient import RawClient

NAME = "amq.rabbitmq.reply-to."


def publish_until(until: float, channel: shardmq.Channel, name: str) -> None:
    """Publish until it raises: the queue goes when the coordinator hears of the connection's end."""
    while time.monotonic() < until:
        channel.basic_publish("", name, b"", mandatory=True)


def test_a_channel_takes_answers_under_one_name(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        tag = channel.basic_consume(NAME + "a" * 22, print, auto_ack=True)
        with pytest.raises(errors.PreconditionFailed, match="takes answers already"):
            channel.basic_consume(NAME + "b" * 22, print, auto_ack=True)
        channel.basic_cancel(tag)
        channel.basic_consume(NAME + "b" * 22, print, auto_ack=True)


def test_another_consumer_of_the_same_tag_takes_no_answers(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        tag = channel.basic_consume(NAME + "a" * 22, print, auto_ack=True)
        channel.basic_cancel(tag)
        channel.queue_declare("others", exclusive=True)
        assert channel.basic_consume("others", print, consumer_tag=tag) == tag
        channel.basic_consume(NAME + "b" * 22, print, auto_ack=True)


def test_a_name_is_its_connections_alone_and_free_when_that_ends(broker: Broker) -> None:
    name = NAME + "c" * 22
    with shardmq.connect(broker.url) as other:
        with shardmq.connect(broker.url) as connection:
            connection.channel().basic_consume(name, print, auto_ack=True)
            with pytest.raises(errors.ResourceLocked):
                other.channel().basic_consume(name, print, auto_ack=True)
            with pytest.raises(errors.NotFound):
                other.channel().queue_purge(name)
        publishing = other.channel()
        until = time.monotonic() + 20
        with pytest.raises(errors.Unroutable):
            publish_until(until, publishing, name)


def test_requests_that_overtake_one_another_are_refused_one_by_one(broker: Broker) -> None:
    with RawClient(broker).open() as client:
        client.send(
            BasicConsume(10, 1, NAME + "d" * 22, "t", True),
            BasicConsume(11, 1, NAME + "e" * 22, "u", True),
            BasicConsume(12, 1, NAME + "short", "v", True),
        )
        answers = {}
        while len(answers) < 3:
            said = client.receive()
            assert isinstance(said, Ok | Refused), said
            answers[said.request] = said
        assert answers[10] == Ok(10, 1, {"consumer": "t"})
        assert [type(answers[number]) for number in (11, 12)] == [Refused, Refused]
