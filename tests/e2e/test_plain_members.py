"""Plain consumers as members of ordered groups: of a partition that was revoked, nothing more is handed out."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .traffic import numbers, publish_all, until

PARTITIONS, EACH = 4, 50
MEMBER = {"x-group": "g", "x-stream-offset": "first"}
Seen = list[tuple[int | None, int]]


@pytest.fixture
def topic(channel: shardmq.Channel) -> Iterator[str]:
    """A topic whose messages are numbered in each partition."""
    channel.topic_declare("plain", PARTITIONS)
    for partition in range(PARTITIONS):
        publish_all(channel, f"plain-{partition}", numbers(0, EACH))
    yield "plain"
    channel.topic_delete("plain")


@pytest.fixture
def other(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection:
        yield connection.channel()


def sent_all(channel: shardmq.Channel) -> None:
    """Wait until the first member has been sent all that there is."""
    rows = channel.group_offsets
    until(
        lambda: sum(row["unacked"] for row in rows("plain", "g")) >= PARTITIONS * EACH - 1, "the first has all messages"
    )


class Other:
    """Another member that joins, and has got a partition while the first did nothing: long before 30 s are over."""

    def __init__(self, channel: shardmq.Channel) -> None:
        self.consumer = channel.group_consumer("plain", "g", pull=PARTITIONS * EACH)
        self.got: Seen = []
        until(lambda: (self.read(0.02), self.consumer.offsets)[1], "a partition moved", 10)
        self.moved = set(self.consumer.offsets)

    def read(self, seconds: float) -> None:
        self.got += seen(self.consumer.poll(seconds))

    def check(self, own: Seen) -> None:
        """Each message was handed to one of both, and to the first none of what had moved."""
        everything = sorted((partition, n) for partition in range(PARTITIONS) for n in range(EACH))
        until(lambda: (self.read(0.05), len(own) + len(self.got) >= len(everything))[1], "all is read")
        self.consumer.close()
        assert sorted(own + self.got) == everything
        assert self.moved.isdisjoint(partition for partition, _ in own)


def seen(messages: list[shardmq.Message]) -> Seen:
    return [(message.partition, int(message.body)) for message in messages]


@pytest.mark.usefixtures("topic")
def test_an_iterator_hands_out_nothing_of_a_revoked_partition(channel: shardmq.Channel, other: shardmq.Channel) -> None:
    first = channel.consume("plain", arguments=MEMBER, inactivity_timeout=2.0)
    message = next(first)
    sent_all(other)
    second = Other(other)
    own = seen([message])
    message.ack()
    for message in first:
        message.ack()
        own.append((message.partition, int(message.body)))
    second.check(own)


@pytest.mark.usefixtures("topic")
def test_batches_hold_nothing_of_a_revoked_partition(channel: shardmq.Channel, other: shardmq.Channel) -> None:
    first = channel.consume_batches("plain", arguments=MEMBER, inactivity_timeout=2.0)
    batch = next(first)
    sent_all(other)
    second = Other(other)
    own = seen(list(batch))
    batch.ack()
    for batch in first:
        own += seen(list(batch))
        batch.ack()
    second.check(own)


@pytest.mark.usefixtures("topic")
def test_a_handler_gets_nothing_of_a_revoked_partition(channel: shardmq.Channel, other: shardmq.Channel) -> None:
    own: Seen = []
    go_on = threading.Event()

    def handle(message: shardmq.Message) -> None:
        own.append((message.partition, int(message.body)))
        go_on.wait(20)
        message.ack()

    tag = channel.basic_consume("plain", handle, arguments=MEMBER)
    sent_all(other)
    second = Other(other)
    go_on.set()
    second.check(own)
    channel.basic_cancel(tag)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("concurrency", [0, 1, 3])
def test_asyncio_lets_go_of_them_too(broker: Broker, other: shardmq.Channel, concurrency: int) -> None:
    own: Seen = []

    async def work() -> None:
        go_on = asyncio.Event()

        async def handle(message: shardmq.Message) -> None:
            own.append((message.partition, int(message.body)))
            await go_on.wait()
            message.ack()

        async def iterate(channel: shardmq.aio.Channel) -> None:
            async for message in channel.consume("plain", arguments=MEMBER):
                await handle(message)

        async with shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            task = None
            if concurrency:
                await channel.basic_consume("plain", handle, arguments=MEMBER, concurrency=concurrency)
            else:
                task = asyncio.create_task(iterate(channel))
            await asyncio.to_thread(sent_all, other)
            second = await asyncio.to_thread(Other, other)
            go_on.set()
            await asyncio.to_thread(second.check, own)
            if task is not None:
                task.cancel()

    asyncio.run(work())
