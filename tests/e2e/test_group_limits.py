"""What a delivery limit of a group counts, by real processes."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker

from .traffic import numbers, publish_all, until

COUNT = 50


@pytest.fixture
def topic(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of one partition with fifty messages."""
    name = f"topic-{request.node.name}"[:100]
    channel.topic_declare(name, 1)
    publish_all(channel, f"{name}-0", numbers(0, COUNT))
    yield name
    channel.topic_delete(name)


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
