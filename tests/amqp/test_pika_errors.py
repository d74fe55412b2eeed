"""pika's blocking connection: mistakes and what they close, idle connections, closing with words."""

from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    ChannelClosedByBroker,
    ChannelWrongStateError,
    ConnectionClosedByBroker,
)

from shardmq.cmd.run.broker import Broker


@pytest.mark.parametrize(
    ("mistake", "code", "text"),
    [
        (
            lambda channel: channel.queue_declare("no.such", passive=True),
            404,
            "NOT_FOUND - no queue 'no.such' in vhost '/'",
        ),
        (
            lambda channel: channel.exchange_declare("no.such", passive=True),
            404,
            "NOT_FOUND - no exchange 'no.such' in vhost '/'",
        ),
        (
            lambda channel: channel.exchange_declare("amq.mine", "direct"),
            403,
            "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            lambda channel: channel.exchange_declare("amq.topic", "direct", durable=True),
            406,
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.topic' in vhost '/': "
            "received 'direct' but current is 'topic'",
        ),
        (lambda channel: channel.basic_get("no.such"), 404, "NOT_FOUND - no queue 'no.such' in vhost '/'"),
        (
            lambda channel: (channel.basic_ack(99), channel.queue_declare("", exclusive=True)),
            406,
            "PRECONDITION_FAILED - unknown delivery tag 99",
        ),
    ],
    ids=["a queue", "an exchange", "a reserved name", "another type", "get", "a tag"],
)
def test_mistakes_close_the_channel_and_say_why(
    connection: pika.BlockingConnection, mistake: Callable[[BlockingChannel], None], code: int, text: str
) -> None:
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as closed:
        mistake(channel)
    assert (closed.value.reply_code, closed.value.reply_text) == (code, text)
    with pytest.raises(ChannelWrongStateError):
        channel.queue_declare("", exclusive=True)
    with connection.channel(channel.channel_number) as again:
        again.queue_declare("", exclusive=True)


def test_publishing_to_no_exchange_closes_the_channel(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.basic_publish("no.such", "", b"")
    assert (closed.value.reply_code, closed.value.reply_text) == (404, "NOT_FOUND - no exchange 'no.such' in vhost '/'")


def test_grave_mistakes_close_the_connection(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    with pytest.raises(ConnectionClosedByBroker) as closed:
        connection.channel().exchange_declare("mine", "no-such-type")
    assert closed.value.reply_code == 503
    assert closed.value.reply_text.startswith("COMMAND_INVALID - ")
    assert connection.is_closed


@pytest.mark.parametrize("heartbeat", [0, 1])
def test_idle_connections_live_with_and_without_heartbeats(broker: Broker, heartbeat: int) -> None:
    parameters = pika.ConnectionParameters(broker.host, broker.port, heartbeat=heartbeat)
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    for _ in range(3):
        connection.process_data_events(1.2)  # idle is what this is about: more than two heartbeats long, each
    channel.queue_declare("", exclusive=True)
    connection.close()


def test_a_secret_is_updated_and_the_connection_goes_on(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.update_secret("guest", "it was time")
    connection.channel().queue_declare("", exclusive=True)
    connection.close()


def test_connections_and_channels_close_with_words(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().close(200, "done with this")
    channel = connection.channel()
    channel.queue_declare("", exclusive=True)
    connection.close(200, "Bye, and thanks.")
    assert connection.is_closed
    assert channel.is_closed
