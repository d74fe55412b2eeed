"""Connections of pika that do nothing for a while: signs of life in both directions."""

import time

import pika
import pytest
from pika.exceptions import AMQPError

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.faults.saboteur import census, until

from .conftest import amqp_url


def connect(broker: Broker, heartbeat: int | None) -> pika.BlockingConnection:
    parameters = pika.URLParameters(amqp_url(broker))
    parameters.heartbeat = heartbeat
    return pika.BlockingConnection(parameters)


def test_a_connection_that_only_sends_heartbeats_lives(broker: Broker) -> None:
    connection = connect(broker, 1)
    channel = connection.channel()
    channel.queue_declare("lives", exclusive=True)
    began = time.monotonic()
    while time.monotonic() - began < 6:
        connection.process_data_events(time_limit=0.5)
    assert channel.queue_declare("lives", exclusive=True).method.message_count == 0
    connection.close()


def test_a_program_that_does_something_else_for_too_long_is_parted_from(
    broker: Broker, native: shardmq.Connection
) -> None:
    base = census(native)
    connection = connect(broker, 1)
    channel = connection.channel()
    channel.queue_declare("mine", exclusive=True)
    until(lambda: census(native) == base, "it is gone")
    until(lambda: "mine" not in {row["name"] for row in native.topology("queues")}, "and so is what it had")
    with pytest.raises(AMQPError):
        channel.queue_declare("mine", exclusive=True)


def test_without_heartbeats_nobody_minds(broker: Broker) -> None:
    connection = connect(broker, 0)
    channel = connection.channel()
    assert connection._impl.params.heartbeat == 0
    time.sleep(3)
    channel.queue_declare("minded", exclusive=True)
    connection.close()


def test_clients_that_leave_it_to_the_broker_have_a_minute(broker: Broker) -> None:
    connection = connect(broker, None)
    assert connection._impl._heartbeat_checker is not None
    assert connection._impl.params.heartbeat == 60
    connection.close()
