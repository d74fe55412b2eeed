"""Groups whose cursors are damaged go on where a reset says, and nothing that was staged before comes through."""

import re
from pathlib import Path

import lmdb
import pytest

import shardmq
from shardmq.errors import PreconditionFailed, Unavailable
from shardmq.shards.storage.schema import REPLACED
from shardmq.storage.checksums import CHECKSUM_BYTES
from tests.conftest import StartBroker
from tests.e2e.traffic import numbers, publish_all, until

from .test_flipped_bits import Flip, cursors, run_command

COUNT = 20
KINDS = ("ordered", "shared")
TOPICS = ("wrong-value", "wrong-key")
"""What is wrong of the cursor of their group; a key with a wrong bit is another name."""


def read_half(channel: shardmq.Channel, topic: str) -> None:
    channel.topic_declare(topic, 1)
    with channel.publisher() as publisher:
        publisher.publish_many(topic, "key", numbers(0, COUNT))
    with channel.group_consumer(topic, "readers", start="earliest", auto_commit=False, pull=COUNT // 2) as consumer:
        for message in consumer.poll(10):
            message.ack()
        consumer.commit()


def stage_rest(channel: shardmq.Channel, topic: str) -> shardmq.Transaction:
    """A transaction that has staged an offset, and is not sealed."""
    with channel.group_consumer(topic, "readers", auto_commit=False) as consumer:
        for message in until(lambda: consumer.poll(1), "there is more to read"):
            message.ack()
        transaction = channel.transaction("late", timeout_ms=3_600_000)
        transaction.commit_offsets(consumer)
        return transaction


def bodies_of(consumer: shardmq.GroupConsumer, count: int) -> list[bytes]:
    """So many messages, as soon as they are there."""
    found: list[bytes] = []
    until(lambda: found.extend([message.body for message in consumer.poll(1)]) or len(found) >= count, "all is read")
    return found


def flip(folder: Path, topic: str, queue: int) -> None:
    """Flip a bit of the cursor: behind its end, or in the name of the group."""
    file, key, value = next(each for each in cursors(folder) if each[1].startswith(queue.to_bytes(8, "big")))
    for place in re.finditer(re.escape(key + value), (folder / file).read_bytes()):  # older ones are in free pages
        byte = place.end() - 1 if topic == "wrong-value" else place.start() + len(key) - 1
        Flip(file, byte, 2).apply(folder)


def set_aside(folder: Path) -> list[bytes]:
    """What the shard has kept of damaged cursors."""
    with lmdb.open(str(folder / "shard-0"), readonly=True, lock=False, max_dbs=64) as environment:
        table = environment.open_db(b"state", create=False)
        with environment.begin() as transaction:
            rows = [(bytes(key), bytes(value)) for key, value in transaction.cursor(table)]
    return [value[CHECKSUM_BYTES:] for key, value in rows if key.startswith(REPLACED)]


def test_a_reset_gives_a_group_another_cursor_in_place_of_a_damaged_one(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    broker = start_broker(shards=1, data_dir=folder)
    with shardmq.connect(broker.url, timeout=20) as connection, connection.channel() as channel:
        for topic in TOPICS:
            read_half(channel, topic)
        ids = {row["name"].removesuffix("-0"): row["id"] for row in connection.status()["queues"]}
        transaction = stage_rest(channel, "wrong-value")
        before = channel.group_offsets("wrong-value", "readers")[0]["epoch"]
        broker.stop()
        for topic in TOPICS:
            flip(folder, topic, ids[topic])
        damaged = {value for _, _, value in cursors(folder)}
        broker.start()
        for topic in TOPICS:
            [row] = channel.topic_info(topic)["groups"]
            assert (row["group"], row["damaged"], row["lag"]) == ("readers", [0], 0)
            with pytest.raises(Unavailable, match=r"group 'readers' is out of service .* reset the group"):
                channel.group_offsets(topic, "readers")
        assert [(row["read"], row["damaged"]) for row in connection.topology("groups")] == [(0, [0])] * 2
        listed = run_command("group", "list", "--url", broker.url).stdout.splitlines()
        assert [line.split("\t")[-2] for line in listed] == ["0", "0"]
        for topic in TOPICS:
            reset = ("group", "reset", topic, "readers", "--to", "3", "--url", broker.url)
            said = run_command(*reset, "--dry-run").stdout
            assert said.splitlines()[1:] == ["  partition 0: a damaged offset to 3"], said
            assert channel.topic_info(topic)["groups"][0]["damaged"] == [0]
            with channel.group_consumer(topic, "readers", auto_commit=False) as consumer:
                assert not consumer.poll(0.1)
                assert channel.group_reset(topic, "readers", 3) == {0: (None, 3)}
                assert bodies_of(consumer, COUNT - 3) == numbers(3, COUNT)
                consumer.commit()
        [row] = channel.group_offsets("wrong-value", "readers")
        assert (row["offset"], row["epoch"] > before) == (COUNT, True)
        with pytest.raises(PreconditionFailed, match="is older"):
            transaction.commit()
        assert not connection.status()["processes"][0].get("damaged")
    broker.restart()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        assert [channel.group_offsets(topic, "readers")[0]["offset"] for topic in TOPICS] == [COUNT, COUNT]
    broker.stop()
    assert run_command("store", "check", str(folder)).returncode == 0
    assert set(set_aside(folder)) == damaged


def read_all(channel: shardmq.Channel, topic: str) -> None:
    """A topic of two partitions, which a group has read; the group's kind is the topic's name."""
    channel.topic_declare(topic, 2)
    for number in range(2):
        publish_all(channel, f"{topic}-{number}", numbers(0, COUNT))
    with channel.group_consumer(
        topic, "readers", start="earliest", auto_commit=False, shared=topic == "shared"
    ) as consumer:
        bodies_of(consumer, 2 * COUNT)
        assert consumer.commit() == {0: COUNT, 1: COUNT}


def test_a_group_goes_on_in_other_partitions_and_with_a_reset_in_the_one_with_a_damaged_cursor(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    broker = start_broker(shards=1, data_dir=folder)
    with shardmq.connect(broker.url, timeout=20) as connection, connection.channel() as channel:
        for kind in KINDS:
            read_all(channel, kind)
        ids = {row["name"]: row["id"] for row in connection.status()["queues"]}
        broker.stop()
        for kind in KINDS:
            flip(folder, "wrong-value", ids[f"{kind}-1"])
        broker.start()
        consumers = []
        for kind in KINDS:
            for number in range(2):
                publish_all(channel, f"{kind}-{number}", numbers(COUNT, 2 * COUNT))
            is_shared = kind == "shared"
            consumers.append(channel.group_consumer(kind, "readers", start=0, auto_commit=False, shared=is_shared))
        for consumer in consumers:
            assert bodies_of(consumer, COUNT) == numbers(COUNT, 2 * COUNT)
            assert consumer.commit() == {0: 2 * COUNT}
        for kind in KINDS:
            assert channel.group_reset(kind, "readers", COUNT + 5, [1]) == {1: (None, COUNT + 5)}
        for consumer in consumers:
            assert bodies_of(consumer, COUNT - 5) == numbers(COUNT + 5, 2 * COUNT)
            assert consumer.commit() == {1: 2 * COUNT}
            consumer.close()
