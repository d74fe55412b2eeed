"""Topics to Parquet: each message once, over several exports, also where one broke off."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed
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
    with pytest.raises(InvalidRequest, match=f"is not of exports of topic '{stream}'; name another one"):
        shardmq.spark.export_topic(spark, stream, str(tmp_path), url=broker.url)
    with pytest.raises(NotFound, match="'nowhere'"):
        shardmq.spark.export_topic(spark, "nowhere", str(tmp_path / "new"), url=broker.url)


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
