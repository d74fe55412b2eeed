"""Topics read as a stream: each message once, whatever is restarted in between."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import PreconditionFailed
from shardmq.spark.options import parse
from shardmq.spark.topics.columns import TOPIC_SCHEMA
from shardmq.spark.topics.stream import IDLE_SECONDS, TopicStreamReader
from tests.spark.queues import until
from tests.spark.topics.streams import finish, places, publish, sizes, start, written
from tests.spark.write.published import refused


def read_stream(spark: SparkSession, broker: Broker, topic: str, **options: object) -> DataFrame:
    given = {"subscribe": topic, "startingOffsets": "earliest"} | {name: str(value) for name, value in options.items()}
    return spark.readStream.format("shardmq").option("url", broker.url).options(**given).load()


def reader(broker: Broker, topic: str, **options: object) -> TopicStreamReader:
    """As Spark makes it, without Spark."""
    given = {"url": broker.url, "subscribe": topic} | {name: str(value) for name, value in options.items()}
    return TopicStreamReader(parse(given, "readStream"), StructType([TOPIC_SCHEMA["value"]]))


def test_each_message_is_read_once_over_several_runs(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    source = read_stream(spark, broker, stream)
    publish(channel, stream, 0, 1000)
    assert sizes(finish(start(source, tmp_path))) == [1000]
    publish(channel, stream, 1000, 1500)
    assert sizes(finish(start(source, tmp_path))) == [500]
    assert finish(start(source, tmp_path)) == []
    assert written(spark, tmp_path) == list(range(1500))


def test_micro_batches_have_no_more_than_the_limit_and_the_progress_has_the_lag(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    publish(channel, stream, 0, 1000)
    progress = finish(start(read_stream(spark, broker, stream, maxOffsetsPerTrigger=400), tmp_path))
    assert sizes(progress) == [400, 400, 200]
    sources = [source for batch in progress for source in batch["sources"]]
    ends = [json.loads(source["endOffset"])[stream]["0"] for source in sources]
    latest = [json.loads(source["latestOffset"])[stream]["0"] for source in sources]
    assert [behind - end for behind, end in zip(latest, ends, strict=True)] == [600, 200, 0]
    assert written(spark, tmp_path) == list(range(1000))


def test_a_stream_begins_at_the_end_unless_told_otherwise(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    publish(channel, stream, 0, 10)
    source = spark.readStream.format("shardmq").option("url", broker.url).option("subscribe", stream).load()
    assert finish(start(source, tmp_path)) == []
    publish(channel, stream, 10, 20)
    finish(start(source, tmp_path))
    assert written(spark, tmp_path) == list(range(10, 20))


def test_a_running_stream_gets_what_is_published_meanwhile(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    query = start(read_stream(spark, broker, stream), tmp_path, trigger={"processingTime": "0 seconds"})
    try:
        for first in range(0, 30, 10):
            publish(channel, stream, first, first + 10)
            until(lambda first=first: query.exception() or _rows(query) >= first + 10, "messages are read")
            assert query.exception() is None
    finally:
        query.stop()
    assert written(spark, tmp_path) == list(range(30))


def _rows(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_a_micro_batch_that_is_run_again_has_the_same_messages(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    publish(channel, stream, 0, 100)
    source = read_stream(spark, broker, stream, maxOffsetsPerTrigger=60)
    seen: list[tuple[int, list[int]]] = []

    def take(frame: DataFrame, batch: int) -> None:
        seen.append((batch, sorted(int(row.value) for row in frame.select("value").collect())))

    def run() -> None:
        written_to = source.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(written_to.trigger(availableNow=True).start())

    run()
    publish(channel, stream, 100, 130)
    for note in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        note.unlink()  # as if Spark had died before its own note
    run()
    assert seen == [
        (0, list(range(60))),
        (1, list(range(60, 100))),
        (1, list(range(60, 100))),
        (2, list(range(100, 130))),
    ]


def test_a_task_that_fails_is_tried_again_with_the_same_messages(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 1 and context is not None and context.attemptNumber() == 0:
                raise RuntimeError("this task fails after part of its rows")
            yield batch

    publish(channel, stream, 0, 25_000)
    source = read_stream(spark, broker, stream).select("value")
    finish(start(source.mapInArrow(fail_once, source.schema), tmp_path))
    assert written(spark, tmp_path) == list(range(25_000))


def test_messages_that_retention_dropped_under_a_checkpoint_fail_the_query_by_name(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, tmp_path: Path
) -> None:
    name = f"{stream}-trimmed"
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", "x-max-length-bytes": 1_000_000})
    publish(channel, name, 0, 100)
    finish(start(read_stream(spark, broker, name), tmp_path))
    with channel.publisher() as publisher:
        for first in range(100, 5100, 1000):
            publisher.publish_many("", name, [b"%d" % n + b" " * 1000 for n in range(first, first + 1000)])
    with pytest.raises(PySparkException) as error:
        finish(start(read_stream(spark, broker, name), tmp_path))
    assert f"topic '{name}', partition 0: messages [100, " in refused(error)
    assert "retention dropped those before it" in refused(error)
    finish(start(read_stream(spark, broker, name, failOnDataLoss="false"), tmp_path))
    found = written(spark, tmp_path)
    assert found[:100] == list(range(100))
    assert found[100] > 100
    assert found[100:] == list(range(found[100], 5100))
    channel.queue_delete(name)


def test_a_stream_that_was_made_anew_under_a_checkpoint_fails_the_query(
    broker: Broker, channel: shardmq.Channel, stream: str
) -> None:
    publish(channel, stream, 0, 10)
    begin = {stream: {"0": 500}}
    with pytest.raises(
        PreconditionFailed, match=f"topic '{stream}', partition 0: .*the partition ends at 10: it was made anew"
    ):
        reader(broker, stream).latestOffset(begin, ReadAllAvailable())
    # Where that is allowed, the next micro-batch reads all that is there now.
    lenient = reader(broker, stream, failOnDataLoss="false")
    end = lenient.latestOffset(begin, ReadAllAvailable())
    assert lenient.partitions(begin, end) == []
    assert places(lenient.latestOffset(end, ReadAllAvailable())) == {stream: {"0": 10}}


def test_few_messages_wait_for_more_for_a_time(broker: Broker, channel: shardmq.Channel, stream: str) -> None:
    patient = reader(broker, stream, minOffsetsPerTrigger=100)
    begin = patient.initialOffset()
    publish(channel, stream, 0, 99)
    limit = patient.getDefaultReadLimit()
    assert limit == ReadMinRows(100)
    asked_at = time.monotonic()
    assert patient.latestOffset(begin, limit) == begin
    assert time.monotonic() - asked_at >= IDLE_SECONDS, "else Spark asks a hundred times a second while it waits"
    assert places(patient.latestOffset(begin, ReadAllAvailable())) == {stream: {"0": 99}}
    publish(channel, stream, 99, 100)
    assert places(patient.latestOffset(begin, limit)) == {stream: {"0": 100}}
    hasty = reader(broker, stream, minOffsetsPerTrigger=1000, maxTriggerDelay="1ms")
    time.sleep(0.002)
    assert places(hasty.latestOffset(begin, limit)) == {stream: {"0": 100}}


def test_micro_batches_have_about_so_many_bytes(broker: Broker, channel: shardmq.Channel, stream: str) -> None:
    made = reader(broker, stream, maxBytesPerTrigger=50_000)
    begin = made.initialOffset()
    with channel.publisher() as publisher:
        publisher.publish_many("", stream, [b"x" * 995] * 200)  # 1000 bytes as records
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxBytes(50_000)
    assert places(made.latestOffset(begin, limit)) == {stream: {"0": 50}}
    assert places(made.latestOffset({stream: {"0": 180}}, limit)) == {stream: {"0": 200}}
    assert places(made.latestOffset(begin, ReadAllAvailable())) == {stream: {"0": 200}}


def test_available_now_reads_what_is_there_when_it_begins_and_no_more(
    broker: Broker, channel: shardmq.Channel, stream: str
) -> None:
    made = reader(broker, stream, maxOffsetsPerTrigger=30, minOffsetsPerTrigger=20)
    begin = made.initialOffset()
    publish(channel, stream, 0, 40)
    made.prepareForTriggerAvailableNow()
    publish(channel, stream, 40, 80)
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    ends = [{stream: {"0": place}} for place in (30, 40)]
    assert places(made.latestOffset(begin, limit)) == ends[0]
    assert places(made.latestOffset(ends[0], limit)) == ends[1]  # fewer than minOffsetsPerTrigger, and yet no waiting
    assert made.latestOffset(ends[1], limit) == ends[1]
    assert places(made.reportLatestOffset()) == {stream: {"0": 80}}


def test_a_query_goes_on_where_it_was_while_its_broker_is_restarted(
    spark: SparkSession, start_broker: Any, tmp_path: Path
) -> None:
    broker = start_broker()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("restarted", durable=True, arguments={"x-queue-type": "stream"})
        publish(channel, "restarted", 0, 100)
        query = start(read_stream(spark, broker, "restarted"), tmp_path, trigger={"processingTime": "0 seconds"})
        try:
            until(lambda: query.exception() or _rows(query) >= 100, "messages are read")
            broker.kill("shard-0")
            broker.kill("gateway-0")
            publish(channel, "restarted", 100, 200)
            until(lambda: query.exception() or _rows(query) >= 200, "messages are read after the restart")
            assert query.exception() is None
        finally:
            query.stop()
    assert written(spark, tmp_path) == list(range(200))
