"""py-amqp, what kombu and Celery speak AMQP with: its connection, channel and events by themselves."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import amqp
import pytest
from amqp.exceptions import (
    AccessRefused,
    ConnectionForced,
    MessageNacked,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)

import shardmq
from shardmq.cmd.run.broker import Broker

SECONDS = 30.0

Connect = Callable[..., amqp.Connection]


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    connections = []

    def connect(**options: Any) -> amqp.Connection:
        connection = amqp.Connection(f"{broker.host}:{broker.port}", **options)
        connection.connect()
        connections.append(connection)
        return connection

    yield connect
    for connection in connections:
        connection.collect()


def drain(connection: amqp.Connection, until: Callable[[], object]) -> None:
    """Take events until there is what must come."""
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, "it did not come"
        connection.drain_events(timeout=SECONDS)


def own_queue(channel: amqp.Channel, **options: Any) -> str:
    name = channel.queue_declare("", exclusive=True, auto_delete=False, **options).queue
    assert isinstance(name, str)
    return name


def test_messages_go_around_with_properties_and_headers(connect: Connect) -> None:
    connection = connect(confirm_publish=True)
    channel = connection.channel()
    queue = own_queue(channel)
    headers = {"n": 1, "big": 1 << 40, "f": 1.5, "s": "ü", "b": True, "l": [1, {"x": None}], "raw": b"\xfe"}
    message = amqp.Message(
        b"\x00\xff",
        application_headers=headers,
        delivery_mode=2,
        priority=4,
        content_type="application/data",
        message_id="m",
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish(message, "", queue)
    came: list[amqp.Message] = []
    channel.basic_consume(queue, callback=came.append)
    drain(connection, lambda: came)
    assert (came[0].body, came[0].properties) == (b"\x00\xff", message.properties)
    assert came[0].headers == headers
    channel.basic_ack(came[0].delivery_tag)


def test_confirmed_publishes_raise_when_refused(connect: Connect) -> None:
    channel = connect(confirm_publish=True).channel()
    queue = own_queue(channel, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish(amqp.Message("1"), "", queue)
    with pytest.raises(MessageNacked):
        channel.basic_publish(amqp.Message("2"), "", queue)


def test_what_no_queue_takes_is_an_event(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    returned: list[tuple[Any, ...]] = []
    channel.events["basic_return"].add(lambda *what: returned.append(what))
    channel.basic_publish(amqp.Message("back"), "amq.direct", "nowhere", mandatory=True)
    drain(connection, lambda: returned)
    (exception, exchange, key, message) = returned[0][-4:]
    assert (exception.reply_code, exception.reply_text) == (312, "NO_ROUTE")
    assert (exchange, key, message.body) == ("amq.direct", "nowhere", "back")


def test_recover_brings_again_what_was_not_acknowledged(connect: Connect) -> None:
    connection = connect(confirm_publish=True)
    channel = connection.channel()
    queue = own_queue(channel)
    channel.basic_publish(amqp.Message("1"), "", queue)
    came: list[amqp.Message] = []
    channel.basic_qos(0, 1, False)
    tag = channel.basic_consume(queue, callback=came.append)
    drain(connection, lambda: came)
    channel.basic_recover(requeue=True)
    drain(connection, lambda: len(came) == 2)
    assert [message.delivery_info["redelivered"] for message in came] == [False, True]
    channel.basic_ack(came[1].delivery_tag)
    channel.basic_cancel(tag)
    assert channel.basic_get(queue) is None


def test_a_queue_is_deleted_first_and_its_consumers_hear_of_it_then(connect: Connect) -> None:
    connection = connect()
    channel = connection.channel()
    queue = own_queue(channel)
    cancelled: list[str] = []
    tag = channel.basic_consume(queue, callback=lambda _: None, on_cancel=cancelled.append)
    assert channel.queue_delete(queue) == 0
    drain(connection, lambda: cancelled)
    assert cancelled == [tag]


def test_transactions_commit_and_roll_back(connect: Connect) -> None:
    channel, other = connect().channel(), connect().channel()
    queue = other.queue_declare("py-amqp.tx", auto_delete=False, durable=True).queue
    channel.tx_select()
    channel.basic_publish(amqp.Message("never"), "", queue)
    channel.tx_rollback()
    channel.basic_publish(amqp.Message("1"), "", queue)
    assert other.basic_get(queue) is None
    channel.tx_commit()
    message = other.basic_get(queue, no_ack=True)
    assert message is not None
    assert message.body == "1"
    assert other.queue_delete(queue) == 0


@pytest.mark.parametrize(
    ("mistake", "error", "text"),
    [
        (lambda channel: channel.queue_declare("py-amqp.no", passive=True), NotFound, "no queue 'py-amqp.no'"),
        (
            lambda channel: channel.exchange_declare("amq.topic", "direct", durable=True, auto_delete=False),
            PreconditionFailed,
            "inequivalent arg 'type' for exchange 'amq.topic'",
        ),
        (lambda channel: channel.queue_declare("amq.mine"), AccessRefused, "contains reserved prefix 'amq.*'"),
        (lambda channel: channel.basic_consume("py-amqp.no"), NotFound, "no queue 'py-amqp.no'"),
    ],
    ids=["passive", "type", "name", "consume"],
)
def test_errors_have_the_types_their_codes_mean(
    connect: Connect, mistake: Callable[[amqp.Channel], None], error: type[Exception], text: str
) -> None:
    channel = connect().channel()
    with pytest.raises(error) as raised:
        mistake(channel)
    assert text in str(raised.value)
    own_queue(channel)  # which it has opened again by itself


def test_exclusive_queues_are_locked_for_others_until_their_connection_goes(connect: Connect) -> None:
    first, second = connect(), connect()
    first.channel().queue_declare("py-amqp.locked", exclusive=True)
    with pytest.raises(ResourceLocked):
        second.channel().queue_declare("py-amqp.locked", exclusive=True)
    first.close()
    second.channel().queue_declare("py-amqp.locked", exclusive=True)


def test_heartbeats_keep_a_connection_that_does_nothing_else(connect: Connect) -> None:
    connection = connect(heartbeat=2)
    assert connection.heartbeat == 2
    deadline = time.monotonic() + 5  # more than two heartbeats
    while time.monotonic() < deadline:
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.5)
        connection.heartbeat_tick(rate=2)
    own_queue(connection.channel())


def test_a_server_that_closes_says_why(connect: Connect, native: shardmq.Connection) -> None:
    connection = connect(client_properties={"connection_name": "py-amqp.expelled"})
    (row,) = [
        row
        for row in native.topology("connections")
        if row["client_properties"].get("connection_name") == "py-amqp.expelled"
    ]
    native.connection_expel(row["name"], "enough for today")
    with pytest.raises(ConnectionForced, match="CONNECTION_FORCED - enough for today"):
        drain(connection, lambda: False)
