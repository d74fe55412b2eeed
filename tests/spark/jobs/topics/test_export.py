"""Topics to Parquet: each message once, over several exports, also where one broke off."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import shardmq
import shardmq.spark
from shardmq.client.api.url import with_vhost
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed
from shardmq.spark.jobs.export_folder import Origin
from tests.spark.topics.streams import publish


def exported(spark: SparkSession, folder: Path) -> list[int]:
    """The numbers in an export, in rising order."""
    return sorted(int(row.body) for row in spark.read.parquet(str(folder)).select("body").collect())


def test_each_export_adds_what_came_since_the_one_before(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    publish(channel, stream, 0, 100)
    first = shardmq.spark.export_topic(spark, stream, str(to), url=broker.url)
    assert (first.rows, first.bytes) == (100, sum(len(str(number)) for number in range(100)))
    publish(channel, stream, 100, 130)
    assert shardmq.spark.export_topic(spark, stream, str(to), url=broker.url).rows == 30
    assert shardmq.spark.export_topic(spark, stream, str(to), url=broker.url).rows == 0
    assert exported(spark, to) == list(range(130))
    [row] = spark.read.parquet(str(to)).where("offset = 7").collect()
    assert (row.topic, row.partition, row.routing_key, str(row.date)) == (
        stream,
        0,
        stream,
        f"{row.timestamp:%Y-%m-%d}",
    )


def test_an_export_that_broke_off_is_finished_by_the_next_one(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    to = tmp_path / "archive"
    publish(channel, stream, 0, 100)
    shardmq.spark.export_topic(spark, stream, str(to), url=broker.url, by="hour")
    [checkpoint] = (to / "_shardmq-export").iterdir()
    for note in (checkpoint / "commits").glob("*0*"):
        note.unlink()  # as if Spark had died when all was written, and not noted
    publish(channel, stream, 100, 120)
    shardmq.spark.export_topic(spark, stream, str(to), url=broker.url, by="hour")
    assert exported(spark, to) == list(range(120))


def test_a_folder_of_others_is_not_exported_to(
    spark: SparkSession, broker: Broker, stream: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=f"is not of exports of topic '{stream}' of .*; name another one"):
        shardmq.spark.export_topic(spark, stream, str(tmp_path), url=broker.url)
    with pytest.raises(NotFound, match="'nowhere'"):
        shardmq.spark.export_topic(spark, "nowhere", str(tmp_path / "new"), url=broker.url)


def as_an_earlier_version_named_it(folder: Path, topic: str) -> Path:
    """Have an export's checkpoint named by the topic alone; returns where it is."""
    [checkpoint] = (folder / "_shardmq-export").iterdir()
    return checkpoint.rename(checkpoint.with_name(f"topic-{Origin('', '', topic).digest}"))


@pytest.mark.parametrize("is_older", [False, True], ids=["now", "by an earlier version"])
def test_a_topic_of_that_name_in_another_virtual_host_is_not_added_to_a_folder(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    stream: str,
    tmp_path: Path,
    is_older: bool,
) -> None:
    to, tenant = tmp_path / "archive", with_vhost(broker.url, "tenant")
    refused = re.escape(f"is not of exports of topic '{stream}' of virtual host 'tenant'")
    connection.vhost_put("tenant")
    connection.permission_put("guest", "tenant", ".*", ".*", ".*")
    publish(channel, stream, 0, 10)
    shardmq.spark.export_topic(spark, stream, str(to), url=broker.url)
    if is_older:
        as_an_earlier_version_named_it(to, stream)
    with shardmq.connect(tenant) as other:
        there = other.channel()
        there.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        for first, end in ((100, 105), (105, 130)):  # shorter than what was exported, and longer
            publish(there, stream, first, end)
            with pytest.raises(InvalidRequest, match=refused):
                shardmq.spark.export_topic(spark, stream, str(to), url=tenant)
    publish(channel, stream, 10, 20)
    assert shardmq.spark.export_topic(spark, stream, str(to), url=broker.url).rows == 10
    assert shardmq.spark.export_topic(spark, stream, str(to), url=broker.url).rows == 0
    with pytest.raises(InvalidRequest, match=refused):
        shardmq.spark.export_topic(spark, stream, str(to), url=tenant)
    assert exported(spark, to) == list(range(20))
    connection.vhost_delete("tenant")


def test_an_export_of_an_earlier_version_of_which_the_topic_has_nothing_more_is_asked_about(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    name, to = f"{stream}-trimmed", tmp_path / "archive"
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", "x-max-length-bytes": 1_000_000})
    publish(channel, name, 0, 10)
    shardmq.spark.export_topic(spark, name, str(to), url=broker.url)
    checkpoint = as_an_earlier_version_named_it(to, name)
    with channel.publisher() as publisher:
        for _ in range(4):
            publisher.publish_many("", name, [b"x" * 1000] * 1000)
    job: dict[str, Any] = {"url": broker.url, "fails_on_loss": False}
    with pytest.raises(InvalidRequest, match="by an earlier version, which did not note") as refused:
        shardmq.spark.export_topic(spark, name, str(to), **job)
    [note] = re.findall(r"make an empty file (\S+) and export again", refused.value.text)
    assert Path(note).parent == checkpoint
    Path(note).touch()
    assert 0 < shardmq.spark.export_topic(spark, name, str(to), **job).rows < 4000
    channel.queue_delete(name)


def test_messages_that_were_dropped_since_the_last_export_fail_the_next_one(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    name, to = f"{stream}-trimmed", str(tmp_path / "archive")
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", "x-max-length-bytes": 1_000_000})
    publish(channel, name, 0, 10)
    shardmq.spark.export_topic(spark, name, to, url=broker.url)
    with channel.publisher() as publisher:
        for _ in range(4):
            publisher.publish_many("", name, [b"x" * 1000] * 1000)
    with pytest.raises(PreconditionFailed, match=r"exporting topic.* partition 0: messages \[10, .*retention"):
        shardmq.spark.export_topic(spark, name, to, url=broker.url)
    assert 0 < shardmq.spark.export_topic(spark, name, to, url=broker.url, fails_on_loss=False).rows < 4000
    channel.queue_delete(name)


def test_an_export_of_a_topic_can_be_replayed(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, queue: str, tmp_path: Path
) -> None:
    to = str(tmp_path / "archive")
    publish(channel, stream, 0, 100, headers={"n": 7})
    shardmq.spark.export_topic(spark, stream, to, url=broker.url)
    channel.exchange_declare("again", "fanout", durable=True)
    channel.queue_bind(queue, "again")
    done = shardmq.spark.replay(spark, to, url=broker.url, exchange="again", say=lambda _sentence: None)
    assert done.rows == 100
    found = [message for message in channel.consume(queue, auto_ack=True, inactivity_timeout=2.0) if message]
    assert sorted(int(message.body) for message in found) == list(range(100))
    assert {message.properties.headers["n"] for message in found} == {7}
    channel.exchange_delete("again")
