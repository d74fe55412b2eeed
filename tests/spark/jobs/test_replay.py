"""Exports back to exchanges: as they were, once, in chunks; also of a queue that was empty."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest, PreconditionFailed
from tests.spark.jobs.messages import HEADERS, Told, everything, number_of, told_of


def test_an_export_replayed_is_what_it_was_with_ids_and_types_of_headers(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    exchange: str,
    queue: str,
    tmp_path: Path,
    told: Told,
) -> None:
    channel.queue_bind(queue, exchange, "a.*")
    kinds = [
        None,
        shardmq.Properties(headers=HEADERS, priority=2),
        shardmq.Properties(message_id="own", delivery_mode=1),
    ]
    for number in range(20):
        channel.basic_publish(exchange, f"a.{number % 3}", b"%d" % number, kinds[number % 3])
    before = everything(channel, queue)
    to = str(tmp_path / "archive")
    summary = shardmq.spark.export(spark, queue, to, url=broker.url, by="hour", say=told)
    assert (summary.rows, summary.messages, summary.queues) == (20, 0, {queue: 20})
    rows = spark.read.parquet(to)
    assert rows.where("to_date(timestamp) = date AND hour(timestamp) = hour").count() == 20
    with pytest.raises(InvalidRequest, match="exists; name another"):
        shardmq.spark.export(spark, queue, to, url=broker.url)

    channel.queue_purge(queue)
    done = []

    def crash_after_the_first(rows_done: int, _total: int) -> None:
        done.append(rows_done)
        if rows_done:
            raise KeyboardInterrupt

    replay: dict[str, Any] = {"url": broker.url, "keep_exchange": True, "rate": 2.0, "say": told}
    with pytest.raises(KeyboardInterrupt):
        shardmq.spark.replay(spark, to, **replay, progress=crash_after_the_first)
    assert done == [0, 10]
    assert len(everything(channel, queue)) == 10
    replay["rate"] = 2.1  # ten rows a chunk as before: 5 seconds' worth
    summary = shardmq.spark.replay(spark, to, **replay)
    assert (summary.messages, summary.notes) == (10, ("1 of 2 chunks were committed before",))
    after = everything(channel, queue)
    assert {int(message.body) for message in after[:10]} == set(range(10))
    assert sorted(map(told_of, after), key=number_of) == [told_of(message) for message in before]

    again = shardmq.spark.replay(spark, to, **replay)
    assert (again.messages, len(everything(channel, queue))) == (0, 20)
    with pytest.raises(PreconditionFailed, match="was used with other files, target or rate"):
        shardmq.spark.replay(spark, to, **{**replay, "txn_id": summary.transaction, "rate": None})
    with pytest.raises(InvalidRequest, match="one of the two"):
        shardmq.spark.replay(spark, to, url=broker.url)
    assert connection.topology("transactions") == []


def test_files_of_others_are_not_replayed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(InvalidRequest, match="no column body, routing_key, raw_properties"):
        shardmq.spark.replay(spark, str(tmp_path / "other"), url=broker.url, exchange="amq.topic")
