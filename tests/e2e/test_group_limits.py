"""What a delivery limit of a group counts, and what becomes of members that stand still, by real processes."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .traffic import numbers, publish_all, until

COUNT = 50
TIMEOUT_MS = 500


@pytest.fixture
def topic(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of one partition with fifty messages."""
    name = f"topic-{request.node.name}"[:100]
    channel.topic_declare(name, 1)
    publish_all(channel, f"{name}-0", numbers(0, COUNT))
    yield name
    channel.topic_delete(name)


@pytest.fixture
def other(broker: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url) as connection:
        yield connection.channel()


def unacked(channel: shardmq.Channel, topic: str) -> int:
    return sum([row["unacked"] for row in channel.group_offsets(topic, "g")])


def read_all(channel: shardmq.Channel, topic: str, **options: Any) -> list[tuple[int, int]]:
    """What the group still reads, and how often each of it counts as given in vain; until its offset is at the end."""
    found: list[tuple[int, int]] = []
    with channel.group_consumer(topic, "g", **options) as consumer:

        def is_done() -> bool:
            found.extend([(int(message.body), message.deliveries) for message in consumer.poll(0.05)])
            return bool(channel.group_offsets(topic, "g")[0]["offset"] == COUNT)

        until(is_done, "all is read")
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_delivery_limit_counts_what_a_program_was_given_and_not_what_lay_in_its_inbox(
    channel: shardmq.Channel, topic: str, shared: bool
) -> None:
    options: dict[str, Any] = {"shared": shared, "start": "earliest", "delivery_limit": 2}
    for _ in range(3):
        consumer = channel.group_consumer(topic, "g", pull=1, auto_commit=False, **options)
        assert [int(message.body) for message in consumer.poll(30)] == [0]
        until(lambda: unacked(channel, topic) == COUNT, "all others are in its inbox")
        consumer.close()
    assert read_all(channel, topic, **options) == [(number, 0) for number in range(1, COUNT)]


def test_so_it_is_where_a_program_fails_at_a_message(channel: shardmq.Channel, topic: str) -> None:
    options: dict[str, Any] = {"start": "earliest", "delivery_limit": 2}

    def fail() -> None:
        with channel.group_consumer(topic, "g", **options) as consumer:
            for message in consumer:
                until(lambda: unacked(channel, topic) > 1, "others are in its inbox")
                raise RuntimeError(message.body)

    for _ in range(3):
        with pytest.raises(RuntimeError, match="b'0'"):
            fail()
    assert read_all(channel, topic, **options) == [(number, 0) for number in range(1, COUNT)]


def consume_once(url: str, channel: shardmq.Channel, topic: str, arguments: dict[str, Any]) -> None:
    """Take one message by an iterator, and nack it."""
    with shardmq.connect(url) as connection:
        messages = connection.channel().consume(topic, arguments=arguments, inactivity_timeout=30)
        message = next(messages)
        until(lambda: unacked(channel, topic) == COUNT, "all others are in its inbox")
        message.nack()
        messages.close()  # type: ignore[attr-defined]


def consume_once_with_asyncio(url: str, channel: shardmq.Channel, topic: str, arguments: dict[str, Any]) -> None:
    """Take one message by an iterator of asyncio's, and nack it."""

    async def main() -> None:
        async with shardmq.aio.connect(url) as connection:
            own = await connection.channel()
            messages = own.consume(topic, arguments=arguments)
            message = await anext(messages)
            await asyncio.to_thread(until, lambda: unacked(channel, topic) == COUNT, "all others are in its inbox")
            message.nack()
            await messages.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("consume", [consume_once, consume_once_with_asyncio])
def test_so_it_is_with_plain_consumers(
    broker: Broker, channel: shardmq.Channel, topic: str, consume: Callable[..., None]
) -> None:
    for _ in range(3):
        consume(broker.url, channel, topic, {"x-group": "g", "x-stream-offset": "first", "x-delivery-limit": 2})
    assert read_all(channel, topic, delivery_limit=2) == [(number, 0) for number in range(1, COUNT)]


def test_a_connection_that_ends_counts_for_nothing(broker: Broker, channel: shardmq.Channel, topic: str) -> None:
    options: dict[str, Any] = {"start": "earliest", "delivery_limit": 0}
    for _ in range(2):
        with shardmq.connect(broker.url) as connection:
            consumer = connection.channel().group_consumer(topic, "g", pull=1, auto_commit=False, **options)
            assert [int(message.body) for message in consumer.poll(30)] == [0]
            until(lambda: unacked(channel, topic) == COUNT, "all others are in its inbox")
    assert read_all(channel, topic, **options) == [(number, 0) for number in range(COUNT)]


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_hanging_members_partition_goes_to_another_and_it_gets_one_again_when_it_goes_on(
    channel: shardmq.Channel, other: shardmq.Channel, topic: str, has_begun: bool
) -> None:
    lost: list[tuple[list[int], bool]] = []
    options: dict[str, Any] = {"start": "earliest", "timeout_ms": TIMEOUT_MS, "delivery_limit": 5}
    hanging = channel.group_consumer(
        topic, "g", pull=1, on_revoked=lambda partitions, is_lost: lost.append((partitions, is_lost)), **options
    )
    if has_begun:
        assert [int(message.body) for message in hanging.poll(30)] == [0]
    else:
        until(lambda: unacked(other, topic) == COUNT, "all messages are in its inbox")
    assert read_all(other, topic, **options) == [(0, 1), *[(number, 0) for number in range(1, COUNT)]]
    publish_all(other, f"{topic}-0", numbers(COUNT, COUNT + 1))
    assert [int(message.body) for message in hanging.poll(30)] == [COUNT], "it is no member again"
    assert lost == [([0], True)]
    hanging.close()


@pytest.mark.parametrize("has_begun", [False, True])
def test_so_it_is_with_asyncio(broker: Broker, other: shardmq.Channel, topic: str, has_begun: bool) -> None:
    options: dict[str, Any] = {"start": "earliest", "timeout_ms": TIMEOUT_MS}

    async def main() -> None:
        async with shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            async with channel.group_consumer(topic, "g", pull=1, **options) as hanging:
                if has_begun:
                    assert [int(message.body) for message in await hanging.poll(30)] == [0]
                await asyncio.to_thread(until, lambda: unacked(other, topic) == COUNT, "it has all messages")
                found = await asyncio.to_thread(read_all, other, topic, **options)
                assert [number for number, _ in found] == list(range(COUNT))
                await asyncio.to_thread(publish_all, other, f"{topic}-0", numbers(COUNT, COUNT + 1))
                assert [int(message.body) for message in await hanging.poll(30)] == [COUNT]

    asyncio.run(main())


def test_a_program_that_works_off_its_inbox_for_longer_than_the_timeout_loses_nothing(
    channel: shardmq.Channel, topic: str
) -> None:
    """Of fifty messages in its inbox, the last wait for much longer than the time for one."""
    for timeout_ms in (TIMEOUT_MS, 4 * TIMEOUT_MS, 16 * TIMEOUT_MS):  # a busy machine may take longer for one
        found: list[int] = []
        with channel.group_consumer(topic, f"g-{timeout_ms}", start="earliest", timeout_ms=timeout_ms) as consumer:
            for message in consumer:
                found.append(int(message.body))
                threading.Event().wait(timeout_ms / 1000 / 20)
                if message.offset == COUNT - 1:
                    break
        offset = channel.group_offsets(topic, f"g-{timeout_ms}")[0]["offset"]
        if (found, offset) == (list(range(COUNT)), COUNT):
            break
    assert (found, offset) == (list(range(COUNT)), COUNT), "acks came too late"


@pytest.mark.parametrize("is_handler", [False, True])
def test_so_it_is_with_a_plain_member(
    channel: shardmq.Channel, other: shardmq.Channel, topic: str, is_handler: bool
) -> None:
    arguments = {"x-group": "g", "x-stream-offset": "first", "x-consumer-timeout": TIMEOUT_MS}
    go_on, own = threading.Event(), list[int]()

    def handle(message: shardmq.Message) -> None:
        own.append(int(message.body))
        go_on.wait(60)  # and acknowledges nothing before the partition is another's

    def iterate() -> None:
        for message in channel.consume(topic, arguments=arguments, inactivity_timeout=60):
            handle(message)
            if own[-1] == COUNT:
                return

    thread = threading.Thread(target=iterate)
    if is_handler:
        channel.basic_consume(topic, handle, arguments=arguments)
    else:
        thread.start()
    until(lambda: own == [0], "it has a message")
    found = read_all(other, topic, timeout_ms=TIMEOUT_MS)
    assert [number for number, _ in found] == list(range(COUNT))
    go_on.set()
    publish_all(other, f"{topic}-0", numbers(COUNT, COUNT + 1))
    until(lambda: own == [0, COUNT], "it is a member again")
    if not is_handler:
        thread.join(60)
        assert not thread.is_alive()
