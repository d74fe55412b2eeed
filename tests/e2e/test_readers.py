"""Readers of partitions by the SDK: from anywhere, over whatever is lost, and never past what was dropped."""

import asyncio
import datetime
import threading

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import numbers, publish_all, until

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


def test_a_reader_begins_where_it_is_told_and_reads_what_comes(channel: shardmq.Channel) -> None:
    channel.topic_declare("read", 2)
    publish_all(channel, "read-1", numbers(0, 50))
    read = [message.body for message in channel.reader("read", 1, "earliest", inactivity_timeout=1.0)]
    assert read == numbers(0, 50)
    assert list(channel.reader("read", 0, "earliest", inactivity_timeout=0.5)) == []
    assert [message.offset for message in channel.reader("read", 1, 48, inactivity_timeout=2.0)] == [48, 49]
    hour_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    assert next(channel.reader("read", 1, hour_ago)).offset == 0
    reader = channel.reader("read", 1)
    publish_all(channel, "read-1", [b"new"])
    assert next(reader).body == b"new"
    channel.topic_delete("read")


def test_a_reader_gets_messages_with_its_tags(channel: shardmq.Channel) -> None:
    channel.queue_declare("tagged", durable=True, arguments={"x-queue-type": "stream"})
    for tag in ("a", "b", "c") * 10:
        channel.basic_publish("", "tagged", tag.encode(), shardmq.Properties(headers={"x-stream-filter-value": tag}))
    read = channel.reader("tagged", 0, "earliest", tags=["a", "c"], inactivity_timeout=1.0)
    assert [message.body for message in read] == [b"a", b"c"] * 10
    channel.queue_delete("tagged")


def test_an_offset_that_is_not_kept_is_refused_and_not_moved(channel: shardmq.Channel) -> None:
    channel.topic_declare("kept", 1)
    publish_all(channel, "kept-0", numbers(0, 10))
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        channel.reader("kept", 0, 11)
    assert (caught.value.first, caught.value.end) == (0, 10)
    with pytest.raises(errors.NotFound, match="no partition 1"):
        channel.reader("kept", 1)
    channel.topic_delete("kept")


def test_a_reader_that_retention_has_overtaken_is_told_so(channel: shardmq.Channel) -> None:
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 3_000_000}
    channel.queue_declare("short", durable=True, arguments=arguments)
    body = b"x" * 100_000
    publish_all(channel, "short", [body] * 20)
    reader = channel.reader("short", 0, "earliest")
    assert next(reader).offset == 0
    for _ in range(10):
        publish_all(channel, "short", [body] * 100)
    offsets: list[int | None] = []
    with pytest.raises(errors.OffsetOutOfRange, match="dropped by its retention") as caught:
        offsets.extend(message.offset for message in reader)
    assert len(offsets) < caught.value.first
    channel.queue_delete("short")


@pytest.mark.parametrize("name", ["shard-0", "gateway-0"])
def test_a_reader_reads_on_whatever_dies(start_broker: StartBroker, name: str) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.topic_declare("read", 1)
        publish_all(channel, "read-0", numbers(0, 100))
        found: list[bytes] = []

        def read() -> None:
            for message in channel.reader("read", 0, "earliest"):
                found.append(message.body)
                if len(found) == 200:
                    return

        reader = threading.Thread(target=read)
        reader.start()
        until(lambda: len(found) >= 100, "the first hundred are read")
        broker.kill_and_wait(name)
        until(lambda: other.pull("read", 0, 100) is not None, "it is back")
        publish_all(other, "read-0", numbers(100, 200))
        reader.join(60)
        assert found == numbers(0, 200)


def test_asyncio_reads_as_threads_do(channel: shardmq.Channel, broker: Broker) -> None:
    channel.topic_declare("aio-read", 1)
    publish_all(channel, "aio-read-0", numbers(0, 50))

    async def read() -> list[bytes]:
        async with shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            return [message.body async for message in own.reader("aio-read", 0, "earliest", inactivity_timeout=1.0)]

    assert asyncio.run(read()) == numbers(0, 50)
    channel.topic_delete("aio-read")
