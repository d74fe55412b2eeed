"""RabbitMQ's streams: messages stay, and every consumer reads from where it likes."""

import datetime
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.conftest import StartBroker

STREAM = {"x-queue-type": "stream"}
OFFSET = "x-stream-offset"
QUIET_SECONDS = 0.3


class Reader:
    """A consumer of a stream on a channel of its own, and what it got: offset and body."""

    def __init__(
        self,
        connection: pika.BlockingConnection,
        stream: str,
        offset: Any = "first",
        prefetch: int = 100,
        acks: bool = True,
        **arguments: Any,
    ) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.got: list[tuple[int, bytes]] = []
        self.tags: list[int] = []
        self.acks = acks
        told = {name.replace("_", "-"): value for name, value in arguments.items()}
        if offset is not None:
            told[OFFSET] = offset
        self.tag = self.channel.basic_consume(stream, self._take, arguments=told)

    def _take(self, channel: BlockingChannel, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        assert not method.redelivered
        self.got.append((properties.headers[OFFSET], body))
        self.tags.append(method.delivery_tag)
        if self.acks:
            channel.basic_ack(method.delivery_tag)

    def wait(self, count: int, seconds: float = 30) -> list[tuple[int, bytes]]:
        """Wait until so many came, and a moment for more."""
        self.until(count, seconds)
        self.connection.process_data_events(QUIET_SECONDS)
        return self.got

    def until(self, count: int, seconds: float = 30) -> None:
        """Wait until so many came."""
        deadline = time.monotonic() + seconds
        while len(self.got) < count and time.monotonic() < deadline:
            self.connection.process_data_events(0.05)


@pytest.fixture
def stream(channel: BlockingChannel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream with ten messages."""
    name = f"stream-{request.node.name}"
    channel.queue_declare(name, durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", name, b"%d" % number)
    yield name
    if channel.is_open:
        channel.queue_delete(name)


def numbered(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(start, end)]


@pytest.mark.parametrize(
    ("offset", "first"),
    [("first", 0), ("last", 9), ("next", 10), (None, 10), (4, 4), (-3, 0), (10, 10), (1000, 10), ("1h", 0)],
)
def test_a_reader_begins_where_it_says(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str, offset: Any, first: int
) -> None:
    reader = Reader(connection, stream, offset)
    channel.basic_publish("", stream, b"10")
    assert reader.wait(11 - first) == numbered(first, 11)


def test_a_reader_begins_at_a_time(connection: pika.BlockingConnection, channel: BlockingChannel, stream: str) -> None:
    time.sleep(1.1)
    second = datetime.datetime.now(datetime.UTC).replace(microsecond=0, tzinfo=None)
    channel.basic_publish("", stream, b"10")
    assert Reader(connection, stream, second).wait(1) == numbered(10, 11)
    assert Reader(connection, stream, datetime.datetime(2020, 1, 1)).wait(11) == numbered(0, 11)
    future = second + datetime.timedelta(days=1)
    assert Reader(connection, stream, future).wait(0) == []


def test_many_readers_get_all_of_it(connection: pika.BlockingConnection, stream: str) -> None:
    readers = [Reader(connection, stream) for _ in range(5)]
    assert [reader.wait(10) for reader in readers] == [numbered(0, 10)] * 5


def test_prefetch_bounds_what_is_not_acknowledged(connection: pika.BlockingConnection, stream: str) -> None:
    reader = Reader(connection, stream, prefetch=2, acks=False)
    assert reader.wait(2) == numbered(0, 2)
    reader.channel.basic_ack(reader.tags[1])
    assert reader.wait(3) == numbered(0, 3)
    reader.channel.basic_ack(reader.tags[2], multiple=True)
    assert reader.wait(5) == numbered(0, 5)


@pytest.mark.parametrize("requeue", [True, False])
@pytest.mark.parametrize("verb", ["basic_nack", "basic_reject"])
def test_what_is_rejected_stays_and_does_not_come_again(
    connection: pika.BlockingConnection, stream: str, verb: str, requeue: bool
) -> None:
    reader = Reader(connection, stream, prefetch=1, acks=False)
    for _ in range(10):
        reader.until(len(reader.tags) + 1)
        getattr(reader.channel, verb)(reader.tags[-1], requeue=requeue)
    assert reader.wait(10) == numbered(0, 10)
    assert Reader(connection, stream).wait(10) == numbered(0, 10)


def test_a_closed_channel_gives_nothing_back(connection: pika.BlockingConnection, stream: str) -> None:
    reader = Reader(connection, stream, acks=False)
    assert reader.wait(10) == numbered(0, 10)
    reader.channel.close()
    assert Reader(connection, stream).wait(10) == numbered(0, 10)


def test_a_cancelled_reader_gets_nothing_more(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    reader = Reader(connection, stream)
    reader.wait(10)
    reader.channel.basic_cancel(reader.tag)
    channel.basic_publish("", stream, b"10")
    assert reader.wait(10) == numbered(0, 10)


def test_counts_say_how_many_messages_there_are_and_no_consumers(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    Reader(connection, stream).wait(10)
    told = channel.queue_declare(stream, passive=True).method
    assert (told.message_count, told.consumer_count) == (10, 0)


def test_a_stream_takes_messages_of_exchanges_beside_queues(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    for name in (stream, queue):
        channel.queue_bind(name, "amq.fanout")
    try:
        channel.basic_publish("amq.fanout", "any", b"10")
        assert Reader(connection, stream, 10).wait(1) == numbered(10, 11)
        assert channel.basic_get(queue, auto_ack=True)[2] == b"10"
    finally:
        channel.queue_unbind(stream, "amq.fanout")


def test_what_is_published_transiently_and_with_a_ttl_stays(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    channel.basic_publish("", stream, b"10", pika.BasicProperties(delivery_mode=1, expiration="1"))
    time.sleep(0.2)
    assert Reader(connection, stream, 10).wait(1) == numbered(10, 11)


def test_dead_letters_may_go_to_a_stream(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream}
    queue = channel.queue_declare("", exclusive=True, arguments=arguments).method.queue
    channel.basic_publish("", queue, b"10")
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert Reader(connection, stream, 10).wait(1) == numbered(10, 11)


def test_large_messages_are_read(connection: pika.BlockingConnection, channel: BlockingChannel, stream: str) -> None:
    bodies = [bytes([number]) * (3 << 20) for number in range(4)]
    for body in bodies:
        channel.basic_publish("", stream, body)
    got = Reader(connection, stream, 10, prefetch=2).wait(4, 30)
    assert [offset for offset, _ in got] == [10, 11, 12, 13]
    assert [body for _, body in got] == bodies


def publish_tagged(channel: BlockingChannel, stream: str, *tags: str | None) -> None:
    for place, tag in enumerate(tags):
        headers = {"x-stream-filter-value": tag, "more": place % 3} if tag is not None else None
        channel.basic_publish("", stream, b"%d" % place, pika.BasicProperties(headers=headers))


@pytest.mark.parametrize(
    ("wanted", "has_unfiltered", "expected"),
    [
        ("a", False, {"a"}),
        (["a"], False, {"a"}),
        (["a", "b"], False, {"a", "b"}),
        ("a", True, {"a", None}),
        (["nothing"], False, set()),
        ([], True, {None}),
    ],
)
def test_messages_are_filtered_exactly(
    connection: pika.BlockingConnection,
    channel: BlockingChannel,
    stream: str,
    wanted: Any,
    has_unfiltered: bool,
    expected: set[str | None],
) -> None:
    tags = ["a", "b", None, "c", "a", "a", None, "aa", "b"] * 20
    publish_tagged(channel, stream, *tags)
    offsets = [10 + place for place, tag in enumerate(tags) if tag in expected]
    if None in expected:
        offsets = [*range(10), *offsets]
    reader = Reader(connection, stream, prefetch=7, x_stream_filter=wanted, x_stream_match_unfiltered=has_unfiltered)
    assert [offset for offset, _ in reader.wait(len(offsets))] == offsets


def test_a_filtering_reader_follows_what_comes(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    reader = Reader(connection, stream, "next", x_stream_filter="a")
    publish_tagged(channel, stream, "b", "a", None, "a", "b")
    assert reader.wait(2) == [(11, b"1"), (13, b"3")]


def test_retention_drops_the_oldest_by_size(
    connection: pika.BlockingConnection, channel: BlockingChannel, request: pytest.FixtureRequest
) -> None:
    name = f"stream-{request.node.name}"
    channel.queue_declare(name, durable=True, arguments={**STREAM, "x-max-length-bytes": 50_000})
    channel.confirm_delivery()
    for number in range(200):
        channel.basic_publish("", name, b"%04d" % number * 250)
    got = Reader(connection, name).wait(40)
    offsets = [offset for offset, _ in got]
    assert offsets == list(range(offsets[0], 200))
    assert 40 <= len(got) <= 50
    assert channel.queue_declare(name, passive=True).method.message_count == len(got)
    assert Reader(connection, name, 3).wait(len(got)) == got, "an offset that was dropped is the oldest there is"
    channel.queue_delete(name)


def test_retention_drops_the_oldest_by_age(
    connection: pika.BlockingConnection, channel: BlockingChannel, request: pytest.FixtureRequest
) -> None:
    name = f"stream-{request.node.name}"
    channel.queue_declare(name, durable=True, arguments={**STREAM, "x-max-age": "1s"})
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    time.sleep(1.2)
    channel.basic_publish("", name, b"5")
    deadline = time.monotonic() + 5
    while channel.queue_declare(name, passive=True).method.message_count > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert Reader(connection, name).wait(1) == numbered(5, 6)
    channel.queue_delete(name)


def test_streams_are_deleted_whatever_the_conditions(channel: BlockingChannel, stream: str) -> None:
    assert channel.queue_delete(stream, if_unused=True, if_empty=True).method.message_count == 10


def test_readers_hear_that_their_stream_is_deleted(
    connection: pika.BlockingConnection, channel: BlockingChannel, stream: str
) -> None:
    reader = Reader(connection, stream)
    reader.wait(10)
    cancelled: list[str] = []
    reader.channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.queue_delete(stream)
    reader.wait(10)
    assert cancelled == [reader.tag]


def test_all_is_there_after_a_restart_of_the_broker(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(data_dir=tmp_path / "data")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        channel = connection.channel()
        channel.queue_declare("s", durable=True, arguments=STREAM)
        channel.confirm_delivery()
        for number in range(10):
            channel.basic_publish("", "s", b"%d" % number)
    broker.stop()
    broker = start_broker(data_dir=tmp_path / "data")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "s", b"10")
        assert Reader(connection, "s").wait(11) == numbered(0, 11)


@pytest.mark.parametrize("begin", ["first", "next"])
def test_readers_go_on_where_they_were_when_their_shard_is_killed(start_broker: StartBroker, begin: str) -> None:
    broker = start_broker(shards=1)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port)) as connection:
        channel = connection.channel()
        channel.queue_declare("s", durable=True, arguments=STREAM)
        channel.confirm_delivery()
        reader = Reader(connection, "s", begin, prefetch=3)
        for number in range(300):
            if number % 100 == 50:
                os.kill(broker.pids["shard-0"], signal.SIGKILL)
            while True:
                try:
                    channel.basic_publish("", "s", b"%d" % number)
                    break
                except pika.exceptions.NackError:  # not certain whether it is there: it is published again
                    time.sleep(0.1)
        got = reader.wait(300, 30)
    offsets = [offset for offset, _ in got]
    assert offsets == list(range(len(offsets))), "a reader skipped something, or had it twice"
    seen = [int(body) for _, body in got]
    assert sorted(set(seen)) == list(range(300))
    assert sorted(seen) == seen
