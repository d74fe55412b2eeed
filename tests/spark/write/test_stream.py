"""Streams published: each micro-batch once, also when it is replayed, and what is refused."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.spark.options import Options
from shardmq.spark.write.writer import Staged, StreamWriter
from tests.spark.write.published import refused, take, transactions


def stream(
    spark: SparkSession, folder: Path, broker: Broker, *, checkpoint: str = "checkpoint", **options: Any
) -> None:
    """Publish all files of a folder, a micro-batch each."""
    files = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).parquet(str(folder / "files"))
    started = (
        files.writeStream.format("shardmq")
        .option("url", broker.url)
        .options(**options)
        .queryName("published")
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    started.awaitTermination(120)
    fault = started.exception()
    if fault is not None:
        raise fault


def add_files(spark: SparkSession, folder: Path, *numbers: int) -> None:
    for number in numbers:
        frame = spark.range(number * 10, number * 10 + 10, 1, 2).selectExpr("cast(id as string) as value")
        frame.coalesce(1).write.mode("append").parquet(str(folder / "files"))


def test_a_stream_publishes_each_micro_batch_once(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    queue: str,
    tmp_path: Path,
) -> None:
    add_files(spark, tmp_path, 0, 1)
    stream(spark, tmp_path, broker, routing_key=queue)
    add_files(spark, tmp_path, 2)
    stream(spark, tmp_path, broker, routing_key=queue)
    assert sorted(int(message.body) for message in take(channel, queue)) == list(range(30))
    assert transactions(connection) == []


@pytest.mark.parametrize("name", [None, "orders"])
def test_a_micro_batch_that_is_replayed_after_its_commit_is_published_once(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path, name: str | None
) -> None:
    add_files(spark, tmp_path, 0, 1)
    named = {} if name is None else {"txnAppId": f"{name}-{queue}"}
    stream(spark, tmp_path, broker, routing_key=queue, **named)
    for note in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        note.unlink()  # as if Spark had died between our commit and its own note of it
    stream(spark, tmp_path, broker, routing_key=queue, **named)
    assert sorted(int(message.body) for message in take(channel, queue)) == list(range(20))


def test_a_stream_whose_checkpoint_was_moved_is_the_same_stream(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path
) -> None:
    add_files(spark, tmp_path, 0, 1)
    stream(spark, tmp_path, broker, routing_key=queue)
    for note in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        note.unlink()  # as if Spark had died between our commit and its own note of it
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    stream(spark, tmp_path, broker, checkpoint="moved", routing_key=queue)
    assert sorted(int(message.body) for message in take(channel, queue)) == list(range(20))


def test_a_micro_batch_that_was_committed_by_another_is_not_published_and_that_is_said(
    broker: Broker, connection: shardmq.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    schema = StructType([StructField("value", StringType())])
    with connection.channel() as channel, channel.transaction("stream/0") as done:
        done.commit()
    writer = StreamWriter(Options(url=broker.url, exchange="amq.fanout"), schema)
    with caplog.at_level(logging.WARNING, "shardmq.spark"):
        writer.commit([Staged("stream/0", 0, 0, 0, 0, 0), None], 0)
    assert "'stream/0' was committed before: nothing was published now" in caplog.text


def test_a_stream_publishes_at_least_once_where_that_is_asked_for(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path
) -> None:
    add_files(spark, tmp_path, 0)
    stream(spark, tmp_path, broker, routing_key=queue, delivery="at-least-once")
    assert sorted(int(message.body) for message in take(channel, queue)) == list(range(10))


def test_a_stream_that_cannot_publish_says_where_and_leaves_nothing(
    spark: SparkSession, broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, tmp_path: Path
) -> None:
    add_files(spark, tmp_path, 0)
    with pytest.raises(PySparkException) as error:
        stream(spark, tmp_path, broker, exchange="amq.topic", routing_key="lost")
    assert "exchange 'amq.topic' with routing key 'lost'" in refused(error)
    channel.queue_declare("found", durable=True)
    channel.queue_bind("found", "amq.topic", "lost")
    stream(spark, tmp_path, broker, exchange="amq.topic", routing_key="lost")
    assert sorted(int(message.body) for message in take(channel, "found")) == list(range(10))
    assert transactions(connection) == []
    channel.queue_delete("found")
