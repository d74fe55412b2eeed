"""Messages of topics back to exchanges: some of them, at a pace, each once."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

import shardmq
import shardmq.spark
from shardmq.cmd.run.broker import Broker
from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed
from shardmq.spark.jobs.options import TopicReplayOptions
from shardmq.spark.jobs.topics.replay import replayed_ranges
from tests.spark.jobs.messages import Told, everything, number_of, told_of
from tests.spark.topics.streams import publish


def numbers(channel: shardmq.Channel, queue: str) -> list[int]:
    """What a queue has, in its order; it is empty then."""
    found = [int(message.body) for message in everything(channel, queue)]
    channel.queue_purge(queue)
    return found


@pytest.fixture
def bound(channel: shardmq.Channel, exchange: str, queue: str) -> str:
    """A queue that gets all of the exchange's messages."""
    channel.queue_bind(queue, exchange, "#")
    return queue


def test_messages_are_what_they_were_and_go_on_where_a_replay_broke_off(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, exchange: str, bound: str, told: Told
) -> None:
    publish(channel, stream, 0, 20, headers={"n": 1, "raw": b"\x00"}, priority=2)
    before = {message.offset: message for message in channel.pull(stream, 0, "earliest", 20).messages}
    job: dict[str, Any] = {"url": broker.url, "exchange": exchange, "rate": 2.0, "say": told}

    def crash_after_the_first(rows_done: int, _total: int) -> None:
        if rows_done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shardmq.spark.replay_topic(spark, stream, **job, progress=crash_after_the_first)
    publish(channel, stream, 20, 30)  # not of this replay
    offsets = {
        "starting_offsets": json.dumps({stream: {"0": 0}}),
        "ending_offsets": json.dumps({stream: {"0": 20}}),
    }
    assert told[0].startswith(f"from {offsets['starting_offsets']} to {offsets['ending_offsets']}: ")
    summary = shardmq.spark.replay_topic(spark, stream, **job, **offsets)
    assert (summary.messages, summary.notes) == (10, ("1 of 2 chunks were committed before",))
    after = everything(channel, bound)
    assert [number_of(told_of(message)) for message in after] == list(range(20))
    for message in after:
        assert message.message_id == before[int(message.body)].message_id
        assert (message.properties.headers, message.properties.priority) == ({"n": 1, "raw": b"\x00"}, 2)
    with pytest.raises(PreconditionFailed, match=f"with other partitions of topic '{stream}', target or rate"):
        shardmq.spark.replay_topic(spark, stream, **job, txn_id=summary.transaction)


def test_a_replay_may_be_of_some_time_or_offsets(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, stream: str, exchange: str, bound: str, told: Told
) -> None:
    publish(channel, stream, 0, 10)
    time.sleep(0.01)
    publish(channel, stream, 10, 15)
    # By the broker's clock, which is steady: this machine's may have been set since it started.
    (later,) = channel.pull(stream, 0, 10, 1).messages
    between = datetime.fromtimestamp(later.timestamp_ms / 1000, UTC)
    job: dict[str, Any] = {"url": broker.url, "exchange": exchange, "say": told}
    shardmq.spark.replay_topic(spark, stream, **job, since=between)
    assert numbers(channel, bound) == list(range(10, 15))
    shardmq.spark.replay_topic(spark, stream, **job, until=between)
    assert numbers(channel, bound) == list(range(10))
    shardmq.spark.replay_topic(spark, stream, **job, starting_offsets=json.dumps({stream: {"0": 12}}))
    assert numbers(channel, bound) == [12, 13, 14]


def test_what_cannot_be_replayed_is_refused(
    spark: SparkSession, broker: Broker, stream: str, exchange: str, told: Told
) -> None:
    with pytest.raises(NotFound, match="'nowhere'"):
        shardmq.spark.replay_topic(spark, "nowhere", url=broker.url, exchange=exchange)
    with pytest.raises(InvalidRequest, match="one of the two"):
        shardmq.spark.replay_topic(spark, stream, url=broker.url)
    with pytest.raises(InvalidRequest, match="option startingOffsets is 'soon'"):
        shardmq.spark.replay_topic(spark, stream, url=broker.url, exchange=exchange, starting_offsets="soon")
    assert told == []
    empty = shardmq.spark.replay_topic(spark, stream, url=broker.url, exchange=exchange, say=told)
    assert (empty.rows, empty.messages) == (0, 0)


def test_replays_in_several_threads_are_planned_at_once(broker: Broker, channel: shardmq.Channel, stream: str) -> None:
    publish(channel, stream, 0, 10)
    options = TopicReplayOptions(url=broker.url, exchange="again")

    def planned(times: int) -> list[tuple[int, int]]:
        return [(part.first, part.end) for _ in range(times) for part in replayed_ranges(stream, options)]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(planned, [50] * 4)) == [[(0, 10)] * 50] * 4
