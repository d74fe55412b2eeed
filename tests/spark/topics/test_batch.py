"""A topic read as a DataFrame: every message from where the job begins to where it ends, or an error."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, PreconditionFailed
from shardmq.spark.options import parse
from shardmq.spark.topics.batch import TopicReader
from shardmq.spark.topics.columns import TOPIC_SCHEMA, WITH_HEADERS
from shardmq.spark.topics.ranges import TopicRange
from tests.spark.topics.streams import Load, bodies, loader, publish
from tests.spark.write.published import refused

VALUES = StructType([TOPIC_SCHEMA["value"]])


@pytest.fixture
def load(spark: SparkSession, broker: Broker) -> Load:
    """Reads topics of the file's broker."""
    return loader(spark, broker)


def reader(broker: Broker, topic: str, **options: Any) -> TopicReader:
    """As Spark makes it, without Spark; of values."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return TopicReader(parse({"url": broker.url, "subscribe": topic} | texts, "topic"), VALUES)


def numbers(made: TopicReader) -> list[int]:
    """The values of all ranges."""
    return [
        int(value)
        for part in made.partitions()
        for batch in made.read(part)
        for value in batch.column("value").to_pylist()
    ]


def test_each_message_has_its_own_key(broker: Broker, channel: shardmq.Channel) -> None:
    channel.topic_declare("with-keys", 2)
    sent = [(f"key-{number % 30}", b"%d" % number) for number in range(600)]
    with channel.publisher() as publisher:
        publisher.publish_keyed("with-keys", sent)
    options = {"url": broker.url, "subscribe": "with-keys"}
    made = TopicReader(parse(options, "topic"), StructType([TOPIC_SCHEMA["key"], TOPIC_SCHEMA["value"]]))
    read = [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
    assert sorted([(row["key"].decode(), row["value"]) for row in read], key=lambda row: int(row[1])) == sent


def test_a_message_has_the_columns_of_kafkas_source(load: Load, channel: shardmq.Channel, stream: str) -> None:
    began = int(time.time() * 1000)
    with channel.publisher() as publisher:
        publisher.publish("", stream, b"plain")
        publisher.publish("", stream, b"rich", shardmq.Properties(headers={"s": "text", "b": b"\x00\xff", "n": 7}))
    df = load(stream, includeHeaders="true")
    assert df.schema == WITH_HEADERS
    assert load(stream).schema == TOPIC_SCHEMA
    plain, rich = df.collect()
    assert (plain.value, bytes(rich.value)) == (b"plain", b"rich")
    assert [(row.topic, row.partition, row.offset, row.timestampType) for row in (plain, rich)] == [
        (stream, 0, 0, 1),
        (stream, 0, 1, 1),
    ]
    assert bytes(plain.key) == stream.encode()  # published by the queue's name
    assert plain.headers is None
    assert [(header.key, bytes(header.value)) for header in rich.headers] == [
        ("s", b"text"),
        ("b", b"\x00\xff"),
        ("n", b"7"),
    ]
    assert abs(plain.timestamp.timestamp() * 1000 - began) < 3_600_000


def test_an_empty_routing_key_is_no_key(load: Load, channel: shardmq.Channel, stream: str) -> None:
    channel.exchange_declare("keyless", "fanout")
    channel.queue_bind(stream, "keyless")
    with channel.publisher() as publisher:
        publisher.publish("keyless", "", b"1")
        publisher.publish("keyless", "k", b"2")
    assert [row.key and bytes(row.key) for row in load(stream).orderBy("offset").collect()] == [None, b"k"]
    channel.exchange_delete("keyless")


def test_a_schema_of_the_user_s_own_may_name_the_columns_of_queues(
    load: Load, channel: shardmq.Channel, stream: str
) -> None:
    publish(channel, stream, 7, 8, app_id="a", headers={"n": 1})
    schema = "value binary, routing_key string, headers map<string,string>, properties struct<app_id:string>"
    [row] = load(stream, schema).collect()
    assert row.asDict(recursive=True) == {
        "value": b"7",
        "routing_key": stream,
        "headers": {"n": "1"},
        "properties": {"app_id": "a"},
    }
    with pytest.raises(PySparkException) as error:
        load(stream, "colour string").collect()
    assert "a topic's messages have no column colour string; there are key binary, value binary" in refused(error)


def test_several_topics_are_one_dataframe(load: Load, channel: shardmq.Channel, stream: str) -> None:
    channel.queue_declare("another", durable=True, arguments={"x-queue-type": "stream"})
    publish(channel, stream, 0, 10)
    publish(channel, "another", 10, 15)
    df = load(f"{stream}, another")
    assert {row.topic: row["count"] for row in df.groupBy("topic").count().collect()} == {stream: 10, "another": 5}
    assert bodies(df) == list(range(15))
    channel.queue_delete("another")


def test_reading_changes_nothing_and_two_actions_read_the_same(
    load: Load, channel: shardmq.Channel, stream: str
) -> None:
    publish(channel, stream, 0, 100)
    df = load(stream)
    assert df.count() == 100
    publish(channel, stream, 100, 150)
    assert df.count() == 100  # planned before
    assert bodies(load(stream)) == list(range(150))


def test_an_empty_topic_has_no_rows(broker: Broker, stream: str) -> None:
    assert numbers(reader(broker, stream)) == []


@pytest.mark.parametrize("pieces", [1, 7, 30])
def test_the_tasks_together_read_every_message_once(
    broker: Broker, channel: shardmq.Channel, stream: str, pieces: int
) -> None:
    publish(channel, stream, 0, 25_000)
    made = reader(broker, stream, minPartitions=str(pieces))
    assert len(made.partitions()) == pieces
    assert numbers(made) == list(range(25_000))


def test_a_job_reads_from_offset_to_offset_and_from_time_to_time(
    broker: Broker, channel: shardmq.Channel, stream: str
) -> None:
    publish(channel, stream, 0, 100)
    time.sleep(0.01)
    between = int(time.time() * 1000)
    time.sleep(0.01)
    publish(channel, stream, 100, 200)
    given = {"startingOffsets": {stream: {"0": 50}}, "endingOffsets": {stream: {"0": 60}}}
    assert numbers(reader(broker, stream, **given)) == list(range(50, 60))
    assert numbers(reader(broker, stream, startingTimestamp=str(between))) == list(range(100, 200))
    assert numbers(reader(broker, stream, endingTimestamp=str(between))) == list(range(100))
    with pytest.raises(InvalidRequest, match="has no message of time"):
        reader(broker, stream, startingTimestamp=str(between + 3_600_000)).partitions()
    with pytest.raises(InvalidRequest, match="is to be read from 60 to 50, which is before it"):
        reader(broker, stream, startingOffsets={stream: {"0": 60}}, endingOffsets={stream: {"0": 50}}).partitions()


def test_what_does_not_exist_is_named(broker: Broker, channel: shardmq.Channel, stream: str) -> None:
    with pytest.raises(NotFound, match="'nowhere'"):
        reader(broker, "nowhere").partitions()
    with pytest.raises(NotFound, match=f"topic '{stream}' has 1 partitions, numbered from 0; there is no partition 3"):
        TopicReader(parse({"url": broker.url, "assign": json.dumps({stream: [0, 3]})}, "topic"), VALUES).partitions()
    channel.queue_declare("classic")
    with pytest.raises(PreconditionFailed, match="'classic'"):
        reader(broker, "classic").partitions()
    channel.queue_delete("classic")


@pytest.fixture
def trimmed(channel: shardmq.Channel, stream: str) -> Iterator[str]:
    """A stream whose oldest messages are dropped: its first offset is above 0, and there are 4,000."""
    name = f"{stream}-trimmed"
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 1_500_000}
    channel.queue_declare(name, durable=True, arguments=arguments)
    with channel.publisher() as publisher:
        for place in range(4):
            publisher.publish_many("", name, [b"%d" % number + b" " * 1000 for number in _thousand(place)])
    yield name
    channel.queue_delete(name)


def _thousand(place: int) -> range:
    return range(place * 1000, place * 1000 + 1000)


def test_messages_that_retention_dropped_fail_a_job_that_was_to_read_them(broker: Broker, trimmed: str) -> None:
    first = reader(broker, trimmed).partitions()[0].first
    assert 0 < first < 4000
    lost = rf"topic '{trimmed}', partition 0: messages \[0, {first}\) cannot be read.*offset {first}; retention dropped"
    with pytest.raises(PreconditionFailed, match=lost):
        reader(broker, trimmed, startingOffsets={trimmed: {"0": 0}}).partitions()
    # As when they are dropped between the job's planning and its task.
    with pytest.raises(PreconditionFailed, match=lost):
        list(reader(broker, trimmed).read(TopicRange(trimmed, 0, 0, 4000)))


def test_messages_that_retention_dropped_are_left_out_where_that_is_allowed(broker: Broker, trimmed: str) -> None:
    first = reader(broker, trimmed).partitions()[0].first
    lenient = reader(broker, trimmed, failOnDataLoss="false", startingOffsets={trimmed: {"0": 0}})
    assert numbers(lenient) == list(range(first, 4000))
    task = lenient.read(TopicRange(trimmed, 0, 0, 4000))
    assert sum(batch.num_rows for batch in task) == 4000 - first
    assert list(lenient.read(TopicRange(trimmed, 0, 0, first))) == []


def test_offsets_beyond_the_end_are_no_end_of_the_range(broker: Broker, channel: shardmq.Channel, stream: str) -> None:
    publish(channel, stream, 0, 10)
    with pytest.raises(
        PreconditionFailed, match=r"messages \[10, 15\) cannot be read: the partition ends at 10: it was"
    ):
        list(reader(broker, stream).read(TopicRange(stream, 0, 5, 15)))
    assert len(list(reader(broker, stream, failOnDataLoss="false").read(TopicRange(stream, 0, 5, 15)))) == 1


@pytest.fixture
def repaired(tmp_path: Path) -> Iterator[Broker]:
    """A broker with a stream of 50 messages of which a repair has lost [10, 20) and [30, 40)."""
    with Broker(tmp_path / "data", shards=1) as broker, shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("hurt", durable=True, arguments={"x-queue-type": "stream"})
        for first in range(0, 50, 10):
            publish(channel, "hurt", first, first + 10, correlation_id="so it was" if first // 10 % 2 else None)
    store = tmp_path / "data" / "shard-0" / "data.mdb"
    content = store.read_bytes()
    assert b"so it was" in content
    store.write_bytes(content.replace(b"so it was", b"so it is."))
    repair = command("store", "repair", str(tmp_path / "data"), "--apply", "--yes")
    subprocess.run(repair, env=environment(), check=True, capture_output=True)
    with Broker(tmp_path / "data", shards=1) as broker:
        yield broker


def test_messages_that_a_repair_has_lost_fail_a_job_or_are_left_out(repaired: Broker) -> None:
    said = r"'hurt', partition 0: messages \[10, 20\) cannot be read: they were damaged, and a repair has lost them"
    with pytest.raises(PreconditionFailed, match=said):
        numbers(reader(repaired, "hurt", startingOffsets={"hurt": {"0": 0}}))
    lenient = reader(repaired, "hurt", failOnDataLoss="false", startingOffsets={"hurt": {"0": 0}})
    assert numbers(lenient) == [*range(10), *range(20, 30), *range(40, 50)]
    for first, end, left in ((5, 15, [*range(5, 10)]), (12, 18, []), (15, 35, [*range(20, 30)]), (35, 42, [40, 41])):
        batches = list(lenient.read(TopicRange("hurt", 0, first, end)))
        assert [int(value) for batch in batches for value in batch.column("value").to_pylist()] == left


def test_who_may_not_read_is_refused(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, stream: str
) -> None:
    publish(channel, stream, 0, 1)
    connection.user_put("writer", "secret")
    connection.permission_put("writer", "/", ".*", ".*", "^$")
    url = broker.url.replace("guest:guest", "writer:secret")
    made = TopicReader(parse({"url": url, "subscribe": stream}, "topic"), VALUES)
    with pytest.raises(AccessRefused, match=f"'{stream}'"):
        made.partitions()
    connection.user_delete("writer")
