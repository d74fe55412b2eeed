"""Dead letters counted, chosen and sent back to where they died."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, NotFound, PreconditionFailed, ShardmqError
from shardmq.spark.connection.protocol import Op
from shardmq.spark.jobs.transaction import asking
from tests.spark.jobs.messages import HEADERS, Told, bodies, everything, until_ready
from tests.spark.proxy import Fate, Proxy, passes


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
        until_ready(channel, rejected, 6)
        for message in channel.consume(rejected, inactivity_timeout=2.0):
            message.nack(requeue=False)
        channel.basic_publish("", queue, b"alive")
        until_ready(channel, queue, 11)
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
    back = everything(channel, f"{dead}-rejected")
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
    with pytest.raises(PreconditionFailed, match="its reservation is gone"):
        shardmq.spark.deadletters(spark, dead, **job)
    # As a run that dies between commit and acknowledgement leaves it.
    assert channel.queue_reserve(dead, "broke-off").messages == 11
    with pytest.raises(PreconditionFailed, match="other queue, choice or limit"):
        shardmq.spark.deadletters(spark, dead, **{**job, "reason": "maxlen"})
    done = shardmq.spark.deadletters(spark, dead, **job)
    assert (done.summary.rows, done.summary.messages, done.summary.queues) == (6, 0, {dead: 5})
    assert len(bodies(channel, f"{dead}-rejected")) == 6


def test_a_republishing_of_which_all_is_done_does_nothing_when_it_is_run_again(
    spark: SparkSession, broker: Broker, dead: str, told: Told
) -> None:
    job: dict[str, Any] = {"url": broker.url, "say": told, "republish": True, "limit": 1, "txn_id": "one-of-them"}
    first = shardmq.spark.deadletters(spark, dead, **job)
    assert (first.summary.rows, first.summary.messages) == (1, 1)
    again = shardmq.spark.deadletters(spark, dead, **job)
    assert (again.summary.rows, again.summary.messages) == (0, 0)
    assert "transaction 'one-of-them' was committed before" in again.summary.notes[0]


def test_a_republishing_that_cannot_acknowledge_tells_the_name_that_finishes_it(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    dead: str,
    told: Told,
) -> None:
    connection.user_put("letters", "secret")
    connection.permission_put("letters", "/", ".*", ".*", ".*")

    def refuses_to_acknowledge(kind: int) -> Fate:
        if kind == Op.RESERVATION_END:
            connection.permission_put("letters", "/", "", ".*", "")
        return Fate.PASSES

    job: dict[str, Any] = {"reason": "rejected", "republish": True, "say": told}
    with Proxy(broker.port) as proxy:
        proxy.judge = refuses_to_acknowledge
        url = proxy.url.replace("guest:guest", "letters:secret")
        with pytest.raises(AccessRefused) as failed:
            shardmq.spark.deadletters(spark, dead, **job, url=url)
        name = told[0].split("'")[1]
        [note] = failed.value.__notes__
        assert f"are still reserved as '{name}', as they are published: run it again with that name" in note
        assert channel.queue_declare(dead, passive=True).messages == 0
        proxy.judge = passes
        connection.permission_put("letters", "/", ".*", ".*", ".*")
        done = shardmq.spark.deadletters(spark, dead, **job, url=url, txn_id=name)
    assert (done.summary.rows, done.summary.messages, done.summary.queues) == (6, 0, {dead: 5})
    assert len(bodies(channel, f"{dead}-rejected")) == 6
    connection.user_delete("letters")


def test_what_was_committed_after_all_is_not_put_back_beside_its_copies(
    spark: SparkSession,
    broker: Broker,
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    dead: str,
    told: Told,
) -> None:
    def commits_before_the_job_does(kind: int) -> Fate:
        if kind == Op.TRANSACTION_SEAL:
            numbers = [row["number"] for row in connection.topology("transactions") if row["name"] == "after-all"]
            with asking(broker.url) as other:
                for number in numbers:
                    other.commit("after-all", number, [])
        return Fate.PASSES

    job: dict[str, Any] = {"reason": "rejected", "republish": True, "say": told, "txn_id": "after-all"}
    with Proxy(broker.port) as proxy:
        proxy.judge = commits_before_the_job_does
        with pytest.raises(ShardmqError, match="'after-all' was committed: running it again publishes") as failed:
            shardmq.spark.deadletters(spark, dead, **job, url=proxy.url)
    assert "are still reserved as 'after-all', as they are published" in failed.value.__notes__[-1]
    assert channel.queue_declare(dead, passive=True).messages == 0
    done = shardmq.spark.deadletters(spark, dead, **job, url=broker.url)
    assert (done.summary.rows, done.summary.messages, done.summary.queues) == (6, 0, {dead: 5})


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
