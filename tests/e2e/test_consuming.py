"""How messages are handed out: in order, back to their place, in turn, as many as asked for."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .traffic import bodies, counts, numbers, publish_all, take, until


class Sink:
    """A callback that keeps what it is given, unacked."""

    def __init__(self) -> None:
        self.messages: list[shardmq.Message] = []

    def __call__(self, message: shardmq.Message) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


def test_a_queue_keeps_the_order_of_each_publisher(broker: Broker, channel: shardmq.Channel, queue: str) -> None:
    publishers, each = 4, 2000

    def publish(publisher: int) -> None:
        with shardmq.connect(broker.url) as connection:
            channel = connection.channel()
            for start in range(0, each, 100):
                channel.basic_publish("", queue, b"%d %d" % (publisher, start))
                publish_all(channel, queue, [b"%d %d" % (publisher, n) for n in range(start + 1, start + 100)])

    with ThreadPoolExecutor(publishers) as pool:
        seen: dict[int, list[int]] = {publisher: [] for publisher in range(publishers)}
        done = [pool.submit(publish, publisher) for publisher in range(publishers)]
        for count, message in enumerate(channel.consume(queue, prefetch=300), 1):
            publisher, number = map(int, message.body.split())
            seen[publisher].append(number)
            assert not message.redelivered
            message.ack()
            if count == publishers * each:
                break
        for future in done:
            future.result()
    assert all(got == list(range(each)) for got in seen.values())


def test_nacked_messages_come_again_at_their_place_among_the_others(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 100))
    sink = Sink()
    tag = channel.basic_consume(queue, sink, prefetch=20)
    until(lambda: len(sink.messages) == 20, "the prefetch arrives")
    channel.basic_cancel(tag)
    for place in (17, 3, 4, 11):
        sink.messages[place].nack()
    got = take(channel, queue)
    assert [message.body for message in got[:4]] == [b"3", b"4", b"11", b"17"]
    assert [message.body for message in got[4:]] == numbers(20, 100)
    assert [message.redelivered for message in got] == [True] * 4 + [False] * 80
    channel.basic_nack(multiple=True)
    assert bodies(channel, queue) == [b"%d" % number for number in range(20) if number not in (3, 4, 11, 17)]


def test_messages_nacked_without_requeue_are_gone(channel: shardmq.Channel, queue: str) -> None:
    publish_all(channel, queue, numbers(0, 5))
    for _ in range(3):
        channel.basic_get(queue)
    channel.basic_nack(2, multiple=True, requeue=False)
    channel.basic_nack(3)
    assert bodies(channel, queue) == numbers(2, 5)


@pytest.mark.parametrize("how", ["channel", "connection", "socket"])
def test_what_is_unacked_when_its_channel_ends_returns_to_its_place_marked(
    broker: Broker, channel: shardmq.Channel, queue: str, how: str
) -> None:
    publish_all(channel, queue, numbers(0, 30))
    other = shardmq.connect(broker.url)
    leaving = other.channel()
    messages = leaving.consume(queue, prefetch=10)
    for message in [next(messages) for _ in range(10)]:
        if int(message.body) % 2:
            message.ack()
    leaving.flush()
    pulled = channel.basic_get(queue, auto_ack=True)
    assert pulled is not None
    if how == "channel":
        leaving.close()
    elif how == "connection":
        other.close()
    else:
        other._abort()
    until(lambda: channel.queue_declare(queue, durable=True).consumers == 0, "the consumer is gone")
    got = take(channel, queue)
    returned = {message.body for message in got if message.redelivered}
    assert returned >= {b"0", b"2", b"4", b"6", b"8"}
    assert sorted(got, key=lambda message: int(message.body)) == got
    assert {int(message.body) for message in got} == set(range(30)) - {1, 3, 5, 7, 9, int(pulled.body)}
    other.close()


def test_consumers_take_turns(connection: shardmq.Connection, channel: shardmq.Channel, queue: str) -> None:
    sinks = [Sink() for _ in range(3)]
    channels = [connection.channel() for _ in sinks]
    for each, sink in zip(channels, sinks, strict=True):
        each.basic_consume(queue, sink, auto_ack=True)
    for number in range(12):
        channel.basic_publish("", queue, b"%d" % number)
    until(lambda: sum(len(sink.messages) for sink in sinks) == 12, "all is delivered")
    places = [[int(body) for body in sink.bodies] for sink in sinks]
    assert sorted(places) == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    for each in channels:
        each.close()


def test_a_prefetch_is_filled_and_never_passed(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 100))
    prefetches = (1, 7, 20)
    sinks = [Sink() for _ in prefetches]
    channels = [connection.channel() for _ in prefetches]
    for each, sink, prefetch in zip(channels, sinks, prefetches, strict=True):
        each.basic_consume(queue, sink, prefetch=prefetch)
    until(lambda: counts(connection, queue)["unacked"] == 28, "the prefetches are filled")
    until(lambda: [len(sink.messages) for sink in sinks] == [1, 7, 20], "everybody has as many as asked for")
    for _ in range(3):
        sinks[0].messages[-1].ack()
        before = len(sinks[0].messages)
        until(lambda: len(sinks[0].messages) == before + 1, "an ack brings one more")  # noqa: B023
    sinks[1].messages[0].nack(requeue=False)
    until(lambda: len(sinks[1].messages) == 8, "a message dropped brings one more")
    assert counts(connection, queue)["unacked"] == 28
    assert [len(sink.messages) for sink in sinks] == [4, 8, 20]
    assert counts(connection, queue)["ready"] == 100 - 32
    for each in channels:
        each.close()


def test_an_auto_ack_consumer_gets_everything_and_owes_nothing(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 5000))
    other = connection.channel()
    consumed = other.consume(queue, prefetch=3, auto_ack=True)
    assert [message.body for message in itertools.islice(consumed, 5000)] == numbers(0, 5000)
    until(lambda: counts(connection, queue)["valid"] == 0, "nothing is owed")
    other.close()
    assert channel.basic_get(queue) is None


def test_a_cancelled_consumer_gets_nothing_more_and_may_still_ack(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 3))
    sink = Sink()
    tag = channel.basic_consume(queue, sink)
    until(lambda: len(sink.messages) == 3, "all is delivered")
    channel.basic_cancel(tag)
    channel.basic_cancel(tag)
    publish_all(channel, queue, numbers(3, 6))
    table = counts(connection, queue)
    assert (table["ready"], table["unacked"], table["consumers"]) == (3, 3, 0)
    sink.messages[1].ack()
    channel.basic_nack(1)
    assert bodies(channel, queue) == [b"0", *numbers(3, 6)]
    assert sink.bodies == numbers(0, 3)


def test_acks_from_many_threads_settle_every_message_once(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, numbers(0, 4000))
    sink = Sink()
    channel.basic_consume(queue, sink, prefetch=0)
    until(lambda: len(sink.messages) == 4000, "all is delivered")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda message: message.ack(), sink.messages))
    until(lambda: counts(connection, queue)["valid"] == 0, "all is acked")
    assert channel.is_open


def test_one_consumer_waits_for_the_prefetch_of_another_only_as_long_as_it_must(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    """A consumer that holds its prefetch and does nothing keeps no message from the others."""
    slow = connection.channel()
    sink = Sink()
    slow.basic_consume(queue, sink, prefetch=5)
    publish_all(channel, queue, numbers(0, 500))
    done = threading.Event()
    quick: list[bytes] = []

    def callback(message: shardmq.Message) -> None:
        quick.append(message.body)
        message.ack()
        if len(quick) == 495:
            done.set()

    channel.basic_consume(queue, callback, prefetch=50)
    assert done.wait(20)
    assert sorted(quick + sink.bodies, key=int) == numbers(0, 500)
    slow.close()
    until(lambda: len(quick) == 500, "what the slow one held comes to the quick one")
    assert sorted(quick, key=int) == numbers(0, 500)
