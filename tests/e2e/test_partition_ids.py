"""Ids of partitions: they tell a topic from one of its name that was deleted, or that was restored from a backup."""

import subprocess
from pathlib import Path

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.conftest import StartBroker
from tests.running import backed_up


def ids(channel: shardmq.Channel, topic: str) -> list[int]:
    return [row["id"] for row in channel.group_offsets(topic, "nobody")]


def ids_at(broker: Broker, topic: str) -> list[int]:
    with shardmq.connect(broker.url) as connection:
        return ids(connection.channel(), topic)


def test_a_topic_that_was_made_anew_has_partitions_of_other_ids(channel: shardmq.Channel) -> None:
    channel.topic_declare("made", 3)
    before = ids(channel, "made")
    assert len(set(before)) == 3
    assert all(0 < number < 2**53 for number in before)
    channel.topic_extend("made", 5)
    assert ids(channel, "made")[:3] == before
    channel.topic_delete("made")
    channel.topic_declare("made", 3)
    assert set(ids(channel, "made")).isdisjoint(before)
    channel.topic_delete("made")


def test_a_stream_has_an_id_as_a_partition_has(channel: shardmq.Channel) -> None:
    stream = {"x-queue-type": "stream"}
    channel.queue_declare("flowing", durable=True, arguments=stream)
    before = ids(channel, "flowing")
    channel.queue_delete("flowing")
    channel.queue_declare("flowing", durable=True, arguments=stream)
    assert ids(channel, "flowing") != before
    channel.queue_delete("flowing")


def test_ids_stay_when_a_broker_is_restarted_and_change_when_it_is_restored(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        connection.channel().topic_declare("kept", 2)
    before = ids_at(broker, "kept")
    broker.restart()
    assert ids_at(broker, "kept") == before
    backed_up(broker.url, tmp_path / "copy")
    broker.stop()
    words = command("restore", str(tmp_path / "copy"), str(tmp_path / "restored"))
    restoring = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert restoring.returncode == 0, restoring.stderr
    restored = start_broker(shards=2, data_dir=tmp_path / "restored")
    assert set(ids_at(restored, "kept")).isdisjoint(before)
