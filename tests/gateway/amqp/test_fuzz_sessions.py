"""Whatever AMQP clients say: the gateway answers or hangs up, writes no traceback, and serves everybody else."""

import os
import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.events import PROTOCOL_HEADER
from shardmq.protocol.amqp.methods.connection import ChannelOpen, ChannelOpenOk, ConnectionClose, ConnectionCloseOk

from .rawclient import HungUp, RawClient
from .sessions import pieces, sessions

EXAMPLES = int(os.environ.get("SHARDMQ_FUZZ_SESSIONS", "150"))
"""`make fuzz` tries many more."""


@pytest.fixture(scope="module")
def neighbour(broker: Broker) -> Iterator[shardmq.Channel]:
    """Somebody who is served by the same process all the time."""
    pid = broker.pids["gateway-0"]
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.queue_declare("neighbour", durable=True)
        yield channel
    assert broker.pids["gateway-0"] == pid
    assert "Traceback" not in broker.log.read_text()


def serve(channel: shardmq.Channel) -> None:
    channel.basic_publish("", "neighbour", b"x")
    message = channel.basic_get("neighbour", auto_ack=True)
    assert message is not None
    assert message.body == b"x"


def hear_all(client: RawClient) -> None:
    """Until the broker hangs up."""
    try:
        while True:
            said = client.hear().method
            if isinstance(said, ConnectionClose):
                client.send(0, ConnectionCloseOk())
    except (HungUp, OSError):
        pass


@given(data=sessions(), is_patient=st.booleans())
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_sessions_of_any_kind(broker: Broker, neighbour: shardmq.Channel, data: bytes, is_patient: bool) -> None:
    with RawClient(broker.port, channels=2) as client:
        client.socket.sendall(data)
        if is_patient:
            client.send(0, ConnectionClose(200, "", 0, 0))
            client.socket.shutdown(socket.SHUT_WR)
            hear_all(client)
        else:
            client.reset()
    serve(neighbour)
    assert "Traceback" not in broker.log.read_text()


@given(data=st.lists(pieces, max_size=6).map(b"".join) | st.binary(max_size=200), begins=st.booleans())
@settings(max_examples=EXAMPLES // 3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_strangers_of_any_kind(broker: Broker, neighbour: shardmq.Channel, data: bytes, begins: bool) -> None:
    with RawClient(broker.port, is_open=False) as client:
        client.socket.sendall((PROTOCOL_HEADER if begins else b"") + data)
        client.socket.shutdown(socket.SHUT_WR)
    serve(neighbour)
    assert "Traceback" not in broker.log.read_text()


def test_a_client_that_says_what_it_should_is_heard(broker: Broker, neighbour: shardmq.Channel) -> None:
    with RawClient(broker.port) as client:
        client.ask(ChannelOpen(), ChannelOpenOk, 2)
        client.hang_up()
    serve(neighbour)
