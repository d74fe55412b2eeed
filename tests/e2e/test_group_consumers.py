"""Consumers of groups by the SDK: partitions shared out, offsets that last, commits after handling."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import numbers, publish_all, until

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
PARTITIONS = 4
MESSAGES = 200


@pytest.fixture
def topic(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of four partitions with fifty messages each."""
    name = f"topic-{request.node.name}"[:100]
    channel.topic_declare(name, PARTITIONS)
    fill(channel, name, 0, MESSAGES)
    yield name
    channel.topic_delete(name)


def fill(channel: shardmq.Channel, topic: str, first: int, end: int) -> None:
    """Publish numbers, to the partitions in turn."""
    for partition in range(PARTITIONS):
        publish_all(channel, f"{topic}-{partition}", [b"%d" % n for n in range(first + partition, end, PARTITIONS)])


def offsets(channel: shardmq.Channel, topic: str, group: str) -> list[int | None]:
    return [row["offset"] for row in channel.group_offsets(topic, group)]


def numbers_of(messages: list[shardmq.Message]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_a_consumer_gets_all_partitions_each_in_order_and_goes_on_where_it_was(
    channel: shardmq.Channel, topic: str
) -> None:
    with channel.group_consumer(topic, "billing", start="earliest", inactivity_timeout=1.0) as consumer:
        found = list(consumer)
        assert sorted(consumer.offsets) == [0, 1, 2, 3]
    assert numbers_of(found) == list(range(MESSAGES))
    for partition in range(PARTITIONS):
        own = [message for message in found if message.partition == partition]
        assert [message.offset for message in own] == list(range(50))
        assert [int(message.body) for message in own] == list(range(partition, MESSAGES, PARTITIONS))
    assert offsets(channel, topic, "billing") == [50] * 4
    fill(channel, topic, MESSAGES, MESSAGES + 8)
    with channel.group_consumer(topic, "billing", start="earliest", inactivity_timeout=1.0) as consumer:
        assert numbers_of(list(consumer)) == list(range(MESSAGES, MESSAGES + 8))


def test_a_message_is_committed_after_it_was_handled_and_not_before(channel: shardmq.Channel, topic: str) -> None:
    seen: list[int] = []

    def fail() -> None:
        with channel.group_consumer(topic, "g", start="earliest", inactivity_timeout=1.0) as consumer:
            for message in consumer:
                seen.append(int(message.body))
                if len(seen) == 20:
                    raise RuntimeError("in the middle of a message")

    with pytest.raises(RuntimeError):
        fail()
    until(lambda: sum(offset or 0 for offset in offsets(channel, topic, "g")) == 19, "what was handled is committed")
    with channel.group_consumer(topic, "g", inactivity_timeout=1.0) as consumer:
        rest = numbers_of(list(consumer))
    assert seen[-1] in rest
    assert sorted(seen[:-1] + rest) == list(range(MESSAGES))


def test_polls_bring_as_many_as_they_are_told_and_commits_are_explicit(channel: shardmq.Channel, topic: str) -> None:
    with channel.group_consumer(topic, "g", start="earliest", pull=7, auto_commit=False) as consumer:
        first = consumer.poll(10)
        assert 1 <= len(first) <= 7
        found = list(first)
        while len(found) < 100:
            found += consumer.poll(10)
        assert sum(offset or 0 for offset in offsets(channel, topic, "g")) == 0
        committed = consumer.commit()
        assert sum(committed.values()) == len(found)
        found += consumer.poll(10)
    until(
        lambda: sum(offset or 0 for offset in offsets(channel, topic, "g")) == sum(committed.values()),
        "what was not committed is not",
    )
    with channel.group_consumer(topic, "g", inactivity_timeout=1.0) as consumer:
        assert len(list(consumer)) == MESSAGES - sum(committed.values())


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_commit_waits_for_nothing_that_was_nacked_and_counts_it_once_it_was_handled(
    channel: shardmq.Channel, topic: str, start: str
) -> None:
    with channel.group_consumer(topic, "g", start=start, auto_commit=False) as consumer:
        found: list[shardmq.Message] = []
        until(lambda: (found.extend(consumer.poll(0.05)), len(consumer.offsets) == 4)[1], "it has all partitions")
        fill(channel, topic, MESSAGES, MESSAGES + 8)
        until(lambda: (found.extend(consumer.poll(0.05)), len(found) >= 8)[1], "messages come")
        nacked = found[4]
        nacked.nack(delay_ms=500)
        assert nacked.partition is not None
        assert consumer.commit()[nacked.partition] == nacked.offset
        again = until(lambda: [each for each in consumer.poll(0.05) if each.body == nacked.body], "it comes again")
        assert again[0].offset == nacked.offset
        assert consumer.commit()[nacked.partition] > nacked.offset


def test_batches_are_for_bulk(channel: shardmq.Channel, topic: str) -> None:
    with channel.group_consumer(topic, "g", start="earliest", inactivity_timeout=1.0) as consumer:
        bodies = [body for batch in consumer.batches() for body in batch.bodies]
    assert sorted(map(int, bodies)) == list(range(MESSAGES))
    assert offsets(channel, topic, "g") == [50] * 4


def test_partitions_move_to_a_member_that_joins_and_back_when_it_leaves(channel: shardmq.Channel, topic: str) -> None:
    got: list[list[int]] = []
    lost: list[tuple[list[int], bool]] = []
    with channel.group_consumer(
        topic,
        "g",
        on_assigned=lambda partitions: got.append([number for number, _ in partitions]),
        on_revoked=lambda partitions, is_lost: lost.append((partitions, is_lost)),
    ) as one:
        until(lambda: (one.poll(0.05), len(one.offsets) == 4)[1], "the only member has all")
        with channel.group_consumer(topic, "g") as other:
            until(lambda: (one.poll(0.05), other.poll(0.05), len(other.offsets) == 2)[2], "they share")
            assert sorted([*one.offsets, *other.offsets]) == [0, 1, 2, 3]
            assert sorted(number for partitions, _ in lost for number in partitions) == sorted(other.offsets)
            assert not any(is_lost for _, is_lost in lost)
            fill(channel, topic, 1000, 1040)
            found: list[shardmq.Message] = []
            until(lambda: (found.extend([*one.poll(0.05), *other.poll(0.05)]), len(found) >= 40)[1], "all come")
            assert numbers_of(found) == list(range(1000, 1040))
        until(lambda: (one.poll(0.05), len(one.offsets) == 4)[1], "it has all again")
    assert sum(map(len, got)) == 6


def test_what_was_committed_when_partitions_are_revoked_is_not_delivered_again(
    channel: shardmq.Channel, topic: str
) -> None:
    first = channel.group_consumer(
        topic, "g", start="earliest", auto_commit=False, on_revoked=lambda *_: first.commit()
    )
    found = []
    while len(found) < 60:
        found += first.poll(10)
    second = channel.group_consumer(topic, "g")
    others: list[shardmq.Message] = []
    until(
        lambda: (
            found.extend(first.poll(0.05)),
            others.extend(second.poll(0.05)),
            len(found) + len(others) >= MESSAGES,
        )[2],
        "all are read",
    )
    assert numbers_of(found + others) == list(range(MESSAGES))
    for consumer in (first, second):
        consumer.close()


def test_a_shared_group_hands_every_message_to_one_of_many(channel: shardmq.Channel, topic: str) -> None:
    consumers = [
        channel.group_consumer(topic, "mailers", shared=True, start="earliest", prefetch=5, pull=5) for _ in range(6)
    ]
    found: list[shardmq.Message] = []
    shares = [0] * len(consumers)

    def turn() -> bool:
        for place, consumer in enumerate(consumers):
            got = consumer.poll(0.02)
            shares[place] += len(got)
            found.extend(got)
        return len(found) >= MESSAGES

    until(turn, "all are read")
    assert numbers_of(found) == list(range(MESSAGES))
    assert all(share > 0 for share in shares)
    for consumer in consumers:
        with consumer:
            pass
    assert offsets(channel, topic, "mailers") == [50] * 4


def test_nothing_waits_behind_a_member_of_a_shared_group_that_is_busy(channel: shardmq.Channel, topic: str) -> None:
    options = {"shared": True, "start": "earliest", "prefetch": 1, "auto_commit": False}
    with (
        channel.group_consumer(topic, "g", **options) as busy,  # type: ignore[arg-type]
        channel.group_consumer(topic, "g", inactivity_timeout=10.0, **options) as other,  # type: ignore[arg-type]
    ):
        held = next(busy)
        found = []
        for message in other:
            message.ack()
            found.append(int(message.body))
            if len(found) == MESSAGES - 1:
                break
        assert sorted([*found, int(held.body)]) == list(range(MESSAGES))


def test_a_message_of_a_shared_group_that_is_nacked_comes_again_later(channel: shardmq.Channel, topic: str) -> None:
    with channel.group_consumer(topic, "g", shared=True, start="earliest", prefetch=1, pull=1) as consumer:
        [message] = consumer.poll(10)
        began = time.monotonic()
        message.nack(delay_ms=300)
        again: list[shardmq.Message] = []
        while not again:
            again = [each for each in consumer.poll(10) if each.body == message.body]
        assert again[0].redelivered
        assert time.monotonic() - began >= 0.3


def test_offsets_are_committed_reset_and_forgotten_by_programs_that_pull(channel: shardmq.Channel, topic: str) -> None:
    with pytest.raises(errors.NotFound, match="no group 'g'"):
        channel.group_reset(topic, "g", "earliest")
    channel.group_commit(topic, "g", {0: 10, 3: 20})
    assert offsets(channel, topic, "g") == [10, None, None, 20]
    assert channel.group_offsets(topic, "g")[0]["lag"] == 40
    with pytest.raises(errors.PreconditionFailed):
        channel.group_commit(topic, "g", {0: 9})
    with pytest.raises(errors.ShardmqError, match=r"\[0, 50"):
        channel.group_commit(topic, "g", {0: 51})
    with pytest.raises(errors.NotFound, match="no partition 4"):
        channel.group_commit(topic, "g", {4: 0})
    assert channel.group_reset(topic, "g", "earliest", dry_run=True) == {
        0: (10, 0),
        1: (None, 0),
        2: (None, 0),
        3: (20, 0),
    }
    assert offsets(channel, topic, "g") == [10, None, None, 20]
    assert channel.group_reset(topic, "g", 5, [0]) == {0: (10, 5)}
    assert offsets(channel, topic, "g") == [5, None, None, 20]
    with pytest.raises(errors.OffsetOutOfRange):
        channel.group_reset(topic, "g", 51, [0])
    channel.group_delete(topic, "g")
    assert offsets(channel, topic, "g") == [None] * 4
    with pytest.raises(errors.NotFound):
        channel.group_delete(topic, "g")


def test_the_owner_of_a_partition_commits_offsets_and_nobody_else(
    channel: shardmq.Channel, topic: str, broker: Broker
) -> None:
    with channel.group_consumer(topic, "g", start="earliest", auto_commit=False) as consumer:
        until(lambda: (consumer.poll(0.05), len(consumer.offsets) == 4)[1], "it has all partitions")
        channel.group_commit(topic, "g", {2: 7})
        assert offsets(channel, topic, "g")[2] == 7
        with shardmq.connect(broker.url) as another, pytest.raises(errors.PreconditionFailed):
            another.channel().group_commit(topic, "g", {2: 8})


def test_a_group_is_reset_in_all_partitions_or_in_none(channel: shardmq.Channel) -> None:
    channel.topic_declare("uneven", 2)
    for _ in range(10):
        channel.basic_publish("", "uneven-0", b"x")
    channel.group_commit("uneven", "g", {0: 0, 1: 0})
    with pytest.raises(errors.OffsetOutOfRange):
        channel.group_reset("uneven", "g", 5)  # the other partition has nothing
    assert offsets(channel, "uneven", "g") == [0, 0]
    assert channel.group_reset("uneven", "g", "latest") == {0: (0, 10), 1: (0, 0)}
    channel.topic_delete("uneven")


def test_a_topic_is_consumed_by_groups_and_partitions_and_says_so(channel: shardmq.Channel, topic: str) -> None:
    with pytest.raises(errors.NotFound, match=f"a topic: consume it as a member of a group .*queue '{topic}-0'"):
        channel.basic_consume(topic, print)


def test_a_group_is_reset_while_its_members_consume(channel: shardmq.Channel, topic: str) -> None:
    with channel.group_consumer(topic, "g", start="earliest", inactivity_timeout=1.0) as consumer:
        assert len(list(consumer)) == MESSAGES
        with pytest.raises(errors.PreconditionFailed, match="consumers"):
            channel.group_delete(topic, "g")
        channel.group_reset(topic, "g", "earliest")
        assert numbers_of(list(consumer)) == list(range(MESSAGES))


@pytest.mark.parametrize("name", ["shard-0", "gateway-0", "coordinator"])
def test_a_group_goes_on_whatever_dies(start_broker: StartBroker, name: str) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, recovery=QUICK) as connection:
        channel, other = connection.channel(), connection.channel()
        channel.topic_declare("orders", PARTITIONS)
        fill(channel, "orders", 0, MESSAGES)
        found: list[int] = []
        with channel.group_consumer("orders", "g", start="earliest", pull=10) as consumer:
            while len(found) < 50:
                found += [int(message.body) for message in consumer.poll(10)]
            broker.kill(name)
            until(
                lambda: (found.extend(int(each.body) for each in consumer.poll(0.5)), len(set(found)) == MESSAGES)[1],
                "everything is read",
                60,
            )
            while again := consumer.poll(1):  # what the shard delivers again
                found += [int(message.body) for message in again]
        assert len(found) <= 2 * MESSAGES
        assert set(found) == set(range(MESSAGES))
        until(lambda: offsets(other, "orders", "g") == [50] * 4, "all is committed")


def test_another_member_takes_over_when_a_connection_breaks(
    channel: shardmq.Channel, topic: str, broker: Broker
) -> None:
    with shardmq.connect(broker.url, recovery=None) as gone:
        first = gone.channel().group_consumer(topic, "g", start="earliest", pull=5)
        handled = first.poll(10) + first.poll(10)
        second = channel.group_consumer(topic, "g", inactivity_timeout=2.0)
        gone._transport.stop()
        rest = list(second)
    assert set(numbers_of(handled + rest)) == set(range(MESSAGES))
    second.close()


def test_asyncio_consumes_as_threads_do(channel: shardmq.Channel, topic: str, broker: Broker) -> None:
    assigned: list[int] = []

    async def got(partitions: list[tuple[int, int]]) -> None:
        await asyncio.sleep(0)
        assigned.extend(number for number, _ in partitions)

    async def consume() -> list[int]:
        found: list[int] = []
        async with shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            async with own.group_consumer(topic, "g", start="earliest", on_assigned=got, pull=9) as consumer:
                found += [int(message.body) for message in await consumer.poll(10)]
                assert len(found) <= 9
                assert sum((await consumer.commit()).values()) == len(found)
            async with own.group_consumer(topic, "g", inactivity_timeout=1.0) as consumer:
                found += [int(message.body) async for message in consumer]
            await own.group_reset(topic, "g", "earliest")
            async with own.group_consumer(topic, "g", inactivity_timeout=1.0) as consumer:
                assert sum([len(batch) async for batch in consumer.batches()]) == MESSAGES
        return found

    assert sorted(asyncio.run(consume())) == list(range(MESSAGES))
    assert set(assigned) <= {0, 1, 2, 3}
    assert assigned
    assert offsets(channel, topic, "g") == [50] * 4


def test_what_a_group_consumer_cannot_be_told_is_refused(channel: shardmq.Channel, topic: str) -> None:
    with pytest.raises(TypeError, match="no option colour"):
        channel.group_consumer(topic, "g", colour="red")  # type: ignore[call-arg]
    with pytest.raises(errors.NotFound):
        channel.group_consumer("nothing-here", "g")
    with pytest.raises(errors.InvalidRequest):
        channel.group_consumer(topic, "")
    with channel.group_consumer(topic, "g") as consumer:
        consumer.poll(0.5)
        with pytest.raises(errors.PreconditionFailed), channel.group_consumer(topic, "g", shared=True) as other:
            other.poll(5)


def test_a_consumer_ends_with_its_topic(channel: shardmq.Channel) -> None:
    channel.topic_declare("short-lived", 2)
    consumer = channel.group_consumer("short-lived", "g")
    consumer.poll(0.5)
    threading.Timer(0.2, lambda: channel.topic_delete("short-lived")).start()
    with pytest.raises(errors.NotFound):
        next(consumer)


def test_streams_are_topics_of_one_partition(channel: shardmq.Channel) -> None:
    channel.queue_declare("one", durable=True, arguments={"x-queue-type": "stream"})
    publish_all(channel, "one", numbers(0, 30))
    with channel.group_consumer("one", "g", start="earliest", inactivity_timeout=1.0) as consumer:
        assert [message.body for message in consumer] == numbers(0, 30)
    assert offsets(channel, "one", "g") == [30]
    time.sleep(0)
    channel.queue_delete("one")
