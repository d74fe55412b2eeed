"""A queue read as a DataFrame is the queue as it was when the job was planned, and is left as it is."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, ConnectionLost, NotFound
from shardmq.spark.read.columns import READ_SCHEMA
from shardmq.spark.read.reader import BATCH_ROWS, Slice, _first, _of_size
from tests.spark.queues import Load, counts, loader, numbers, publish, reader, ready, until


@pytest.fixture
def load(spark: SparkSession, broker: Broker) -> Load:
    """Reads a queue of the file's broker."""
    return loader(spark, broker)


def test_every_message_is_there_once_with_all_columns(load: Load, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 30_000)
    publish(channel, queue, 30_000, 30_001, content_type="text/csv", headers={"n": 1}, message_id="mine", priority=3)
    began = datetime.now(UTC)
    df = load(queue)
    assert df.schema == READ_SCHEMA
    rows = sorted(df.collect(), key=lambda row: row.position)
    assert [int(row.body) for row in rows] == list(range(30_001))
    assert [row.position for row in rows] == list(range(rows[0].position, rows[0].position + 30_001))
    assert len({row.message_id for row in rows}) == 30_001
    last = rows[-1]
    assert (last.message_id, last.headers, last.properties.content_type, last.properties.priority) == (
        "mine",
        {"n": "1"},
        "text/csv",
        3,
    )
    assert {(row.exchange, row.routing_key, row.redelivered, row.deliveries, row.persistent) for row in rows} == {
        ("", queue, False, 0, True)
    }
    assert {(row.properties, row.headers, row.raw_properties) for row in rows[:-1]} == {(None, None, None)}
    # Spark hands out local times without a zone.
    assert all(abs((row.timestamp.astimezone(UTC) - began).total_seconds()) < 3600 for row in rows)


def test_reading_leaves_the_queue_as_it_is(load: Load, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 100)
    assert load(queue).count() == 100
    assert load(queue).count() == 100
    assert ready(channel, queue) == [(b"%d" % number, False) for number in range(100)]


def test_an_empty_queue_has_no_rows(load: Load, queue: str) -> None:
    assert load(queue).collect() == []


@pytest.mark.parametrize("schema", ["body binary", "position bigint, body binary", "properties struct<app_id:string>"])
def test_a_schema_of_the_user_s_own_is_kept(load: Load, channel: shardmq.Channel, queue: str, schema: str) -> None:
    publish(channel, queue, 7, 8, app_id="a")
    df = load(queue, schema)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in df.schema] == schema.split(", ")
    [row] = df.collect()
    expected = {"body": b"7", "position": row.asDict().get("position"), "properties": {"app_id": "a"}}
    assert row.asDict(recursive=True) == {name: expected[name] for name in df.columns}


def test_a_queue_can_be_a_view(spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 10)
    spark.sql(f"CREATE TEMPORARY VIEW messages USING shardmq OPTIONS (url '{broker.url}', queue '{queue}')")
    try:
        [row] = spark.sql("SELECT sum(cast(cast(body AS string) AS int)) AS total FROM messages").collect()
        assert row.total == 45
    finally:
        spark.catalog.dropTempView("messages")


def test_deaths_can_be_queried(
    load: Load, connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    channel.queue_declare(
        "jobs", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    )
    publish(channel, "jobs", 0, 5, headers={"source": "test"})
    for _ in range(5):
        message = channel.basic_get("jobs")
        assert message is not None
        message.nack(requeue=False)
    until(lambda: counts(connection, queue).get("ready") == 5, "dead letters")
    rows = load(queue, "headers map<string,string>, routing_key string").collect()
    assert {(row.routing_key, row.headers["source"], row.headers["x-first-death-queue"]) for row in rows} == {
        (queue, "test", "jobs")
    }
    [death] = json.loads(rows[0].headers["x-death"])
    assert (death["queue"], death["reason"], death["count"]) == ("jobs", "rejected", 1)
    channel.queue_delete("jobs")


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({}, [125] * 8),
        ({"minPartitions": 3}, [333, 333, 334]),
        ({"minPartitions": 1}, [1000]),
        ({"minPartitions": 1, "maxRecordsPerPartition": 300}, [300, 300, 300, 100]),
        ({"minPartitions": 20, "maxRecordsPerPartition": 300}, [50] * 20),
        ({"minPartitions": 4, "maxRecords": 10}, [3, 3, 3, 1]),
        ({"minPartitions": 1, "maxRecords": 999}, [999]),
        ({"minPartitions": 1, "maxRecords": 5000}, [1000]),
        ({"minPartitions": 1, "maxRecords": 500, "maxRecordsPerPartition": 400}, [400, 100]),
    ],
    ids=str,
)
def test_messages_are_cut_into_partitions_as_asked(
    broker: Broker, channel: shardmq.Channel, queue: str, options: dict[str, int], sizes: list[int]
) -> None:
    publish(channel, queue, 0, 1000)
    made = reader(broker, queue, **options)
    parts = made.partitions()
    assert [len(numbers(made, part)) for part in parts] == sizes
    assert [number for part in parts for number in numbers(made, part)] == list(range(sum(sizes)))


def test_a_queue_with_gaps_is_cut_as_well(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 10_000)
    for message in [channel.basic_get(queue) for _ in range(500)]:
        assert message is not None
        if int(message.body) % 2:
            message.ack()
        else:
            message.nack()
    until(lambda: counts(connection, queue).get("ready") == 9750, "acks")
    made = reader(broker, queue, minPartitions=2, maxRecordsPerPartition=1000)
    parts = made.partitions()
    read = [numbers(made, part) for part in parts]
    assert [len(part) for part in read] == [part.messages for part in parts]  # type: ignore[attr-defined]
    assert max(map(len, read)) <= 1000
    assert [number for part in read for number in part] == [*range(0, 500, 2), *range(500, 10_000)]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50), st.integers(0, 9)), max_size=20),
    st.integers(1, 100),
    st.integers(1, 200),
)
def test_slices_are_joined_and_cut_without_losing_any(parts: list[tuple[int, int, int]], limit: int, most: int) -> None:
    slices, place = [], 0
    for gap, messages, inside in parts:
        slices.append(Slice(place + gap, place + gap + messages + inside, messages))
        place = slices[-1].end
    total = sum(part.messages for part in slices)
    made = _of_size(slices, limit)
    assert sum(part.messages for part in made) == total
    assert all(part.messages <= limit or part in slices for part in made)
    assert all(left.end <= right.first for left, right in pairwise(made))
    assert [part.first for part in made[:1]] + [part.end for part in made[-1:]] == [
        part.first for part in slices[:1]
    ] + [part.end for part in slices[-1:]]
    assert sum(part.messages for part in _of_size(_first(slices, most), limit)) == min(total, most)


def test_spark_has_a_partition_for_each_slice(load: Load, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 1000)
    assert load(queue, minPartitions=5).rdd.getNumPartitions() == 5
    assert load(queue, maxRecords=7).count() == 7


def test_what_came_later_is_not_read_and_what_is_gone_is_missing(
    load: Load, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 100)
    df = load(queue, "body binary")
    assert df.count() == 100
    publish(channel, queue, 100, 200)
    for _ in range(10):
        channel.basic_get(queue, auto_ack=True)
    assert sorted(int(row.body) for row in df.collect()) == list(range(10, 100))
    assert load(queue).count() == 190


def test_what_consumers_hold_is_not_read(load: Load, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 10)
    held = channel.basic_get(queue)
    assert held is not None
    assert sorted(int(row.body) for row in load(queue).collect()) == list(range(1, 10))
    held.nack()


def test_large_messages_come_in_batches_that_are_not(broker: Broker, channel: shardmq.Channel, queue: str) -> None:
    bodies = [bytes([number]) * (3 << 20) for number in range(10)]
    for body in bodies:
        channel.basic_publish("", queue, body)
    made = reader(broker, queue, minPartitions=1)
    [part] = made.partitions()
    batches = list(made.read(part))
    assert [body for batch in batches for body in batch.column("body").to_pylist()] == bodies
    assert len(batches) > 1


def test_messages_of_all_priorities_are_read(broker: Broker, channel: shardmq.Channel) -> None:
    channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 5})
    for priority in range(6):
        publish(channel, "ranked", priority * 100, priority * 100 + 100, priority=priority)
    made = reader(broker, "ranked", minPartitions=4)
    parts = made.partitions()
    for priority in range(6):  # which comes behind all others of its priority, and is not read
        publish(channel, "ranked", 1000, 1010, priority=priority)
    assert sorted(number for part in parts for number in numbers(made, part)) == list(range(600))
    channel.queue_delete("ranked")


def test_a_queue_that_there_is_not_is_named(load: Load) -> None:
    with pytest.raises(PySparkException, match=r"NOT_FOUND - .*'nowhere'"):
        load("nowhere").collect()


def test_a_queue_that_may_not_be_read_is_named(broker: Broker, connection: shardmq.Connection, queue: str) -> None:
    connection.user_put("stranger", password="s")
    connection.permission_put("stranger", "/", configure="", write="", read="^$")
    with pytest.raises(AccessRefused, match=f"'{queue}'"):
        reader(broker, queue, url=broker.url.replace("guest:guest", "stranger:s")).partitions()
    connection.user_delete("stranger")


@pytest.mark.parametrize(
    ("options", "schema", "text"),
    [
        ({"offset": "1"}, None, "no option 'offset' for reading; there are url, "),
        ({"minPartitions": "few"}, None, "minPartitions is 'few'"),
        ({}, "payload binary", "no column payload binary; there are body binary"),
    ],
)
def test_what_makes_no_sense_is_said_in_the_driver(
    load: Load, queue: str, options: dict[str, str], schema: str | None, text: str
) -> None:
    with pytest.raises(PySparkException, match=text):
        load(queue, schema, **options).collect()


def test_a_queue_that_is_deleted_meanwhile_is_named(broker: Broker, channel: shardmq.Channel) -> None:
    channel.queue_declare("short", durable=True)
    publish(channel, "short", 0, 10)
    made = reader(broker, "short", minPartitions=1)
    [part] = made.partitions()
    channel.queue_delete("short")
    with pytest.raises(NotFound, match="'short'"):
        numbers(made, part)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose processes may be killed, with 50,000 messages in the queue q."""
    broker = Broker(tmp_path_factory.mktemp("mortal") / "data", shards=1)
    try:
        broker.start()
        with shardmq.connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare("q", durable=True)
            publish(channel, "q", 0, 5 * BATCH_ROWS)
        yield broker
    finally:
        broker.close()
        print(broker.last_words())


@pytest.mark.parametrize("process", ["gateway-0", "shard-0"])
def test_reading_goes_on_where_it_was_when_a_process_has_died(mortal: Broker, process: str) -> None:
    made = reader(mortal, "q", minPartitions=2)
    read = []
    for part in made.partitions():
        batches = made.read(part)
        read += next(batches).column("body").to_pylist()
        mortal.kill(process)
        read += [body for batch in batches for body in batch.column("body").to_pylist()]
    assert [int(body) for body in read] == list(range(5 * BATCH_ROWS))


def test_a_broker_that_does_not_come_back_is_named(mortal: Broker) -> None:
    made = reader(mortal, "q", minPartitions=1, timeoutMs=1000)
    [part] = made.partitions()
    batches = made.read(part)
    next(batches)
    mortal.stop()
    with pytest.raises(ConnectionLost, match="queue 'q'"):
        list(batches)
    mortal.start()


def test_spark_s_stand_in_for_no_partitions_has_no_messages(broker: Broker, queue: str) -> None:
    made = reader(broker, queue)
    assert made.partitions() == []
    assert list(made.read(InputPartition(None))) == []
