"""Topics by the SDK: declared, extended, deleted, published to."""

import asyncio
import time

import pytest

import shardmq
from shardmq import aio, errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import PATIENCE_SECONDS, numbers, publish_all, until

STREAM = {"x-queue-type": "stream"}


def partition(channel: shardmq.Channel, name: str) -> list[bytes]:
    """All that is in a partition."""
    first = {"x-stream-offset": "first"}
    count = channel.queue_declare(name, passive=True).messages
    consumed = channel.consume(name, auto_ack=True, arguments=first, inactivity_timeout=PATIENCE_SECONDS)
    found = [message.body for _, message in zip(range(count), consumed, strict=False)] if count else []
    consumed.close()
    return found


def test_a_topic_has_a_queue_for_each_partition_an_exchange_and_their_bindings(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.topic_declare("orders", 5, retention_ms=60_000, retention_bytes=10**9, retention_messages=10**6)
    channel.topic_declare("orders", 5, retention_ms=60_000, retention_bytes=10**9, retention_messages=10**6)
    info = channel.topic_info("orders")
    queues = [row for row in connection.topology("queues") if row["name"].startswith("orders-")]
    assert [row["queue"] for row in info["partitions"]] == [f"orders-{number}" for number in range(5)]
    assert {row["name"] for row in queues} == {row["queue"] for row in info["partitions"]}
    limits = {"x-max-age": "60s", "x-max-length-bytes": 10**9, "x-max-length": 10**6}
    assert queues[0]["arguments"] == {**STREAM, **limits, "x-topic": "orders"}
    per_shard = [sum(row["shard"] == shard for row in queues) for shard in {row["shard"] for row in queues}]
    assert max(per_shard) - min(per_shard) <= 1
    bindings = [row for row in connection.topology("bindings") if row["source"] == "orders"]
    assert [(row["destination"], row["routing_key"]) for row in bindings] == [
        (f"orders-{number}", str(number)) for number in range(5)
    ]
    assert connection.topology("topics") == [
        {"name": "orders", "vhost": "/", "partitions": 5, "epoch": 1, "arguments": info["arguments"]}
    ]
    channel.topic_delete("orders")
    assert connection.topology("topics") == []
    assert not [row for row in connection.topology("queues") if row["name"].startswith("orders-")]
    assert not [row for row in connection.topology("exchanges") if row["name"] == "orders"]


def test_a_key_has_one_partition(channel: shardmq.Channel) -> None:
    channel.topic_declare("keyed", 4)
    with channel.publisher() as publisher:
        for number in range(400):
            publisher.publish("keyed", f"key-{number % 20}", b"%d" % number)
    there = [partition(channel, f"keyed-{number}") for number in range(4)]
    assert sum(map(len, there)) == 400
    assert all(there)
    for bodies in there:
        assert [int(body) for body in bodies] == sorted(int(body) for body in bodies)
    homes = [{int(body) % 20 for body in bodies} for bodies in there]
    assert sum(map(len, homes)) == 20
    channel.topic_delete("keyed")


def test_a_topic_is_extended_and_never_reduced(channel: shardmq.Channel) -> None:
    channel.topic_declare("grown", 2)
    channel.topic_extend("grown", 6)
    channel.topic_extend("grown", 6)
    info = channel.topic_info("grown")
    assert (len(info["partitions"]), info["epoch"]) == (6, 2)
    with pytest.raises(errors.PreconditionFailed, match="added, never removed"):
        channel.topic_extend("grown", 5)
    publish_all(channel, "grown-5", [b"a"])
    assert partition(channel, "grown-5") == [b"a"]
    channel.topic_delete("grown")


def test_parts_of_a_topic_are_not_deleted_by_themselves(channel: shardmq.Channel) -> None:
    channel.topic_declare("whole", 2)
    with pytest.raises(errors.PreconditionFailed, match="delete the topic"):
        channel.queue_delete("whole-1")
    with pytest.raises(errors.PreconditionFailed, match="delete the topic"):
        channel.exchange_delete("whole")
    with pytest.raises(errors.PreconditionFailed, match="delete the topic"):
        channel.queue_unbind("whole-1", "whole", "1", {"x-stream-partition-order": 1})
    for key in ("", "0", "1"):  # no binding has these keys and arguments
        with pytest.raises(errors.PreconditionFailed, match="stays bound to its exchange; delete the topic"):
            channel.queue_unbind("whole-1", "whole", key)
    channel.queue_declare("elsewhere")
    channel.queue_unbind("elsewhere", "whole", "0")  # is not bound there: nothing to do, as in RabbitMQ
    channel.queue_delete("elsewhere")
    with pytest.raises(errors.PreconditionFailed, match="partitions of its topic alone"):
        channel.exchange_bind("amq.fanout", "whole", "7")
    channel.topic_delete("whole")


def test_names_of_others_are_refused(channel: shardmq.Channel) -> None:
    channel.queue_declare("taken-1", durable=True, arguments=STREAM)
    channel.exchange_declare("taken-exchange", durable=True)
    with pytest.raises(errors.PreconditionFailed, match="there is queue 'taken-1', which is not the topic's"):
        channel.topic_declare("taken", 2)
    with pytest.raises(errors.PreconditionFailed, match="there is exchange 'taken-exchange'"):
        channel.topic_declare("taken-exchange", 2)
    channel.topic_declare("taken", 1)
    with pytest.raises(errors.PreconditionFailed, match="there is queue 'taken-1'"):
        channel.topic_extend("taken", 2)
    with pytest.raises(errors.PreconditionFailed, match="inequivalent arg 'partitions'"):
        channel.topic_declare("taken", 2)
    with pytest.raises(errors.PreconditionFailed, match="inequivalent arg 'x-max-age'"):
        channel.topic_declare("taken", 1, retention_ms=1000)
    with pytest.raises(errors.PreconditionFailed, match="declare a topic"):
        channel.exchange_declare("another", "x-partition", durable=True)
    with pytest.raises(errors.NotFound):
        channel.topic_info("nothing")
    channel.topic_delete("taken")
    channel.queue_delete("taken-1")
    channel.exchange_delete("taken-exchange")


def test_a_topic_in_use_is_kept_if_unused_is_asked_for(channel: shardmq.Channel) -> None:
    channel.topic_declare("used", 3)
    consumer = channel.consume("used-2", inactivity_timeout=0.2)
    assert list(consumer) == []
    tag = channel.basic_consume("used-2", lambda *_: None)
    with pytest.raises(errors.PreconditionFailed, match="in use"):
        channel.topic_delete("used", if_unused=True)
    publish_all(channel, "used-0", [b"a"])  # those that had agreed are as they were
    assert partition(channel, "used-0") == [b"a"]
    channel.basic_cancel(tag)
    channel.topic_delete("used", if_unused=True)
    with pytest.raises(errors.NotFound):
        channel.topic_info("used")


def published_parts(channel: shardmq.Channel, topic: str, partitions: int) -> list[list[bytes]]:
    return [partition(channel, f"{topic}-{number}") for number in range(partitions)]


@pytest.mark.parametrize(("partitioner", "key"), [("key", ""), ("round-robin", "a key")])
def test_messages_take_partitions_in_turns(channel: shardmq.Channel, partitioner: str, key: str) -> None:
    channel.topic_declare("turning", 4, partitioner=partitioner)
    for number in range(40):
        channel.basic_publish("turning", key, b"%d" % number)
    there = published_parts(channel, "turning", 4)
    assert [len(bodies) for bodies in there] == [10] * 4
    assert sorted(int(body) for bodies in there for body in bodies) == list(range(40))
    with channel.publisher() as publisher:
        publisher.publish_many("turning", key, numbers(0, 20_000))
    there = published_parts(channel, "turning", 4)
    assert min(len(bodies) for bodies in there) > 2500
    assert sum(len(bodies) for bodies in there) == 20_040
    channel.topic_delete("turning")


def test_numbered_messages_that_come_again_are_stored_once_whatever_frames_they_come_in(
    channel: shardmq.Channel,
) -> None:
    channel.topic_declare("numbered", 3)
    for portion in (100, 1000, 7):
        with channel.publisher(producer="loader") as publisher:
            for first in range(0, 3000, portion):
                publisher.publish_many("numbered", "", numbers(first, min(first + portion, 3000)), sequence=first)
    there = published_parts(channel, "numbered", 3)
    assert sorted(int(body) for bodies in there for body in bodies) == list(range(3000))
    assert min(len(bodies) for bodies in there) >= 750
    for bodies in there:
        assert [int(body) for body in bodies] == sorted(int(body) for body in bodies)
    channel.topic_delete("numbered")


def test_transactions_publish_to_topics_whole(channel: shardmq.Channel) -> None:
    channel.topic_declare("batched", 3)
    with channel.transaction("batch 1") as transaction:
        transaction.publish_many("batched", "", numbers(0, 3000))
        transaction.publish("batched", "key", b"3000")
    there = published_parts(channel, "batched", 3)
    assert sorted(int(body) for bodies in there for body in bodies) == list(range(3001))
    assert all(there)
    channel.topic_delete("batched")


def test_the_publisher_chooses_the_partition(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.topic_declare("chosen", 3, partitioner="explicit")
    returned: list[bytes] = []
    connection.on_return(lambda each: returned.append(each.body))
    with channel.publisher() as publisher:
        for number in range(30):
            header = shardmq.Properties(headers={"x-partition": number % 3})
            publisher.publish("chosen", "whatever", b"%d" % number, header)
        for wrong in (3, -1, "1", True, None, 1.0):
            header = shardmq.Properties(headers={} if wrong is None else {"x-partition": wrong})
            publisher.publish("chosen", "", repr(wrong).encode(), header, mandatory=True)
    there = published_parts(channel, "chosen", 3)
    assert [[int(body) for body in bodies] for bodies in there] == [list(range(first, 30, 3)) for first in range(3)]
    until(lambda: len(returned) == 6, "returns")
    assert set(returned) == {b"3", b"-1", b"'1'", b"True", b"None", b"1.0"}
    channel.topic_delete("chosen")


def test_other_exchanges_lead_to_topics_and_dead_letters_go_there(channel: shardmq.Channel) -> None:
    channel.topic_declare("behind", 3)
    channel.exchange_declare("before", "fanout")
    channel.exchange_bind("behind", "before")
    channel.queue_declare("dying", arguments={"x-dead-letter-exchange": "behind", "x-dead-letter-routing-key": ""})
    channel.queue_bind("dying", "before")
    with channel.publisher() as publisher:
        for number in range(9):
            publisher.publish("before", "", b"%d" % number)
    there = published_parts(channel, "behind", 3)
    assert sorted(int(body) for bodies in there for body in bodies) == list(range(9))
    for message in channel.consume("dying", inactivity_timeout=1.0):
        message.nack(requeue=False)
    until(lambda: sum(map(len, published_parts(channel, "behind", 3))) == 18, "dead letters")
    channel.exchange_delete("before")
    channel.queue_delete("dying")
    channel.topic_delete("behind")


def test_info_tells_offsets_sizes_and_times(channel: shardmq.Channel) -> None:
    channel.topic_declare("told", 2)
    before_ms = time.time_ns() // 1_000_000 - 1000
    publish_all(channel, "told-1", numbers(0, 30))
    info = channel.topic_info("told")
    empty, full = info["partitions"]
    assert (empty["first"], empty["next"], empty["messages"], empty["oldest_ms"]) == (0, 0, 0, 0)
    assert (full["first"], full["next"], full["messages"]) == (0, 30, 30)
    assert full["bytes"] > 30
    assert before_ms < full["oldest_ms"] <= full["newest_ms"]
    assert info["groups"] == []
    stream = channel.topic_info("told-1")  # a topic of one partition
    assert [row["next"] for row in stream["partitions"]] == [30]
    channel.topic_delete("told")


def test_a_topic_is_there_after_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=3)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.topic_declare("lasting", 4, retention_messages=1000)
        channel.topic_extend("lasting", 5)
        publish_all(channel, "", numbers(0, 500), exchange="lasting")
        before = channel.topic_info("lasting")
    broker.restart()
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        assert channel.topic_info("lasting") == before
        channel.topic_declare("lasting", 5, retention_messages=1000)
        publish_all(channel, "", numbers(500, 600), exchange="lasting")
        assert sorted(int(body) for part in published_parts(channel, "lasting", 5) for body in part) == list(range(600))


def test_what_a_user_may_do_with_a_topic_is_looked_up_by_its_name(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as administrator:
        administrator.channel().topic_declare("guarded", 2)
        administrator.user_put("reader", password="secret")
        administrator.permission_put("reader", "/", "^mine", "^mine", "^guarded$")
    with shardmq.connect(broker.url.replace("guest:guest", "reader:secret")) as connection:
        channel = connection.channel()
        assert len(channel.topic_info("guarded")["partitions"]) == 2
        for refused in (
            lambda: channel.topic_declare("other"),
            lambda: channel.topic_extend("guarded", 3),
            lambda: channel.topic_delete("guarded"),
            lambda: channel.basic_publish("guarded", "", b""),
            lambda: channel.topic_info("mine"),
        ):
            with pytest.raises(errors.AccessRefused):
                refused()
        channel.topic_declare("mine", 2)
        channel.basic_publish("mine", "key", b"")
        channel.topic_delete("mine")


def test_the_oldest_messages_go_when_a_partition_has_too_many(channel: shardmq.Channel) -> None:
    channel.topic_declare("short", 1, retention_messages=1000)
    for first in range(0, 12_000, 3000):
        bodies = [b"%06d" % number + bytes(1000) for number in range(first, first + 3000)]
        publish_all(channel, "", bodies, exchange="short")
    (kept,) = until(
        lambda: [row for row in channel.topic_info("short")["partitions"] if row["first"] >= 9000], "retention"
    )
    assert kept["next"] == 12_000
    assert 1000 <= kept["messages"] <= 3000  # whole segments go
    assert int(partition(channel, "short-0")[0][:6]) == kept["first"]
    channel.topic_delete("short")


def test_asyncio_has_topics_too(broker: Broker) -> None:
    async def run() -> None:
        async with await aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.topic_declare("looped", 2, partitioner="round-robin", retention_bytes=10**9)
            for number in range(10):
                await channel.basic_publish("looped", "key", b"%d" % number)
            await channel.topic_extend("looped", 3)
            info = await channel.topic_info("looped")
            assert [row["messages"] for row in info["partitions"]] == [5, 5, 0]
            with pytest.raises(errors.PreconditionFailed):
                await channel.topic_declare("looped", 2)
            await channel.topic_delete("looped")

    asyncio.run(run())
