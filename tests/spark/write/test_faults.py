"""Whatever Spark does, and whoever dies: each row is in every target queue exactly once."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import TYPES
from shardmq.protocol.native.operations.transaction import TransactionCommit, TransactionSeal
from tests.spark.proxy import Fate, Judge, Proxy, passes

StartBroker = Callable[..., Broker]

PUBLISH, SEAL, COMMIT = TYPES[BasicPublish], TYPES[TransactionSeal], TYPES[TransactionCommit]
QUEUES = ["all", "even", "odd"]
ROWS = 8000
PARTITIONS = 4
BATCH_ROWS = 500


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker") / "data")
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())


@pytest.fixture
def channel(broker: Broker) -> Iterator[shardmq.Channel]:
    """With a topic exchange, and empty queues for all rows, even ones and odd ones."""
    with shardmq.connect(broker.url, timeout=60) as connection, connection.channel() as channel:
        channel.exchange_declare("rows", "topic", durable=True)
        for queue, key in zip(QUEUES, ("#", "even", "odd"), strict=True):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "rows", key)
            channel.queue_purge(queue)
        yield channel


@pytest.fixture
def proxy(broker: Broker) -> Iterator[Proxy]:
    with Proxy(broker.port) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def rows(spark: SparkSession, count: int = ROWS, partitions: int = PARTITIONS) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr(
        "cast(id as string) as value", "if(id % 2 = 0, 'even', 'odd') as routing_key"
    )


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("shardmq").option("url", url).option("exchange", "rows").options(**options).mode("append").save()


def found(channel: shardmq.Channel, queue: str) -> Counter[int]:
    """How often each row is in a queue; it is empty then."""
    count = channel.queue_declare(queue, durable=True, passive=True).messages
    seen: Counter[int] = Counter()
    if count:
        for message in channel.consume(queue, auto_ack=True, prefetch=5000, inactivity_timeout=20):
            assert message is not None, f"{queue} said it had {count} messages, {seen.total()} came"
            seen[int(message.body)] += 1
            if seen.total() == count:
                break
    return seen


def staged(channel: shardmq.Channel, broker: Broker) -> int:
    with shardmq.connect(broker.url, timeout=60) as connection:
        tables = connection.status()["processes"]
    assert channel.is_open
    return sum(row["messages"] for table in tables for row in table.get("staged", []))


def check(channel: shardmq.Channel, broker: Broker, count: int = ROWS) -> None:
    """Every row is exactly once wherever it belongs, and nothing is left behind."""
    everything = range(count)
    wanted = {
        "all": Counter(everything),
        "even": Counter(everything[::2]),
        "odd": Counter(everything[1::2]),
    }
    for queue in QUEUES:
        assert found(channel, queue) == wanted[queue], queue
    deadline = threading.Event()
    for _ in range(200):
        if not staged(channel, broker):
            return
        deadline.wait(0.1)
    raise AssertionError(f"{staged(channel, broker)} messages are still staged")


def test_a_task_that_fails_after_part_of_its_rows_is_tried_again(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel
) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 2 and context.attemptNumber() == 0 and context.partitionId() % 2:
                raise RuntimeError("this task fails after part of its rows")
            yield batch

    frame = rows(spark)
    write(frame.mapInArrow(fail_once, frame.schema), broker.url)
    check(channel, broker)


def test_a_retry_with_its_rows_in_another_order_loses_and_doubles_none(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel
) -> None:
    def reorder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.attemptNumber() == 0:
            for number, batch in enumerate(batches):
                if number == 3:
                    raise RuntimeError("this task fails after part of its rows")
                yield batch
            return
        for batch in reversed(list(batches)):
            yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))

    frame = rows(spark)
    write(frame.mapInArrow(reorder, frame.schema), broker.url)
    check(channel, broker)


def test_a_job_that_fails_for_good_leaves_nothing_and_its_name_is_free(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel
) -> None:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for number, batch in enumerate(batches):
            if number == 2 and TaskContext.get().partitionId() == PARTITIONS - 1:
                raise RuntimeError("this task always fails")
            yield batch

    frame = rows(spark)
    with pytest.raises(Exception, match="always fails"):
        write(frame.mapInArrow(fail, frame.schema), broker.url, txnId="second-try")
    assert [found(channel, queue).total() for queue in QUEUES] == [0, 0, 0]
    write(frame, broker.url, txnId="second-try")
    check(channel, broker)


def test_a_job_run_again_under_its_name_publishes_nothing_twice(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel
) -> None:
    for _ in range(2):
        write(rows(spark), broker.url, txnId="nightly-2026-11-20")
    check(channel, broker)


def losing(kind: int, fate: Fate, times: int) -> Judge:
    """A judge that does so to the first frames of a type."""
    left = [times]

    def judge(of: int) -> Fate:
        if of != kind or not left[0]:
            return Fate.PASSES
        left[0] -= 1
        return fate

    return judge


@pytest.mark.parametrize("fate", [Fate.IS_LOST, Fate.IS_NEVER_ANSWERED])
@pytest.mark.parametrize(("kind", "times"), [(PUBLISH, 3), (SEAL, 2), (COMMIT, 1)], ids=["stage", "seal", "commit"])
def test_connections_that_break_are_made_good(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, proxy: Proxy, kind: int, times: int, fate: Fate
) -> None:
    proxy.judge = losing(kind, fate, times)
    write(rows(spark), proxy.url)
    check(channel, broker)


def test_a_commit_whose_answer_is_lost_for_good_stands_and_a_rerun_adds_nothing(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, proxy: Proxy
) -> None:
    is_cut = threading.Event()

    def judge(kind: int) -> Fate:
        if is_cut.is_set():
            return Fate.IS_LOST
        if kind == COMMIT:
            is_cut.set()
            return Fate.IS_NEVER_ANSWERED
        return Fate.PASSES

    proxy.judge = judge
    with pytest.raises(Exception, match="lost-answer"):
        write(rows(spark), proxy.url, txnId="lost-answer", timeoutMs=3000)
    assert is_cut.is_set()
    proxy.judge = passes
    write(rows(spark), proxy.url, txnId="lost-answer")
    check(channel, broker)


@pytest.mark.parametrize("kind", [PUBLISH, SEAL, COMMIT], ids=["stage", "seal", "commit"])
@pytest.mark.parametrize("victim", ["shard-1", "gateway-0", "coordinator"])
def test_a_process_that_is_killed_loses_and_doubles_none(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, proxy: Proxy, victim: str, kind: int
) -> None:
    seen = [0]

    def judge(of: int) -> Fate:
        seen[0] += of == kind
        if of == kind and seen[0] == (5 if kind == PUBLISH else 1):
            broker.kill(victim)
        return Fate.PASSES

    proxy.judge = judge
    write(rows(spark), proxy.url)
    assert seen[0]
    check(channel, broker)


def test_a_stream_that_is_restarted_from_its_checkpoint_publishes_each_batch_once(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, proxy: Proxy, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for part in range(4):
        first = part * 1000
        frame = spark.range(first, first + 1000, 1, 1)
        frame.selectExpr("cast(id as string) as value", "if(id % 2 = 0, 'even', 'odd') as routing_key").write.mode(
            "append"
        ).parquet(str(source))
    stream = spark.readStream.schema("value string, routing_key string").option("maxFilesPerTrigger", 1)

    def run() -> StreamingQuery:
        query = (
            stream.parquet(str(source))
            .writeStream.format("shardmq")
            .option("url", proxy.url)
            .option("exchange", "rows")
            .option("timeoutMs", 2000)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return query

    commits = [0]
    is_cut = threading.Event()

    def judge(kind: int) -> Fate:
        commits[0] += kind == COMMIT
        if is_cut.is_set():
            return Fate.IS_LOST
        if kind == COMMIT and commits[0] == 2:
            is_cut.set()
            return Fate.IS_NEVER_ANSWERED
        return Fate.PASSES

    proxy.judge = judge
    with pytest.raises(Exception, match="shardmq"):
        run()
    assert is_cut.is_set()
    proxy.judge = passes
    assert run().exception() is None
    check(channel, broker, 4000)
