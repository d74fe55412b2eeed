"""Queues to Parquet: copies, drains that break off anywhere, and queues without messages."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, ShardmqError
from shardmq.spark.connection.protocol import Op
from shardmq.spark.jobs import export_folder as landing
from shardmq.spark.jobs.export import write
from shardmq.spark.jobs.export_folder import Folder
from shardmq.spark.jobs.options import By
from tests.spark.jobs.messages import Told, bodies
from tests.spark.proxy import Fate, Proxy


@pytest.mark.parametrize("crash", ["nowhere", "before it is written", "before it is moved", "half-way", "at the end"])
def test_a_drained_queue_is_in_its_archive_once_wherever_an_export_breaks_off(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path, told: Told, crash: str
) -> None:
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"%d" % number for number in range(100)])
    to = str(tmp_path / "archive")
    if crash != "nowhere":
        _break_off(spark, broker, queue, Folder(spark, to), crash, channel)
        with channel.publisher() as publisher:
            publisher.publish_many("", queue, [b"%d" % number for number in range(100, 120)])
    summary = shardmq.spark.export(spark, queue, to, url=broker.url, drain=True, say=told)
    came = [row["body"] for row in spark.read.parquet(to).select("body").collect()]
    expected = 100 if crash == "nowhere" else 120
    assert sorted(map(int, came)) == list(range(expected))
    assert summary.queues == {queue: 0}
    assert len(told) == len(summary.notes) == (crash != "nowhere")
    assert not (tmp_path / "archive" / landing.FOLDER).exists()
    assert channel.queue_declare(queue, passive=True).messages == 0


def _break_off(
    spark: SparkSession, broker: Broker, queue: str, target: Folder, crash: str, channel: shardmq.Channel
) -> None:
    """What an export leaves that is killed there."""
    name = landing.new_id(queue)
    folder = target.at(landing.FOLDER).at(name)
    options = {"url": broker.url, "queue": queue, "drain": "true", "drainId": name}
    write(spark.read.format("shardmq").options(**options).load(), folder.path, "date")
    if crash == "before it is written":
        folder.at(landing.COMPLETE).remove()
    elif crash != "before it is moved":
        folder.move_into(target)
        if crash == "half-way":  # put a file back
            [day] = [name for name in target.names() if name.startswith("date=")]
            target.at(day).move_into(folder.at(day))
        else:
            channel.reservation_end(queue, name, acknowledge=True)


def test_an_export_that_fails_leaves_the_queue_as_it_was(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path
) -> None:
    channel.basic_publish("", queue, b"stays")
    (tmp_path / "file").touch()
    with pytest.raises(ShardmqError, match="exporting queue"):
        shardmq.spark.export(spark, queue, str(tmp_path / "file" / "inside"), url=broker.url, drain=True)
    assert bodies(channel, queue) == [b"stays"]


def test_messages_that_cannot_be_put_back_are_there_again_after_the_next_export(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    queue: str,
    tmp_path: Path,
    told: Told,
) -> None:
    channel.basic_publish("", queue, b"held")
    connection.user_put("drainer", "secret")
    connection.permission_put("drainer", "/", ".*", ".*", ".*")

    def refuses_from_the_first_read_on(kind: int) -> Fate:
        if kind == Op.QUEUE_READ:
            connection.permission_put("drainer", "/", "", "", "")
        return Fate.PASSES

    to = tmp_path / "archive"
    with Proxy(broker.port) as proxy:
        proxy.judge = refuses_from_the_first_read_on
        url = proxy.url.replace("guest:guest", "drainer:secret")
        with pytest.raises(AccessRefused) as failed:
            shardmq.spark.export(spark, queue, str(to), url=url, drain=True)
    [note] = failed.value.__notes__
    [name] = [folder.name for folder in (to / landing.FOLDER).iterdir()]
    assert f"queue '{queue}' are still reserved as '{name}'" in note
    assert f"drain the queue to {to} again" in note
    assert channel.queue_declare(queue, passive=True).messages == 0

    shardmq.spark.export(spark, queue, str(to), url=broker.url, drain=True, say=told)
    assert [bytes(row["body"]) for row in spark.read.parquet(str(to)).select("body").collect()] == [b"held"]
    assert [sentence.partition("' ")[2] for sentence in told] == [
        "had broken off before it was written; its messages are put back"
    ]
    assert not (to / landing.FOLDER).exists()
    connection.user_delete("drainer")


@pytest.mark.parametrize("by", ["date", "hour"])
@pytest.mark.parametrize("drain", [False, True], ids=["copied", "drained"])
def test_an_export_of_an_empty_queue_can_be_read_replayed_and_added_to(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path, drain: bool, by: By
) -> None:
    to = str(tmp_path / "archive")
    job: dict[str, Any] = {"url": broker.url, "by": by, "drain": drain, "append": True}
    summary = shardmq.spark.export(spark, queue, to, **job)
    assert (summary.rows, summary.messages, summary.queues) == (0, 0, {queue: 0})
    assert spark.read.parquet(to).count() == 0
    replayed = shardmq.spark.replay(spark, to, url=broker.url, exchange="", say=lambda _sentence: None)
    assert (replayed.rows, replayed.messages) == (0, 0)

    again = shardmq.spark.export(spark, queue, to, **job)
    assert again.rows == 0
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 1, "one empty file is enough"
    channel.basic_publish("", queue, b"later")
    assert shardmq.spark.export(spark, queue, to, **job).rows == 1
    assert [bytes(row["body"]) for row in spark.read.parquet(to).select("body").collect()] == [b"later"]
