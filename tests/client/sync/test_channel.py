"""What a program hands in: taken where it has a meaning, else refused before it is sent."""

import math
from collections.abc import Callable

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker


def test_timeouts_may_be_infinite(broker: Broker) -> None:
    with shardmq.connect(broker.url, timeout=math.inf) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.basic_publish("", queue, b"1")
        message = next(channel.consume(queue, inactivity_timeout=math.inf))
        message.ack()

        def answer(asked: shardmq.Message) -> None:
            properties = shardmq.Properties(correlation_id=asked.properties.correlation_id)
            channel.basic_publish("", asked.properties.reply_to or "", b"2", properties)

        channel.basic_consume(queue, answer)
        assert connection.channel().call("", queue, b"?", timeout=math.inf).body == b"2"


@pytest.mark.parametrize(
    "mistake",
    [
        lambda channel: channel.basic_publish("", "q", b"", delay_ms=None),
        lambda channel: channel.basic_nack(1, delay_ms=None),
        lambda channel: channel.publisher(producer="p").publish("", "q", b"", sequence=1.0),
        lambda channel: channel.publisher(producer="p").publish_many("", "q", [b""], sequence=True),
    ],
    ids=["delay of a publish", "delay of a nack", "sequence", "sequence of many"],
)
def test_what_the_wire_does_not_carry_is_a_type_error_and_costs_no_connection(
    broker: Broker, mistake: Callable[[shardmq.Channel], None]
) -> None:
    with shardmq.connect(broker.url, recovery=None) as connection:
        channel = connection.channel()
        with pytest.raises(TypeError, match="is an int"):
            mistake(channel)
        channel.flush()
        assert channel.queue_declare(exclusive=True).messages == 0


def test_what_the_broker_refuses_as_a_channel_is_left_is_raised(broker: Broker) -> None:
    with shardmq.connect(broker.url, recovery=None) as connection:
        with connection.channel() as channel:
            queue = channel.queue_declare(exclusive=True).queue
            channel.basic_publish("", queue, b"x")
            channel.basic_publish("", queue, b"y")

        def ack_twice() -> None:
            message = channel.basic_get(queue)
            assert message is not None
            message.ack()
            message.ack()

        refused = pytest.raises(errors.ChannelError, match=r"^PRECONDITION_FAILED - .*unknown delivery tag 1")
        with refused, connection.channel() as channel:
            ack_twice()
        with pytest.raises(ZeroDivisionError) as raised, connection.channel() as channel:  # noqa: PT012
            ack_twice()
            raise ZeroDivisionError
        assert "unknown delivery tag 1" in raised.value.__notes__[0]
        assert {connection.channel().number for _ in range(2)} == {1, 2}


def test_a_heartbeat_is_a_whole_number() -> None:
    with pytest.raises(TypeError, match="a heartbeat is an int"):
        shardmq.connect("shardmq://127.0.0.1:1/", heartbeat=0.5)  # type: ignore[arg-type]
