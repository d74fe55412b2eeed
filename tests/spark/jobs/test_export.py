"""Queues to Parquet: copies, drains that break off anywhere, and queues without messages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import shardmq
import shardmq.spark
from shardmq.client.api.url import with_vhost
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, NotFound, PreconditionFailed, ShardmqError
from shardmq.spark.connection import reservations
from shardmq.spark.connection.protocol import Op
from shardmq.spark.connection.reservations import mark_of
from shardmq.spark.jobs import export as export_job
from shardmq.spark.jobs import export_folder as landing
from shardmq.spark.jobs.export import write
from shardmq.spark.jobs.export_folder import Folder, Origin
from shardmq.spark.jobs.options import By
from shardmq.spark.jobs.transaction import asking
from tests.spark.jobs.messages import Told, bodies
from tests.spark.proxy import Fate, Proxy
from tests.spark.queues import publish, ready, until

CRASHES = ("before it is written", "before it is counted", "before it is moved", "half-way", "at the end")


def origin_of(broker: Broker, queue: str) -> Origin:
    with asking(broker.url) as asked:
        assert asked.broker
        return Origin(asked.broker, asked.vhost, queue)


@pytest.fixture
def tenant(broker: Broker, connection: shardmq.Connection, queue: str) -> Iterator[str]:
    """The URL of another virtual host, which has a queue of that name, too."""
    connection.vhost_put("tenant")
    connection.permission_put("guest", "tenant", ".*", ".*", ".*")
    url = with_vhost(broker.url, "tenant")
    with shardmq.connect(url) as other:
        other.channel().queue_declare(queue, durable=True)
    yield url
    connection.vhost_delete("tenant")


@pytest.mark.parametrize(
    ("crash", "is_older"),
    [("nowhere", False), *((crash, False) for crash in CRASHES), *((crash, True) for crash in CRASHES)],
)
def test_a_drained_queue_is_in_its_archive_once_wherever_an_export_breaks_off(
    spark: SparkSession,
    broker: Broker,
    channel: shardmq.Channel,
    queue: str,
    tmp_path: Path,
    told: Told,
    crash: str,
    is_older: bool,
) -> None:
    publish(channel, queue, 0, 100)
    to = str(tmp_path / "archive")
    if crash != "nowhere":
        origin = Origin("", "", queue) if is_older else origin_of(broker, queue)  # "" as earlier versions had it
        _break_off(spark, broker, origin, Folder(spark, to), crash, channel)
        publish(channel, queue, 100, 120)
    summary = shardmq.spark.export(spark, queue, to, url=broker.url, drain=True, say=told)
    assert exported(spark, to) == list(range(100 if crash == "nowhere" else 120))
    assert summary.queues == {queue: 0}
    assert len(told) == len(summary.notes) == (crash != "nowhere")
    assert not (tmp_path / "archive" / landing.FOLDER).exists()
    assert channel.queue_declare(queue, passive=True).messages == 0


def _break_off(
    spark: SparkSession, broker: Broker, origin: Origin, target: Folder, crash: str, channel: shardmq.Channel
) -> str:
    """What an export leaves that is killed there; returns its name."""
    name = landing.new_id(origin)
    folder = target.at(landing.FOLDER).at(name)
    options = {"url": broker.url, "queue": origin.name, "drain": "true", "drainId": name}
    write(spark.read.format("shardmq").options(**options).load(), folder.path, "date")
    if crash == "before it is written":
        folder.at(landing.COMPLETE).remove()
    if crash in ("before it is written", "before it is counted"):
        return name
    if origin.broker:  # earlier versions did not count
        folder.note(landing.COUNTED)
    if crash != "before it is moved":
        folder.move_into(target)
        if crash == "half-way":  # put a file back
            [day] = [name for name in target.names() if name.startswith("date=")]
            target.at(day).move_into(folder.at(day))
        else:
            channel.reservation_end(origin.name, name, acknowledge=True)
    return name


def exported(spark: SparkSession, folder: str) -> list[int]:
    """The numbers in an archive, in rising order."""
    return sorted(int(row["body"]) for row in spark.read.parquet(folder).select("body").collect())


@pytest.mark.parametrize("crash", CRASHES[:3])
def test_what_broke_off_in_another_virtual_host_is_left_to_that_one(
    spark: SparkSession,
    broker: Broker,
    channel: shardmq.Channel,
    queue: str,
    tmp_path: Path,
    told: Told,
    tenant: str,
    crash: str,
) -> None:
    to = str(tmp_path / "archive")
    publish(channel, queue, 0, 100)
    _break_off(spark, broker, origin_of(broker, queue), Folder(spark, to), crash, channel)
    with shardmq.connect(tenant) as other:
        publish(other.channel(), queue, 100, 120)
    assert shardmq.spark.export(spark, queue, to, url=tenant, drain=True, say=told).rows == 20
    assert told == []
    assert exported(spark, to) == list(range(100, 120))
    shardmq.spark.export(spark, queue, to, url=broker.url, drain=True, say=told)
    assert len(told) == 1
    assert exported(spark, to) == list(range(120))
    assert not (tmp_path / "archive" / landing.FOLDER).exists()


def test_what_an_earlier_version_has_left_is_finished_where_its_messages_are_reserved(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, queue: str, tmp_path: Path, told: Told, tenant: str
) -> None:
    to = str(tmp_path / "archive")
    publish(channel, queue, 0, 100)
    name = _break_off(spark, broker, Origin("", "", queue), Folder(spark, to), "before it is moved", channel)
    assert shardmq.spark.export(spark, queue, to, url=tenant, drain=True, say=told).rows == 0
    [sentence] = told
    assert sentence.startswith(f"export '{name}' in {to}/{landing.FOLDER} is left there: it is of a queue '{queue}'")
    assert exported(spark, to) == []
    shardmq.spark.export(spark, queue, to, url=broker.url, drain=True, say=told)
    assert told[1] == f"export '{name}' had broken off after it was written; finishing it"
    assert exported(spark, to) == list(range(100))


@pytest.mark.parametrize("is_left_alone", [True, False], ids=["runs", "ends"])
def test_an_export_that_runs_is_left_alone(
    spark: SparkSession,
    broker: Broker,
    channel: shardmq.Channel,
    queue: str,
    tmp_path: Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    is_left_alone: bool,
) -> None:
    monkeypatch.setattr(reservations, "MARK_MS", 1000 if is_left_alone else 600_000)
    to = str(tmp_path / "archive")
    publish(channel, queue, 0, 100)
    origin = origin_of(broker, queue)
    name = _break_off(spark, broker, origin, Folder(spark, to), "before it is written", channel)
    channel.queue_reserve(queue, mark_of(name), 1, 600_000 if is_left_alone else 1000, [])  # it runs, or was killed
    publish(channel, queue, 100, 120)
    shardmq.spark.export(spark, queue, to, url=broker.url, drain=True, say=told)
    assert told[0] == f"export '{name}' may run still: looking for a minute whether it does"
    what = "of the queue to that folder runs: its messages are left to it"
    done = "had broken off before it was written; its messages are put back"
    assert told[1:] == [f"export '{name}' {what if is_left_alone else done}"]
    assert exported(spark, to) == list(range(100 if is_left_alone else 0, 120))
    assert (tmp_path / "archive" / landing.FOLDER / name).exists() == is_left_alone


def test_the_mark_of_an_export_is_renewed_until_it_ends(
    broker: Broker, channel: shardmq.Channel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservations, "RENEWALS", 600)
    renewed = []

    def counts(kind: int) -> Fate:
        renewed.extend([kind] * (kind == Op.QUEUE_RESERVE))
        return Fate.PASSES

    publish(channel, queue, 0, 3)
    with Proxy(broker.port) as proxy, asking(broker.url) as asked:
        proxy.judge = counts
        with reservations.RunningMark(proxy.url, queue, "export-1"):
            until(lambda: len(renewed) > 3, "renewals")
            assert reservations.reserved(asked, queue, mark_of("export-1")) == 0
        assert reservations.reserved(asked, queue, mark_of("export-1")) is None
        with pytest.raises(NotFound, match="no queue 'nowhere'"):
            reservations.reserved(asked, "nowhere", "export-1")
    assert ready(channel, queue) == [(b"0", False), (b"1", False), (b"2", False)]


@pytest.mark.parametrize("loss", ["a file is removed", "messages return"])
def test_messages_that_are_not_in_the_folder_are_not_acknowledged(
    spark: SparkSession,
    broker: Broker,
    channel: shardmq.Channel,
    queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: str,
) -> None:
    def lossy(messages: DataFrame, to: str, by: By) -> tuple[int, int]:
        written = write(messages, to, by)
        if loss == "messages return":
            channel.reservation_end(queue, Path(to).name, acknowledge=False)
        else:
            next(Path(to).rglob("*.parquet")).unlink()
        return written

    to = tmp_path / "archive"
    publish(channel, queue, 0, 100)
    monkeypatch.setattr(export_job, "write", lossy)
    kind, why = {
        "a file is removed": (ShardmqError, r"100 messages are reserved as .*, and \d+ are in .*: files were removed"),
        "messages return": (PreconditionFailed, "returned to queue .* before all were written"),
    }[loss]
    with pytest.raises(kind, match=why):
        shardmq.spark.export(spark, queue, str(to), url=broker.url, drain=True)
    assert not list(to.rglob("*.parquet"))
    monkeypatch.undo()
    assert shardmq.spark.export(spark, queue, str(to), url=broker.url, drain=True).rows == 100
    assert exported(spark, str(to)) == list(range(100))


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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservations, "MARK_MS", 1000)
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
    assert [sentence.partition("' ")[2] for sentence in told if "may run still" not in sentence] == [
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
