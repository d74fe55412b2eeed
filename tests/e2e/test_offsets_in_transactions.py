"""Consume, transform, produce: offsets of groups committed with what was made of the messages, or not at all."""

import asyncio
import random

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, publish_all, until

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)
PARTITIONS = 3


def fill(channel: shardmq.Channel, topic: str, first: int, end: int) -> None:
    for partition in range(PARTITIONS):
        publish_all(channel, f"{topic}-{partition}", [b"%d" % n for n in range(first + partition, end, PARTITIONS)])


def read_to(channel: shardmq.Channel, topic: str) -> int:
    return sum(row["offset"] or 0 for row in channel.group_offsets(topic, "g"))


def test_what_is_read_is_committed_with_what_is_published(channel: shardmq.Channel) -> None:
    channel.topic_declare("in", PARTITIONS)
    channel.queue_declare("out", durable=True)
    fill(channel, "in", 0, 60)
    with channel.group_consumer("in", "g", start="earliest", auto_commit=False, pull=20) as consumer:
        done = 0
        for turn in range(10):
            messages = consumer.poll(10)
            with channel.transaction(f"turn-{turn}") as transaction:
                for message in messages:
                    transaction.publish("", "out", b"made of " + message.body)
                transaction.commit_offsets(consumer)
                assert read_to(channel, "in") == done
            done += len(messages)
            assert read_to(channel, "in") == done
            if done == 60:
                break
    made = bodies(channel, "out")
    assert sorted(made) == sorted(b"made of %d" % number for number in range(60))
    channel.group_reset("in", "g", "earliest")
    with channel.group_consumer("in", "g", inactivity_timeout=1.0) as consumer:
        assert len(list(consumer)) == 60
    channel.topic_delete("in")
    channel.queue_delete("out")


def test_an_aborted_transaction_commits_nothing_and_its_messages_come_again(channel: shardmq.Channel) -> None:
    channel.topic_declare("again", PARTITIONS)
    fill(channel, "again", 0, 30)

    def fail() -> None:
        with channel.group_consumer("again", "g", start="earliest", auto_commit=False) as consumer:
            messages = consumer.poll(10)
            assert messages
            with channel.transaction("fails") as transaction:
                transaction.commit_offsets(consumer)
                raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        fail()
    assert read_to(channel, "again") == 0
    with channel.group_consumer("again", "g", inactivity_timeout=1.0) as consumer:
        assert sorted(int(message.body) for message in consumer) == list(range(30))
    channel.topic_delete("again")


@pytest.mark.parametrize(("timeout_ms", "has"), [(0, 60_000), (3_600_000, 3_600_000)])
def test_a_transaction_with_offsets_has_a_minute_unless_told_otherwise(
    channel: shardmq.Channel, connection: shardmq.Connection, timeout_ms: int, has: int
) -> None:
    channel.topic_declare("short", 1)
    publish_all(channel, "short-0", [b"1"])
    with channel.group_consumer("short", "g", start="earliest", auto_commit=False) as consumer:
        assert consumer.poll(10)
        with channel.transaction(f"brief-{has}", timeout_ms=timeout_ms) as transaction:
            transaction.commit_offsets(consumer)
            assert [row["timeout_ms"] for row in connection.topology("transactions")] == [has]
    assert channel.group_offsets("short", "g")[0]["offset"] == 1
    channel.topic_delete("short")


def test_a_member_that_lost_its_partitions_cannot_commit(channel: shardmq.Channel, broker: Broker) -> None:
    channel.topic_declare("lost", 1)
    publish_all(channel, "lost-0", [b"1", b"2"])
    channel.queue_declare("never", durable=True)
    with shardmq.connect(broker.url) as connection:
        own = connection.channel()
        slow = own.group_consumer("lost", "g", start="earliest", auto_commit=False)
        assert slow.poll(10)
        transaction = own.transaction("too-late")
        transaction.publish("", "never", b"made of what another has")
        transaction.commit_offsets(slow)
        slow.close()
        other = channel.group_consumer("lost", "g", auto_commit=False)
        assert until(lambda: other.poll(0.2), "another has it")
        with pytest.raises(errors.PreconditionFailed, match="newer member"):
            transaction.commit()
        transaction.abort()
    other.close()
    assert bodies(channel, "never") == []
    channel.topic_delete("lost")


def test_a_program_without_members_commits_where_a_group_that_had_some_is(
    channel: shardmq.Channel, broker: Broker
) -> None:
    """As Kafka's offsets outside of group management: while nobody is a member."""
    channel.topic_declare("pulled", 1)
    channel.queue_declare("pulled-out", durable=True)
    publish_all(channel, "pulled-0", [b"%d" % number for number in range(10)])
    with channel.group_consumer("pulled", "g", start="earliest", auto_commit=False, pull=3, prefetch=3) as consumer:
        assert consumer.poll(10)
        with pytest.raises(errors.PreconditionFailed, match="has 1 consumers"):
            channel.transaction("beside").group_commit("pulled", "g", {0: 5})
        assert consumer.commit() == {0: 3}
    with shardmq.connect(broker.url) as connection, connection.channel() as own:
        with own.transaction("pulls") as transaction:
            for message in own.pull("pulled", 0, 3, 4):
                transaction.publish("", "pulled-out", message.body)
            transaction.group_commit("pulled", "g", {0: 7})
            assert channel.group_offsets("pulled", "g")[0]["offset"] == 3
        assert channel.group_offsets("pulled", "g")[0]["offset"] == 7
        with pytest.raises(errors.PreconditionFailed, match="does not go back"):
            own.transaction("back").group_commit("pulled", "g", {0: 6})
        late = own.transaction("overtaken")
        late.publish("", "pulled-out", b"twice")
        late.group_commit("pulled", "g", {0: 8})
        with channel.group_consumer("pulled", "g", auto_commit=False) as consumer:
            assert [int(message.body) for message in consumer.poll(10)] == [7, 8, 9]
        with pytest.raises(errors.PreconditionFailed, match="was given to a member of group 'g'"):
            late.commit()
        late.abort()
    assert channel.group_offsets("pulled", "g")[0]["offset"] == 7
    assert bodies(channel, "pulled-out") == [b"3", b"4", b"5", b"6"]
    channel.topic_delete("pulled")
    channel.queue_delete("pulled-out")


def test_who_commits_by_itself_or_shares_cannot_commit_in_a_transaction(channel: shardmq.Channel) -> None:
    channel.topic_declare("wrong", 1)
    for options in ({}, {"shared": True, "auto_commit": False}):
        transaction = channel.transaction("refused")
        consumer = channel.group_consumer("wrong", f"g{len(options)}", **options)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidRequest):
            transaction.commit_offsets(consumer)
        consumer.close()
        transaction.abort()
    channel.topic_delete("wrong")


def test_a_name_that_was_committed_before_is_refused_and_nothing_is_skipped(channel: shardmq.Channel) -> None:
    channel.topic_declare("named", 1)
    publish_all(channel, "named-0", [b"1"])
    with channel.transaction("used"):
        pass
    with channel.group_consumer("named", "g", start="earliest", auto_commit=False) as consumer:
        assert consumer.poll(10)
        transaction = channel.transaction("used")
        with pytest.raises(errors.PreconditionFailed, match="another name"):
            transaction.commit_offsets(consumer)
    assert read_to(channel, "named") == 0
    channel.topic_delete("named")


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_dies_the_output_is_made_exactly_once(start_broker: StartBroker, seed: int) -> None:
    chance = random.Random(seed)
    broker = start_broker(shards=2)
    total = 300
    with shardmq.connect(broker.url, recovery=QUICK, timeout=60) as connection:
        channel = connection.channel()
        channel.topic_declare("in", PARTITIONS)
        channel.topic_declare("out", 2)
        fill(channel, "in", 0, total)
    turn, kills = 0, 0

    def work() -> None:
        nonlocal turn, kills
        with shardmq.connect(broker.url, recovery=QUICK, timeout=60) as connection:
            channel = connection.channel()
            consumer = channel.group_consumer("in", "g", start="earliest", auto_commit=False, pull=15)
            while messages := consumer.poll(2.0):
                turn += 1
                with channel.transaction(f"turn-{seed}-{turn}") as transaction:
                    for message in messages:
                        transaction.publish("", f"out-{int(message.body) % 2}", message.body)
                    if chance.random() < 0.3 and kills < 8:
                        kills += 1
                        broker.kill(chance.choice(["shard-0", "shard-1", "gateway-0", "coordinator"]))
                    transaction.commit_offsets(consumer)
                    if chance.random() < 0.2 and kills < 8:
                        kills += 1
                        broker.kill(chance.choice(["shard-0", "shard-1", "gateway-0", "coordinator"]))

    def attempt() -> bool:
        try:
            work()
        except errors.ShardmqError:
            return False
        with shardmq.connect(broker.url, recovery=QUICK, timeout=60) as connection:
            return read_to(connection.channel(), "in") == total

    until(attempt, "all is read", 120)
    with shardmq.connect(broker.url, recovery=QUICK, timeout=60) as connection:
        channel = connection.channel()
        made = [m.body for n in range(2) for m in channel.reader("out", n, "earliest", inactivity_timeout=2.0)]
    assert sorted(map(int, made)) == list(range(total))
    assert kills


def test_asyncio_commits_as_threads_do(channel: shardmq.Channel, broker: Broker) -> None:
    channel.topic_declare("aio-in", 1)
    channel.queue_declare("aio-out", durable=True)
    publish_all(channel, "aio-in-0", [b"1", b"2", b"3"])

    async def work() -> None:
        async with shardmq.aio.connect(broker.url) as connection:
            own = await connection.channel()
            async with own.group_consumer("aio-in", "g", start="earliest", auto_commit=False) as consumer:
                messages = await consumer.poll(10)
                async with own.transaction("aio") as transaction:
                    for message in messages:
                        await transaction.publish("", "aio-out", message.body)
                    await transaction.commit_offsets(consumer)
            async with own.transaction("aio-beside") as transaction:
                await transaction.group_commit("aio-in", "beside", {0: 2})

    asyncio.run(work())
    assert read_to(channel, "aio-in") == len(bodies(channel, "aio-out")) == 3
    assert channel.group_offsets("aio-in", "beside")[0]["offset"] == 2
    channel.topic_delete("aio-in")
    channel.queue_delete("aio-out")
