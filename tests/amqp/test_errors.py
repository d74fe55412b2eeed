"""What goes wrong, as clients hear it: which of channel and connection ends, code, text, class and method.

error_rows.py holds RabbitMQ's answers, from running the same programs against 3.10 (and from its sources, for what is
newer).
"""

import signal
from collections.abc import Iterator, Sequence

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
)
from shardmq.protocol.amqp.methods.connection import ChannelCloseOk, ChannelOpen, ChannelOpenOk
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import QueueDeclareOk
from tests.amqp import asking as ask
from tests.amqp.error_rows import ABOUT, CHANNEL, CONSUMING, EXCHANGES, NAMES, QUEUES, Step
from tests.conftest import StartBroker
from tests.gateway.amqp.rawclient import RawClient


def prepare(client: RawClient) -> None:
    """Declare what the programs are about."""
    ask.answers(
        client,
        ask.declare_exchange("e.direct"),
        ask.declare_exchange("e.internal", internal=True),
        ask.declare_queue("e.q"),
        ask.declare_queue("e.ttl", arguments={"x-message-ttl": 5}),
        ask.declare_queue("e.single", arguments={"x-single-active-consumer": True}),
        ask.declare_queue("e.used"),
        ask.consume("e.used", nowait=True),
        ask.bind_queue("e.q", "e.direct", "k"),
        ask.declare_queue("e.mine", exclusive=True),
    )
    ask.fill(client, "e.full", b"x")


@pytest.fixture(scope="module")
def prepared(broker: Broker) -> Iterator[int]:
    """The port of a broker with what the programs are about."""
    with RawClient(broker.port) as client:
        prepare(client)
        yield broker.port


@pytest.mark.parametrize(
    ("said", "ended", "code", "text"),
    [
        pytest.param(*row[1:], id=f"{noun}-{row[0]}")
        for noun, rows in (("exchange", EXCHANGES), ("queue", QUEUES), ("basic", CONSUMING))
        for row in rows
    ],
)
def test_errors_are_rabbitmqs(prepared: int, said: Sequence[Step], ended: str, code: int, text: str) -> None:
    with RawClient(prepared) as client:
        for step in said:
            if isinstance(step, Method):
                client.send(1, step)
            else:
                step(client)
        about = step.id if isinstance(step, Method) else ABOUT[step]
        assert client.end() == (ended, code, f"{NAMES[code]} - {text}"[:255], about)


def test_a_channel_that_ended_leaves_the_others_alone(broker: Broker) -> None:
    with RawClient(broker.port, channels=2) as client:
        client.send(1, ask.get("nope"))
        assert client.end()[:2] == (CHANNEL, 404)
        assert isinstance(client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk, channel=2), QueueDeclareOk)


def test_a_channel_that_ended_may_be_opened_again_once_that_is_known(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, ask.get("nope"), ask.declare_queue("never"), BasicAck(7))
        assert client.end()[:2] == (CHANNEL, 404)
        client.send(1, ChannelCloseOk())
        client.ask(ChannelOpen(), ChannelOpenOk)
        client.send(1, ask.declare_queue("never", passive=True))
        assert client.end()[:2] == (CHANNEL, 404)


def test_a_shard_that_does_not_answer_ends_the_channel_alone(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker.port, channels=2) as client:
        client.ask(ask.declare_queue("e.away"), QueueDeclareOk)
        broker.kill("shard-0", signal.SIGSTOP)
        try:
            client.send(1, ask.get("e.away"))
            ended, code, text, about = client.end()
        finally:
            broker.kill("shard-0", signal.SIGCONT)
        assert (ended, code, about) == (CHANNEL, 506, (60, 70))
        assert text.startswith("RESOURCE_ERROR - shard-0 did not answer in time")
        client.ask(ask.declare_queue("", exclusive=True), QueueDeclareOk, channel=2)


def test_what_a_user_may_not_do_is_said_in_rabbitmqs_words(broker: Broker, native: shardmq.Connection) -> None:
    native.user_put("mallory", "pw")
    native.permission_put("mallory", "/", "^m", "^m", "^m")
    with native.channel() as admin:
        admin.queue_declare("theirs")

    def text(verb: str, thing: str) -> str:
        return f"ACCESS_REFUSED - {verb} access to {thing} in vhost '/' refused for user 'mallory'"

    for said, verb, thing in [
        (ask.declare_queue("theirs2"), "configure", "queue 'theirs2'"),
        (ask.declare_exchange("theirs3"), "configure", "exchange 'theirs3'"),
        (ask.delete_queue("theirs"), "configure", "queue 'theirs'"),
        (ask.delete_exchange("theirs3"), "configure", "exchange 'theirs3'"),
        (ask.get("theirs"), "read", "queue 'theirs'"),
        (ask.consume("theirs"), "read", "queue 'theirs'"),
        (ask.purge_queue("theirs"), "read", "queue 'theirs'"),
        (ask.bind_queue("theirs", "amq.direct", "k"), "write", "queue 'theirs'"),
        (ask.bind_queue("mine", "amq.direct", "k"), "read", "exchange 'amq.direct'"),
        (ask.bind_exchange("amq.direct", "mine", "k"), "write", "exchange 'amq.direct'"),
    ]:
        with RawClient(broker.port, user="mallory", password="pw") as client:
            client.send(1, said)
            assert client.end() == (CHANNEL, 403, text(verb, thing), said.id)
    with RawClient(broker.port, user="mallory", password="pw") as client:
        client.publish(ask.publish("", "theirs"), b"x")
        assert client.end() == (CHANNEL, 403, text("write", "exchange 'amq.default'"), (60, 40))
