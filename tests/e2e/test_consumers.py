"""Whose turn it is among consumers, and what they can do with what they got."""

import threading

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .traffic import bodies, counts, numbers, publish_all, until


class Handler:
    """A callback that remembers what came and acks it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._lock = threading.Lock()

    def __call__(self, message: shardmq.Message) -> None:
        with self._lock:
            self.bodies.append(message.body)
        message.ack()


def test_only_one_consumer_is_active_and_another_takes_over(broker: Broker, channel: shardmq.Channel) -> None:
    channel.queue_declare("single", durable=True, arguments={"x-single-active-consumer": True})
    first, second = Handler(), Handler()
    with shardmq.connect(broker.url) as other:
        other.channel().basic_consume("single", first)
        channel.basic_consume("single", second)
        publish_all(channel, "single", numbers(0, 100))
        until(lambda: len(first.bodies) == 100, "the first consumer has all")
        assert second.bodies == []
    publish_all(channel, "single", numbers(100, 200))
    until(lambda: len(second.bodies) == 100, "the second has taken over")
    assert second.bodies == numbers(100, 200)


def test_the_highest_priority_is_served_first(
    channel: shardmq.Channel, connection: shardmq.Connection, queue: str
) -> None:
    with connection.channel() as high, connection.channel() as low:
        modest = low.consume(queue, prefetch=5, priority=-1)
        eager = high.consume(queue, prefetch=10, priority=7)
        publish_all(channel, queue, numbers(0, 12))
        until(lambda: counts(connection, queue)["unacked"] == 12, "all are out")
        assert [next(eager).body for _ in range(10)] == numbers(0, 10)
        assert [next(modest).body for _ in range(2)] == numbers(10, 12)


def test_an_exclusive_consumer_is_alone(broker: Broker, channel: shardmq.Channel, queue: str) -> None:
    tag = channel.basic_consume(queue, lambda _: None, exclusive=True)
    with shardmq.connect(broker.url) as other, pytest.raises(errors.AccessRefused, match="exclusive use"):
        other.channel().basic_consume(queue, lambda _: None)
    channel.basic_cancel(tag)
    tag = channel.basic_consume(queue, lambda _: None)
    with pytest.raises(errors.AccessRefused, match="exclusive"):
        channel.basic_consume(queue, lambda _: None, exclusive=True)


def test_recover_brings_everything_unacked_back_in_order(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 5))
    held = [channel.basic_get(queue) for _ in range(3)]
    channel.basic_recover()
    assert bodies(channel, queue) == numbers(0, 5)
    assert held[0] is not None


def test_a_prefetch_can_change_while_consuming(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 20))
    tag = channel.basic_consume(queue, lambda _: None, prefetch=2)
    until(lambda: counts(connection, queue)["unacked"] == 2, "two are out")
    channel.basic_qos(tag, 7)
    until(lambda: counts(connection, queue)["unacked"] == 7, "seven are out")


def test_nothing_that_was_handed_out_is_called_new(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 4))
    first = channel.basic_get(queue)
    second = channel.basic_get(queue)
    assert first is not None
    assert second is not None
    assert (first.redelivered, second.redelivered) == (False, False)
    channel.basic_nack(second.delivery_tag, multiple=True)
    again = [channel.basic_get(queue, auto_ack=True) for _ in range(4)]
    assert [(message.body, message.redelivered) for message in again if message is not None] == [
        (b"0", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
    ]


@pytest.mark.parametrize("arguments", [{"x-priority": "high"}, {"x-unknown": 1}, {"x-consumer-timeout": 0}])
def test_a_consumer_argument_without_a_meaning_is_refused(
    channel: shardmq.Channel, queue: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(errors.PreconditionFailed, match=next(iter(arguments))):
        channel.basic_consume(queue, lambda _: None, arguments=arguments)
