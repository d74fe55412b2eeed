"""Where new groups begin: at an offset only where every partition has it; else the member hears the range."""

import asyncio
import datetime
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.properties import Properties

from .traffic import numbers, publish_all, until

EACH = 20
SEGMENT = 2**20
"""A segment that is full is dropped whole."""


@pytest.fixture
def topic(channel: shardmq.Channel) -> Iterator[str]:
    channel.topic_declare("begins", 2)
    for partition in range(2):
        publish_all(channel, f"begins-{partition}", numbers(0, EACH))
    yield "begins"
    channel.topic_delete("begins")


def check(caught: pytest.ExceptionInfo[errors.OffsetOutOfRange], first: int, end: int) -> None:
    assert (caught.value.first, caught.value.end) == (first, end)
    assert caught.value.code == errors.ReplyCode.RANGE_ERROR
    assert f"[{first}, {end})" in caught.value.text


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_group_does_not_begin_past_the_end(channel: shardmq.Channel, topic: str, is_shared: bool) -> None:
    publish_all(channel, "begins-0", numbers(0, 5))
    with pytest.raises(errors.OffsetOutOfRange, match=r"queue 'begins-1' .* not published yet") as caught:
        channel.group_consumer(topic, "g", start=EACH + 1, shared=is_shared)  # one partition has it
    check(caught, 0, EACH)
    assert channel.is_open
    assert [row["offset"] for row in channel.group_offsets(topic, "g")] == [None, None]
    with channel.group_consumer(topic, "g", start=EACH, shared=is_shared) as consumer:
        assert [message.body for message in consumer.poll(5.0)] == numbers(0, 5)


def test_nor_for_an_asyncio_program(broker: Broker, topic: str) -> None:
    async def attempt() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            with pytest.raises(errors.OffsetOutOfRange) as caught:
                await channel.group_consumer(topic, "g", start=EACH + 1)
            check(caught, 0, EACH)
            assert channel.is_open

    asyncio.run(attempt())


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"x-stream-offset": EACH + 1}, errors.OffsetOutOfRange),
        ({"x-stream-offset": -1}, errors.PreconditionFailed),
        ({"x-stream-offset": "soon"}, errors.PreconditionFailed),
        ({"x-stream-offset": 1.5}, errors.PreconditionFailed),
        ({"x-stream-filter": [1]}, errors.PreconditionFailed),
        ({"x-stream-filter": 1}, errors.PreconditionFailed),
        ({"x-stream-filter": ["a"], "x-stream-match-unfiltered": "yes"}, errors.PreconditionFailed),
        ({"x-stream-partition": 1}, errors.PreconditionFailed),
    ],
)
@pytest.mark.parametrize("kind", ["ordered", "shared"])
def test_a_plain_consumer_that_is_a_member_is_refused_alike(
    channel: shardmq.Channel, topic: str, kind: str, arguments: dict[str, Any], refusal: type[errors.RequestError]
) -> None:
    given = {"x-group": "g", "x-group-type": kind, **arguments}
    with pytest.raises(refusal, match=r"offsets \[0, 20\)|invalid arg 'x-stream-[a-z-]+'"):
        channel.basic_consume(topic, print, arguments=given)
    assert [row["offset"] for row in channel.group_offsets(topic, "g")] == [None, None]
    assert channel.is_open


def test_a_group_does_not_begin_with_what_retention_dropped(channel: shardmq.Channel) -> None:
    channel.topic_declare("short", 1, retention_messages=3)
    for _ in range(3):
        publish_all(channel, "short-0", [bytes(SEGMENT)] * 3)

    def first() -> int:
        kept: int = channel.topic_info("short")["partitions"][0]["first"]
        return kept

    until(first, "retention drops")
    kept = first()
    with pytest.raises(errors.OffsetOutOfRange, match="dropped by its retention") as caught:
        channel.group_consumer("short", "g", start=kept - 1)
    check(caught, kept, 9)
    with channel.group_consumer("short", "g", start=kept) as consumer:
        assert consumer.poll(5.0)[0].offset == kept
    channel.topic_delete("short")


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_group_that_has_begun_goes_on_wherever_it_is_told_to_begin(
    channel: shardmq.Channel, topic: str, is_shared: bool
) -> None:
    def member() -> shardmq.GroupConsumer:
        return channel.group_consumer(topic, "g", start=EACH, shared=is_shared)

    with member() as consumer:
        publish_all(channel, "begins-0", [b"old"])
        until(lambda: [message.body for message in consumer.poll(0.05)] == [b"old"], "it reads")
        channel.topic_extend(topic, 3)
        publish_all(channel, "begins-2", numbers(0, 3))  # of which none has the offset 20
        found: list[bytes] = []
        until(lambda: (found.extend(each.body for each in consumer.poll(0.05)), len(found) >= 3)[1], "all come")
        assert found == numbers(0, 3)
    channel.topic_extend(topic, 4)
    publish_all(channel, "begins-3", numbers(5, 8))
    with member() as consumer:
        found.clear()
        until(lambda: (found.extend(each.body for each in consumer.poll(0.05)), len(found) >= 3)[1], "all come")
    assert found == numbers(5, 8)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("begins", ["at the end", "now"])
def test_a_group_skips_nothing_of_partitions_that_its_topic_gets_later(
    channel: shardmq.Channel, topic: str, begins: str, is_shared: bool
) -> None:
    found: list[tuple[int | None, bytes]] = []

    def member() -> shardmq.GroupConsumer:
        start = "latest" if begins == "at the end" else datetime.datetime.now(datetime.UTC)
        return channel.group_consumer(topic, "g", start=start, shared=is_shared)

    def read(consumer: shardmq.GroupConsumer, partitions: range) -> None:
        expected = [(partition, body) for partition in partitions for body in numbers(0, EACH)]
        found.clear()

        def are_there() -> bool:
            came = [(message.partition, message.body) for message in consumer.poll(0.05)]
            found.extend(each for each in came if each[0] in partitions)
            return len(found) >= len(expected)

        until(are_there, "all of the new partitions comes")
        assert sorted(found) == sorted(expected)

    def extend(partitions: range) -> None:
        channel.topic_extend(topic, partitions.stop)
        for partition in partitions:
            publish_all(channel, f"{topic}-{partition}", numbers(0, EACH))

    with member() as consumer:
        until(lambda: None not in [row["offset"] for row in channel.group_offsets(topic, "g")], "the group has begun")
        extend(range(2, 4))  # before a member is given them
        read(consumer, range(2, 4))
    extend(range(4, 6))  # while there are no members
    with member() as consumer:
        read(consumer, range(4, 6))


@pytest.mark.parametrize("is_shared", [False, True])
def test_all_members_of_a_new_group_begin_at_the_end_of_a_topic_that_was_extended(
    channel: shardmq.Channel, broker: Broker, topic: str, is_shared: bool
) -> None:
    channel.topic_extend(topic, 4)
    for partition in (2, 3):
        publish_all(channel, f"{topic}-{partition}", numbers(0, EACH))
    found: list[bytes] = []
    with ExitStack() as stack:
        connections = [stack.enter_context(shardmq.connect(broker.url)) for _ in range(3)]
        consumers = [
            stack.enter_context(connection.channel().group_consumer(topic, "g", shared=is_shared))
            for connection in connections
        ]

        def read() -> list[bytes]:
            found.extend(message.body for consumer in consumers for message in consumer.poll(0.05))
            return found

        def have_begun() -> bool:
            read()
            return [row["offset"] for row in channel.group_offsets(topic, "g")] == [EACH] * 4

        until(have_begun, "the group has begun at the end")
        for partition in range(4):
            publish_all(channel, f"{topic}-{partition}", [b"new"])
        until(lambda: len(read()) >= 4, "what is new comes")
    assert set(found) == {b"new"}


def test_tags_may_be_none_or_many(channel: shardmq.Channel, topic: str) -> None:
    tagged = Properties(headers={"x-stream-filter-value": "a"})
    publish_all(channel, "begins-1", [b"tagged"], tagged)
    given = {"x-group": "g", "x-stream-offset": 0, "x-stream-filter": ["a", "b"], "x-stream-match-unfiltered": False}
    [message] = channel.consume(topic, arguments=given, inactivity_timeout=2.0)
    assert message.body == b"tagged"
