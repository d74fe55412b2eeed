"""What is drained is acknowledged when the block is done, and back at its place when it raised."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AlreadyAcknowledged, InvalidRequest, NotFound, PreconditionFailed
from shardmq.spark import acknowledge, drain, release
from shardmq.spark.read.drain import RENEWALS, position_ranges
from tests.spark.queues import Load, loader, numbers, publish, reader, ready, until

Drain = Callable[..., Any]


def bodies(df: DataFrame) -> list[int]:
    """What a DataFrame has, in order."""
    return sorted(int(row.body) for row in df.select("body").collect())


def marked(first: int, end: int) -> list[tuple[bytes, bool]]:
    """These messages in a queue, all of them as delivered before."""
    return [(b"%d" % number, True) for number in range(first, end)]


@pytest.fixture
def load(spark: SparkSession, broker: Broker) -> Load:
    """Reads a queue of the file's broker."""
    return loader(spark, broker)


@pytest.fixture
def begin(spark: SparkSession, broker: Broker, queue: str) -> Drain:
    """Drains the test's queue."""
    return lambda **options: drain(spark, url=broker.url, queue=queue, **options)


def test_what_was_read_is_acknowledged_when_the_block_ends(begin: Drain, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 1000)
    with begin() as df:
        assert bodies(df) == list(range(1000))
        assert ready(channel, queue) == []
        publish(channel, queue, 1000, 1010)
        assert bodies(df) == list(range(1000))
    assert ready(channel, queue) == [(b"%d" % number, False) for number in range(1000, 1010)]


def test_a_block_that_raises_leaves_the_queue_as_it_was(begin: Drain, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 100)
    with pytest.raises(ZeroDivisionError), begin() as df:
        assert 1 / (df.count() - 100)
    publish(channel, queue, 100, 101)
    assert ready(channel, queue) == [*marked(0, 100), (b"100", False)]


def test_a_job_that_fails_leaves_the_queue_as_it_was(begin: Drain, channel: shardmq.Channel, queue: str) -> None:
    def fail(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError("this job does not work")

    publish(channel, queue, 0, 100)
    with pytest.raises(PySparkException, match="this job does not work"), begin(schema="body binary") as df:
        df.mapInArrow(fail, "body binary").collect()
    assert ready(channel, queue) == marked(0, 100)


def test_tasks_that_are_tried_again_read_the_same(begin: Drain, channel: shardmq.Channel, queue: str) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise ValueError("this attempt does not work")

    publish(channel, queue, 0, 25_000)
    with begin(schema="body binary", minPartitions=2) as df:
        assert bodies(df.mapInArrow(fail_once, "body binary")) == list(range(25_000))
    assert ready(channel, queue) == []


def test_an_empty_queue_is_drained_at_once(begin: Drain) -> None:
    with begin() as df:
        assert df.count() == 0


def test_only_as_many_as_asked_are_drained(begin: Drain, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 100)
    with begin(maxRecords=30, minPartitions=4, schema="position long, body binary") as df:
        assert bodies(df) == list(range(30))
        assert df.rdd.getNumPartitions() == 4
    assert ready(channel, queue) == [(b"%d" % number, False) for number in range(30, 100)]


def test_what_a_block_has_not_read_goes_back(begin: Drain, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 10)
    unread = "10 messages were reserved, and nothing .* has read them"
    with pytest.raises(PreconditionFailed, match=unread), begin() as df:
        df.select("body")
    assert ready(channel, queue) == marked(0, 10)


def test_behind_the_block_there_is_nothing_to_read(
    spark: SparkSession, begin: Drain, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 10)
    with begin() as df:
        assert spark.range(3).coalesce(1).count() == 3  # a job, but not of these messages
    with pytest.raises(PySparkException, match=f"queue '{queue}': .* inside the block"):
        bodies(df)
    assert ready(channel, queue) == []


def test_a_second_run_reads_what_the_first_did_until_it_is_acknowledged(
    load: Load, begin: Drain, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 10)
    options = {"drain": "true", "drainId": "nightly"}
    assert bodies(load(queue, **options)) == list(range(10))
    publish(channel, queue, 10, 20)
    assert bodies(load(queue, **options)) == list(range(10))
    with begin(drainId="nightly") as df:
        assert bodies(df) == list(range(10))
    with pytest.raises(AlreadyAcknowledged, match=f"queue '{queue}': .* 'nightly' were acknowledged by an earlier run"):
        begin(drainId="nightly").__enter__()
    assert acknowledge(broker.url, queue, "nightly") == 0
    assert [body for body, _ in ready(channel, queue)] == [b"%d" % number for number in range(10, 20)]


def test_a_run_behind_the_acknowledgement_leaves_what_the_first_one_wrote(
    load: Load, begin: Drain, channel: shardmq.Channel, queue: str, tmp_path: Path, spark: SparkSession
) -> None:
    archive = str(tmp_path / "archive")
    publish(channel, queue, 0, 10)
    with begin(drainId="nightly") as df:
        df.write.parquet(archive)
    publish(channel, queue, 10, 20)
    with pytest.raises(AlreadyAcknowledged, match="give another drainId"), begin(drainId="nightly") as df:
        df.write.mode("overwrite").parquet(archive)
    with pytest.raises(PySparkException, match=f"AlreadyAcknowledged: .*queue '{queue}': .* another drainId"):
        load(queue, drain="true", drainId="nightly").write.mode("overwrite").parquet(archive)
    assert bodies(spark.read.parquet(archive)) == list(range(10))
    assert [body for body, _ in ready(channel, queue)] == [b"%d" % number for number in range(10, 20)]


def test_a_part_is_acknowledged_and_the_rest_goes_back(
    load: Load, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 1000)
    df = load(queue, drain="true", drainId="some")
    odd = [row.position for row in df.collect() if int(row.body) % 2]
    assert acknowledge(broker.url, queue, "some", []) == 0
    assert acknowledge(broker.url, queue, "some", position_ranges(odd)) == 500
    assert acknowledge(broker.url, queue, "some", position_ranges(odd)) == 0
    assert release(broker.url, queue, "some") == 500
    assert release(broker.url, queue, "some") == 0
    assert ready(channel, queue) == [(b"%d" % number, True) for number in range(0, 1000, 2)]


def test_more_ranges_than_one_request_takes_are_acknowledged(
    load: Load, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 30_000)
    positions = [row.position for row in load(queue, "position long", drain="true", drainId="many").collect()]
    assert acknowledge(broker.url, queue, "many", position_ranges(sorted(positions)[::2])) == 15_000
    assert release(broker.url, queue, "many") == 15_000


def test_positions_are_joined_to_ranges() -> None:
    assert position_ranges([]) == []
    assert position_ranges([5, 1, 2, 3, 3, 9, 6]) == [(1, 4), (5, 7), (9, 10)]


def test_acknowledging_what_is_not_reserved_is_refused(broker: Broker, queue: str) -> None:
    with pytest.raises(NotFound, match=f"'{queue}'.*'nothing'") as caught:
        acknowledge(broker.url, queue, "nothing")
    assert "reserve" in caught.value.text


def test_drain_without_a_name_says_how_it_is_done(load: Load, queue: str) -> None:
    with pytest.raises(PySparkException, match=r"drainId.*shardmq\.spark\.drain"):
        load(queue, drain="true").collect()


def test_options_that_there_are_not_are_refused_before_anything_is_reserved(begin: Drain) -> None:
    with pytest.raises(InvalidRequest, match="no option 'drain_id' for reading"), begin(drain_id="x"):
        pass


def test_a_queue_that_there_is_not_is_named(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(NotFound, match="'nowhere'"), drain(spark, url=broker.url, queue="nowhere"):
        pass


def test_a_reservation_that_was_released_in_the_block_is_not_acknowledged(
    begin: Drain, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 10)
    gone = f"queue '{queue}': reservation 'gone' does not exist any more"
    with pytest.raises(PreconditionFailed, match=gone), begin(drainId="gone") as df:
        release(broker.url, queue, f"gone{df.where('position < 0').count() or ''}")
    assert ready(channel, queue) == marked(0, 10)


@pytest.mark.parametrize(
    ("end", "why"),
    [(release, "it was released"), (acknowledge, "was acknowledged: its messages are done with")],
    ids=["released", "acknowledged"],
)
def test_a_task_that_finds_nothing_left_fails(
    broker: Broker, channel: shardmq.Channel, queue: str, end: Callable[..., int], why: str
) -> None:
    publish(channel, queue, 0, 25_000)
    made = reader(broker, queue, drain="true", drainId="short", minPartitions=1)
    [part] = made.partitions()
    batches = made.read(part)
    next(batches)
    end(broker.url, queue, "short")
    with pytest.raises(PreconditionFailed, match=rf"of 25000 messages .* 'short'.* read 10000: .*{why}"):
        list(batches)


def test_a_task_that_finds_less_than_was_reserved_fails(broker: Broker, channel: shardmq.Channel, queue: str) -> None:
    publish(channel, queue, 0, 100)
    made = reader(broker, queue, drain="true", drainId="less", minPartitions=4)
    parts = made.partitions()
    last: Any = parts[-1]
    assert acknowledge(broker.url, queue, "less", [(last.end - 5, last.end)]) == 5
    assert [number for part in parts[:3] for number in numbers(made, part)] == list(range(75))
    with pytest.raises(PreconditionFailed, match=r"of 25 messages .* could read 20: others were acknowledged"):
        numbers(made, last)


def test_a_failed_task_s_error_reaches_the_driver(
    load: Load, broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    publish(channel, queue, 0, 10)
    df = load(queue, drain="true", drainId="lost")
    assert df.count() == 10
    release(broker.url, queue, "lost")
    with pytest.raises(PySparkException, match=f"queue '{queue}': of .* 'lost'.*it was released"):
        df.count()


def test_a_reservation_lasts_as_long_as_the_block(
    begin: Drain, channel: shardmq.Channel, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(channel, queue, 0, 10)
    with caplog.at_level(logging.DEBUG, "shardmq.spark"), begin(drainTimeoutMs=9000, drainId="long") as df:
        until(lambda: caplog.text.count("'long' is renewed") > RENEWALS, "renewals")
        assert bodies(df) == list(range(10))
        assert ready(channel, queue) == []
    assert ready(channel, queue) == []
