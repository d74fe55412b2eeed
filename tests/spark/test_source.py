"""What format("shardmq") refuses, and in which words."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.spark.write.published import refused, write


def test_reading_a_queue_as_a_stream_is_refused_with_what_to_do_instead(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    stream = spark.readStream.format("shardmq").option("url", broker.url).option("queue", "any").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException) as error:
        query.start().awaitTermination(60)
    said = refused(error)
    assert "shardmq.errors.InvalidRequest: readStream reads topics and streams" in said
    assert "shardmq.spark.drain" in said


def test_overwriting_is_refused(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(PySparkException) as error:
        write(spark.sql("select 'a' as value"), broker, "overwrite", exchange="amq.fanout")
    assert 'mode("overwrite") would empty queues that others publish to' in refused(error)


def test_a_complete_stream_is_refused(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    counted = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("string(value) as value")
    query = (
        counted.writeStream.format("shardmq")
        .option("url", broker.url)
        .option("exchange", "x")
        .option("checkpointLocation", str(tmp_path))
        .outputMode("complete")
    )
    with pytest.raises(PySparkException) as error:
        query.start().awaitTermination(60)
    assert "complete" in refused(error)


def test_a_traces_context_goes_through_a_job_as_it_is(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    context = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b,c=d"}
    channel.basic_publish("", queue, b"x", shardmq.Properties(headers=context))
    copies = channel.queue_declare().queue
    channel.queue_bind(copies, "amq.fanout")
    rows = spark.read.format("shardmq").option("url", broker.url).option("queue", queue).load()
    write(rows.selectExpr("body as value", "headers"), broker, "append", exchange="amq.fanout")
    message = channel.basic_get(copies, auto_ack=True)
    assert message is not None
    assert message.properties.headers == context
    channel.queue_delete(copies)
