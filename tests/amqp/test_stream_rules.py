"""What streams refuse: RabbitMQ's rules, codes and words."""

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from shardmq.cmd.run.broker import Broker

STREAM = {"x-queue-type": "stream"}
OFFSET = "x-stream-offset"


def declared(name: str, **options: Any) -> Callable[[BlockingChannel], object]:
    arguments = {**STREAM, **options.pop("arguments", {})}
    return lambda channel: channel.queue_declare(name, **{"durable": True, **options}, arguments=arguments)


def consumed(prefetch: int = 5, **options: Any) -> Callable[[BlockingChannel], object]:
    def consume(channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=prefetch, global_qos=options.pop("global_qos", False))
        channel.basic_consume("refusing", lambda *_: None, **options)

    return consume


REFUSED = [
    ("transient", declared("e", durable=False), 406, "invalid property 'non-durable' for queue 'e' in vhost '/'"),
    ("exclusive", declared("e", exclusive=True), 406, "invalid property 'exclusive-owner' for queue 'e' in vhost '/'"),
    ("auto-delete", declared("e", auto_delete=True), 406, "invalid property 'auto-delete' for queue 'e' in vhost '/'"),
    ("server-named", declared(""), 406, "Cannot declare a server-named queue for type rabbit_stream_queue"),
    *[
        (
            name,
            declared("e", arguments={name: value}),
            406,
            f"invalid arg '{name}' for queue 'e' in vhost '/' of queue type rabbit_stream_queue",
        )
        for name, value in {
            "x-overflow": "drop-head",
            "x-max-length": 5,
            "x-single-active-consumer": True,
            "x-message-ttl": 5,
            "x-max-priority": 5,
            "x-dead-letter-exchange": "x",
            "x-expires": 1000,
            "x-delivery-limit": 3,
        }.items()
    ],
    ("age 1A", declared("e", arguments={"x-max-age": "1A"}), 406, "invalid arg 'x-max-age' for queue 'e' in vhost '/'"),
    ("age D", declared("e", arguments={"x-max-age": "D"}), 406, "invalid arg 'x-max-age' for queue 'e' in vhost '/'"),
    ("another type", lambda channel: channel.queue_declare("refusing", durable=True), 406, "inequivalent arg"),
    (
        "another age",
        declared("refusing", arguments={"x-max-age": "1D"}),
        406,
        "inequivalent arg 'x-max-age' for queue 'refusing' in vhost '/'",
    ),
    ("no prefetch", consumed(prefetch=0), 406, "consumer prefetch count is not set for stream queue 'refusing'"),
    ("priority", consumed(arguments={"x-priority": 3}), 406, "invalid arg 'x-priority' for queue 'refusing'"),
    ("no word", consumed(arguments={OFFSET: "begin"}), 406, "invalid arg 'x-stream-offset'"),
    ("no offset", consumed(arguments={OFFSET: True}), 406, "invalid arg 'x-stream-offset'"),
]

HARD = [
    ("no acks", consumed(auto_ack=True), "automatic acknowledgement not supported by stream queue 'refusing'"),
    ("global qos", consumed(global_qos=True), "queue 'refusing' in vhost '/' does not support global qos"),
    ("get", lambda channel: channel.basic_get("refusing"), "basic.get not supported by stream queues queue 'refusing'"),
    ("purge", lambda channel: channel.queue_purge("refusing"), "queue.purge not supported by stream queues queue"),
]


@pytest.fixture
def refusing(channel: BlockingChannel) -> None:
    channel.queue_declare("refusing", durable=True, arguments=STREAM)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(("attempt", "code", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused_as_by_rabbitmq(
    channel: BlockingChannel, attempt: Callable[[BlockingChannel], object], code: int, text: str
) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        attempt(channel)
    assert closed.value.reply_code == code
    assert text in closed.value.reply_text


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(("attempt", "text"), [row[1:] for row in HARD], ids=[row[0] for row in HARD])
def test_refused_with_the_connection_as_by_rabbitmq(
    broker: Broker, attempt: Callable[[BlockingChannel], object], text: str
) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        attempt(connection.channel())
    assert closed.value.reply_code == 540
    assert text in closed.value.reply_text
