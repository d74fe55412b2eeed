"""DataFrames published: every column, every option, and what is said when it cannot be done."""

import json
import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest
from shardmq.spark.options import Options
from shardmq.spark.write.rows import check_columns
from shardmq.spark.write.writer import BatchWriter, Staged
from tests.spark.write.published import refused, take, transactions, write


def failing(frame: DataFrame) -> DataFrame:
    """The same rows, and then the task fails."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("this task fails after all of its rows")

    return frame.mapInArrow(fail, frame.schema)


def test_a_text_is_published_to_a_queue(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    write(spark.sql("select 'Zürich' as value"), broker, routing_key=queue)
    [message] = take(channel, queue)
    assert (message.body, message.exchange, message.routing_key) == ("Zürich".encode(), "", queue)
    assert message.properties == shardmq.Properties()


def test_every_column_and_property_arrives(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    channel.queue_bind(queue, "amq.topic", "flights.#")
    frame = spark.sql(f"""
        select cast('body' as binary) as value, 'amq.topic' as exchange, 'flights.UA' as routing_key,
            'text/csv' as content_type, 'gzip' as content_encoding, map('origin', 'EWR', 'gate', null) as headers,
            2 as delivery_mode, 7 as priority, 'c1' as correlation_id, 'answers' as reply_to,
            '3600000' as expiration, 'm1' as message_id, timestamp '2026-11-20 12:00:00' as timestamp,
            'flight' as type, 'guest' as user_id, 'etl' as app_id, cast(0 as bigint) as delay_ms
        union all select cast('plain' as binary), '', '{queue}', {", ".join(["null"] * 14)}
    """)
    write(frame, broker)
    rich, plain = sorted(take(channel, queue), key=lambda message: message.body)
    moment = spark.sql("select unix_timestamp(timestamp '2026-11-20 12:00:00')").head()
    assert moment is not None
    assert rich.properties == shardmq.Properties(
        content_type="text/csv",
        content_encoding="gzip",
        headers={"origin": "EWR", "gate": None},
        delivery_mode=2,
        priority=7,
        correlation_id="c1",
        reply_to="answers",
        expiration="3600000",
        message_id="m1",
        timestamp=moment[0],
        type="flight",
        user_id="guest",
        app_id="etl",
    )
    assert (rich.body, rich.routing_key) == (b"body", "flights.UA")
    assert (plain.body, plain.properties) == (b"plain", shardmq.Properties())


def test_options_are_defaults_of_rows_without(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    frame = spark.sql(f"select 'a' as value, null as routing_key, 'x' as type union all select 'b', '{queue}', null")
    headers = json.dumps({"source": "spark", "retries": 3})
    write(
        frame.selectExpr("value", "cast(routing_key as string) as routing_key", "type"),
        broker,
        routing_key=queue,
        type="y",
        headers=headers,
        content_type="text/plain",
    )
    seen = {message.body: message.properties for message in take(channel, queue)}
    common = {"content_type": "text/plain", "headers": {"source": "spark", "retries": 3}}
    assert seen == {
        b"a": shardmq.Properties(type="x", **common),  # type: ignore[arg-type]
        b"b": shardmq.Properties(type="y", **common),  # type: ignore[arg-type]
    }


def test_headers_are_taken_as_kafkas_sink_has_them(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    frame = spark.sql("select 'a' as value, array(named_struct('key', 'k', 'value', cast('v' as binary))) as headers")
    write(frame, broker, routing_key=queue)
    assert [message.properties.headers for message in take(channel, queue)] == [{"k": b"v"}]


def test_a_queue_that_is_read_is_published_again_as_it_was(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    properties = shardmq.Properties(content_type="text/csv", headers={"deep": {"list": [1, None]}}, delivery_mode=1)
    channel.basic_publish("", queue, b"dead", properties)
    channel.basic_publish("", queue, b"plain")
    read = spark.read.format("shardmq").option("url", broker.url).option("queue", queue).load()
    write(read.selectExpr("body as value", "routing_key", "raw_properties"), broker)
    messages = sorted(take(channel, queue), key=lambda message: message.body)
    assert [(message.body, message.properties) for message in messages] == [
        *[(b"dead", properties)] * 2,
        *[(b"plain", shardmq.Properties())] * 2,
    ]


def test_rows_wait_for_their_delay(spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str) -> None:
    write(
        spark.sql("select 'now' as value, null as delay_ms union all select 'later', 3600000"),
        broker,
        routing_key=queue,
    )
    assert [message.body for message in take(channel, queue)] == [b"now"]


def test_rows_of_a_key_keep_their_order(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    channel.queue_bind(queue, "amq.direct", "even")
    frame = spark.range(0, 12_000, 1, 1).selectExpr(
        "cast(id as string) as value", "if(id % 2 = 0, 'even', 'odd') as routing_key"
    )
    write(frame, broker, exchange="amq.direct", mandatory="false")
    assert [int(message.body) for message in take(channel, queue)] == list(range(0, 12_000, 2))


def test_rows_go_to_the_partitions_of_a_topic_by_their_keys_or_in_turns(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel
) -> None:
    channel.topic_declare("rows", 4)
    frame = spark.range(1000).selectExpr("cast(id as string) as value", "concat('key ', id % 10) as routing_key")
    write(frame, broker, exchange="rows")
    keyed = [row["messages"] for row in channel.topic_info("rows")["partitions"]]
    assert sum(keyed) == 1000
    assert all(messages % 100 == 0 for messages in keyed)  # all of a key, or none
    write(frame.drop("routing_key"), broker, exchange="rows")
    assert sum(row["messages"] for row in channel.topic_info("rows")["partitions"]) == 2000
    channel.topic_delete("rows")


@pytest.mark.parametrize("partitions", [0, 1, 5])
@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_empty_frames_and_partitions_are_published(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    queue: str,
    partitions: int,
    delivery: str,
) -> None:
    empty = spark.createDataFrame([], "value string")
    frame = spark.range(0, 3, 1, partitions).selectExpr("cast(id as string) as value") if partitions else empty
    write(frame, broker, routing_key=queue, delivery=delivery)
    assert len(take(channel, queue)) == (3 if partitions else 0)
    assert transactions(connection) == []


def test_a_job_is_not_seen_before_it_is_committed(
    spark: SparkSession, broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    frame = spark.sql("select 'a' as value")
    with pytest.raises(PySparkException, match="fails after all of its rows"):
        write(failing(frame), broker, routing_key=queue)
    assert take(channel, queue) == []
    assert transactions(connection) == [], "what has failed is aborted"


def test_at_least_once_is_seen_at_once(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    frame = spark.sql("select 'a' as value")
    with pytest.raises(PySparkException, match="fails after all of its rows"):
        write(failing(frame), broker, routing_key=queue, delivery="at-least-once")
    assert {message.body for message in take(channel, queue)} <= {b"a"}
    write(frame, broker, routing_key=queue, delivery="at-least-once")
    assert [message.body for message in take(channel, queue)] == [b"a"]


def test_a_name_that_was_committed_publishes_nothing_again_and_says_so(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    frame = spark.sql("select 'a' as value")
    for _ in range(2):
        write(frame, broker, routing_key=queue, txnId="orders-2026-11-20")
    assert [message.body for message in take(channel, queue)] == [b"a"]
    with caplog.at_level(logging.WARNING, "shardmq.spark"):
        again = BatchWriter(Options(url=broker.url, exchange="gone", transaction_id="orders-2026-11-20"), frame.schema)
    assert "'orders-2026-11-20' was committed before (option txnId): nothing is published now" in caplog.text
    staged = again.write(iter([pa.record_batch({"value": ["a"]})]))
    assert isinstance(staged, Staged)
    assert (staged.number, staged.rows) == (0, 0)
    again.commit([staged, None])


def test_aborting_what_is_committed_is_said_and_does_nothing(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = spark.sql("select 'a' as value").schema
    writer = BatchWriter(Options(url=broker.url, routing_key=queue, transaction_id="decided"), schema)
    staged = writer.write(iter([pa.record_batch({"value": ["a"]})]))
    writer.commit([staged])
    with caplog.at_level(logging.WARNING, "shardmq.spark"):
        writer.abort([staged])
    assert "transaction 'decided' is not aborted, as it was committed before" in caplog.text
    assert [message.body for message in take(channel, queue)] == [b"a"]


def test_a_task_that_comes_after_its_jobs_end_begins_nothing(
    spark: SparkSession, broker: Broker, connection: shardmq.Connection, queue: str
) -> None:
    schema = spark.sql("select 'a' as value").schema
    writer = BatchWriter(Options(url=broker.url, routing_key=queue), schema)
    writer.abort([])
    with pytest.raises(shardmq.errors.PreconditionFailed, match="ended while the job ran"):
        writer.write(iter([pa.record_batch({"value": ["a"]})]))
    assert transactions(connection) == []


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("select 'a' as value", {"exchange": "nowhere"}, ["publishing to exchange 'nowhere'", "nowhere"]),
        (
            "select 'a' as value",
            {"exchange": "amq.topic", "routing_key": "lost"},
            ["no queue takes a row", "exchange 'amq.topic' with routing key 'lost'", "mandatory=false"],
        ),
        ("select 'a' as value, 'lost' as routing_key", {}, ["the default exchange with routing key 'lost'"]),
        ("select cast(null as string) as value", {"exchange": "amq.fanout"}, ["column value is null in 1 of 1 rows"]),
        ("select 'a' as value, 300 as priority", {"exchange": "amq.fanout"}, ["column priority is not 0 to 255 in 1"]),
        ("select 'a' as value, 'x' as expiration", {"exchange": "amq.fanout"}, ["exchange 'amq.fanout'", "expiration"]),
        ("select 1 as value", {"exchange": "x"}, ["column value is int; it must be binary or string"]),
        ("select 'a' as value, 1 as id", {"exchange": "x"}, ["shardmq has no column id; there are value"]),
        ("select 'a' as value", {"exchange": "x", "topic": "y"}, ["no option 'topic' for writing; there are url"]),
        ("select 'a' as value", {}, ["nothing says where to publish to"]),
        ("select 'a' as value", {"exchange": "x", "txnId": "y", "delivery": "at-least-once"}, ["option txnId names"]),
    ],
)
def test_what_cannot_be_published_reaches_the_driver_with_target_and_cause(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    query: str,
    options: Mapping[str, str],
    said: list[str],
) -> None:
    with pytest.raises(PySparkException) as error:
        write(spark.sql(query), broker, **options)
    assert [part for part in said if part not in refused(error)] == []
    assert transactions(connection) == []


def test_a_broker_that_is_not_there_is_named(spark: SparkSession) -> None:
    frame = spark.sql("select 'a' as value").write.format("shardmq").option("url", "shardmq://127.0.0.1:1/")
    with pytest.raises(PySparkException) as error:
        frame.option("exchange", "x").option("timeoutMs", 1000).mode("append").save()
    assert "no broker answers at 127.0.0.1:1: Connection refused" in refused(error)
    assert "beginning a transaction for exchange 'x' failed" in refused(error)


def test_rows_that_no_queue_takes_may_go(spark: SparkSession, broker: Broker) -> None:
    write(spark.sql("select 'a' as value"), broker, exchange="amq.topic", routing_key="lost", mandatory="false")


def test_a_type_that_spark_spells_with_a_length_is_a_text(spark: SparkSession) -> None:
    frame = spark.sql("select cast('a' as varchar(9)) as value, cast('b' as string) collate UNICODE as routing_key")
    check_columns(frame.schema, Options(url="x"))
    with pytest.raises(InvalidRequest, match="column value is void"):
        check_columns(spark.sql("select null as value").schema, Options(url="x", exchange="e"))
