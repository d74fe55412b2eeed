"""What a program hands in: taken where it has a meaning, else refused before it is sent."""

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq import aio, errors
from shardmq.cmd.run.broker import Broker


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        yield channel


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


Attempt = Callable[[shardmq.Channel], object]
NAN = math.nan

MISTAKES: list[tuple[str, Attempt]] = [
    ("timeout", lambda channel: channel.publisher(timeout="5")),  # type: ignore[arg-type]
    ("timeout", lambda channel: channel.publisher(timeout=NAN)),
    ("timeout", lambda channel: channel.publisher().flush(NAN)),
    ("timeout", lambda channel: channel.publisher().flush("5")),  # type: ignore[arg-type]
    ("timeout", lambda channel: channel.transaction("mistaken").flush(NAN)),
    ("timeout", lambda channel: channel.call("", "q", b"", timeout=NAN)),
    ("inactivity_timeout", lambda channel: channel.consume("q", inactivity_timeout=NAN)),
    ("inactivity_timeout", lambda channel: channel.consume("q", inactivity_timeout="5")),  # type: ignore[arg-type]
    ("inactivity_timeout", lambda channel: channel.consume_batches("q", inactivity_timeout=NAN)),
    ("inactivity_timeout", lambda channel: channel.reader("q", inactivity_timeout=True)),
    ("inactivity_timeout", lambda channel: channel.group_consumer("q", "g", inactivity_timeout=NAN)),
    ("window", lambda channel: channel.publisher(window="10")),  # type: ignore[arg-type]
    ("window", lambda channel: channel.publisher(window=NAN)),  # type: ignore[arg-type]
    ("window", lambda channel: channel.publisher(window=0)),
]


@pytest.mark.parametrize(("name", "attempt"), MISTAKES)
def test_what_is_no_time_or_number_is_refused_with_its_name(
    channel: shardmq.Channel, name: str, attempt: Attempt
) -> None:
    with pytest.raises((TypeError, errors.InvalidRequest), match=name):
        attempt(channel)


def test_no_time_at_all_is_a_time(channel: shardmq.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    for seconds in (0, -1.0):
        channel.publisher().flush(seconds)
        assert list(channel.consume(queue, inactivity_timeout=seconds)) == []
    channel.topic_declare("no time at all", 1)
    with channel.group_consumer("no time at all", "g") as consumer:
        assert consumer.poll(0) == consumer.poll(-1.0) == []
        with pytest.raises(errors.InvalidRequest, match="timeout is a number of seconds, not nan"):
            consumer.poll(NAN)
    channel.topic_delete("no time at all")


@pytest.mark.parametrize(
    ("name", "options"), [("workers", {"workers": "4"}), ("workers", {"workers": 0}), ("recovery", {"recovery": 5})]
)
def test_connecting_with_what_is_of_another_type_is_refused_with_its_name(name: str, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, errors.InvalidRequest), match=name):
        shardmq.connect("shardmq://localhost:1/", **options)


def test_with_asyncio_the_same_is_refused(broker: Broker) -> None:
    async def run() -> None:
        with pytest.raises(TypeError, match="recovery"):
            await aio.connect(broker.url, recovery=5)  # type: ignore[arg-type]
        async with aio.connect(broker.url) as connection, connection.channel() as channel:
            with pytest.raises(errors.InvalidRequest, match="timeout"):
                channel.publisher(timeout=NAN)
            with pytest.raises(errors.InvalidRequest, match="timeout"):
                await channel.publisher().flush(NAN)
            with pytest.raises(TypeError, match="window"):
                channel.publisher(window="10")  # type: ignore[arg-type]
            for consume in (channel.consume, channel.consume_batches, channel.reader):
                with pytest.raises(errors.InvalidRequest, match="inactivity_timeout"):
                    consume("q", inactivity_timeout=NAN)
            with pytest.raises(TypeError, match="concurrency"):
                await channel.basic_consume("q", print, concurrency="2")  # type: ignore[arg-type]

    asyncio.run(run())


def test_a_delay_of_what_does_not_return_is_refused_and_the_message_can_be_settled(channel: shardmq.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    channel.basic_publish("", queue, b"1")
    message = channel.basic_get(queue)
    assert message is not None
    with pytest.raises(errors.InvalidRequest, match="5 ms without requeue"):
        message.nack(requeue=False, delay_ms=5)
    with pytest.raises(errors.InvalidRequest, match="5 ms without requeue"):
        channel.basic_nack(message.delivery_tag, requeue=False, delay_ms=5)
    message.ack()
    assert channel.basic_get(queue) is None
