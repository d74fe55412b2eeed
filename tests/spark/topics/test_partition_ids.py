"""Ids of partitions in checkpoints: messages of a topic that was made anew are not taken for those before."""

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import PreconditionFailed
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.protocol import Op
from shardmq.spark.options import parse
from shardmq.spark.topics.offsets import Json, Places, TopicPartition, from_json, to_json
from shardmq.spark.topics.partition_ids import ids_in, with_ids
from shardmq.spark.topics.ranges import ranges_between
from tests.spark.topics.partitions import batch, publish, stream_of, values
from tests.spark.topics.streams import places

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = {ZERO: 23, ONE: 7, TopicPartition("payments", 0): 0}
IDS = {ZERO: 2**53 - 1, ONE: 1}
TABLE = with_ids(to_json(OFFSETS), IDS)


def read_by_earlier_versions(table: Json) -> Places:
    return {
        TopicPartition(topic, int(number)): place
        for topic, of_topic in table.items()
        for number, place in of_topic.items()
    }


def test_ids_are_beside_the_offsets_which_are_as_they_were() -> None:
    assert places(TABLE) == to_json(OFFSETS) == {"orders": {"0": 23, "1": 7}, "payments": {"0": 0}}
    assert TABLE["amq.partition-ids.orders"] == {"0": 1 - 2**53, "1": -1}
    assert (from_json(TABLE), ids_in(TABLE)) == (OFFSETS, IDS)
    assert (from_json(places(TABLE)), ids_in(places(TABLE))) == (OFFSETS, {})


def test_earlier_versions_pass_ids_on_and_read_nothing_for_them() -> None:
    read = read_by_earlier_versions(TABLE)
    assert to_json(read) == TABLE
    options = parse({"url": "shardmq://127.0.0.1/", "subscribe": "orders"}, "readStream")
    assert ranges_between({}, read, options) == ranges_between({}, OFFSETS, options)


def test_offsets_may_be_given_as_a_checkpoint_has_them(broker: Broker, channel: shardmq.Channel, topic: str) -> None:
    publish(channel, topic, 0, 100)
    ends = stream_of(broker, subscribe=topic).initialOffset()
    assert len(ids_in(ends)) == 4
    publish(channel, topic, 100, 200)
    behind = batch(broker, subscribe=topic, startingOffsets=ends)
    assert values(behind, behind.partitions()) == list(range(100, 200))
    before = batch(broker, subscribe=topic, endingOffsets=ends)
    assert values(before, before.partitions()) == list(range(100))
    assert stream_of(broker, subscribe=topic, startingOffsets=json.dumps(ends)).initialOffset() == ends


def make_anew(channel: shardmq.Channel, topic: str) -> None:
    """Have another topic of that name, with more messages in each partition than there were."""
    channel.topic_delete(topic)
    channel.topic_declare(topic, 4)
    publish(channel, topic, 0, 400)


def test_a_topic_that_was_made_anew_is_noticed_however_many_messages_it_has(
    broker: Broker, channel: shardmq.Channel, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(channel, topic, 0, 100)
    running = stream_of(broker, subscribe=topic, startingOffsets="earliest")
    end = running.latestOffset(running.initialOffset(), ReadAllAvailable())
    make_anew(channel, topic)
    for strict in (running, stream_of(broker, subscribe=topic)):
        with pytest.raises(PreconditionFailed, match=f"topic '{topic}', partition 0; .* partition 3: not the messages"):
            strict.latestOffset(end, ReadAllAvailable())
    # Where that is allowed, a micro-batch of nothing comes between, and then all that is there now.
    lenient = stream_of(broker, subscribe=topic, failOnDataLoss="false", maxOffsetsPerTrigger=1000)
    limit = lenient.getDefaultReadLimit()
    between = lenient.latestOffset(end, limit)
    assert places(between) == {topic: {"0": 0, "1": 0, "2": 0, "3": 0}}
    assert lenient.partitions(end, between) == []
    last = lenient.latestOffset(between, limit)
    assert values(lenient, lenient.partitions(between, last)) == list(range(400))
    assert lenient.latestOffset(last, limit) == last
    assert caplog.text.count("not the messages that the stream was reading") == 1


def test_a_topic_of_which_nothing_was_read_may_have_lost_messages_as_well(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    lenient = stream_of(broker, subscribe=topic, failOnDataLoss="false")
    begin = lenient.initialOffset()
    channel.topic_delete(topic)
    channel.topic_declare(topic, 4)
    with pytest.raises(PreconditionFailed, match="not the messages that the stream was reading"):
        stream_of(broker, subscribe=topic).latestOffset(begin, ReadAllAvailable())
    between = lenient.latestOffset(begin, ReadAllAvailable())
    assert places(between) == places(begin)
    assert ids_in(between) != ids_in(begin)
    assert lenient.latestOffset(between, ReadAllAvailable()) == between


def test_a_micro_batch_that_is_run_again_has_no_messages_of_a_topic_that_was_made_anew(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    publish(channel, topic, 0, 100)
    made = stream_of(broker, subscribe=topic, startingOffsets="earliest")
    begin = made.initialOffset()
    end = made.latestOffset(begin, ReadAllAvailable())
    ranges = made.partitions(begin, end)
    assert len(ranges) == 4
    assert stream_of(broker, subscribe=topic).partitions(begin, end) == ranges
    make_anew(channel, topic)
    with pytest.raises(PreconditionFailed, match="not the messages that the stream was reading"):
        stream_of(broker, subscribe=topic).partitions(begin, end)
    assert stream_of(broker, subscribe=topic, failOnDataLoss="false").partitions(begin, end) == []


def test_a_topic_that_was_made_anew_while_what_is_there_is_read_is_not_read_past_its_end(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    publish(channel, topic, 0, 100)
    lenient = stream_of(broker, subscribe=topic, failOnDataLoss="false", startingOffsets="earliest")
    begin = lenient.initialOffset()
    lenient.prepareForTriggerAvailableNow()
    channel.topic_delete(topic)
    channel.topic_declare(topic, 4)
    publish(channel, topic, 0, 8)
    between = lenient.latestOffset(begin, ReadAllAvailable())
    last = lenient.latestOffset(between, ReadAllAvailable())
    assert sum(places(last)[topic].values()) == 8


def test_checkpoints_of_earlier_versions_go_on_and_get_ids(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    made = stream_of(broker, subscribe=topic)
    begin = places(made.initialOffset())
    assert made.latestOffset(begin, ReadAllAvailable()) == begin, "no micro-batch for ids alone"
    publish(channel, topic, 0, 100)
    end = made.latestOffset(begin, ReadAllAvailable())
    assert len(ids_in(end)) == 4
    assert values(made, made.partitions(begin, end)) == list(range(100))


def test_ids_stay_in_the_checkpoint_where_an_earlier_gateway_tells_none(
    broker: Broker, channel: shardmq.Channel, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stream_of(broker, subscribe=topic)
    begin = made.initialOffset()
    publish(channel, topic, 0, 100)
    insist = BrokerConnection.insist

    def without_ids(connection: BrokerConnection, operation: Op, *values: object) -> Any:
        answer = insist(connection, operation, *values)
        for row in answer if operation is Op.GROUP_OFFSETS else ():
            del row["id"]
        return answer

    monkeypatch.setattr(BrokerConnection, "insist", without_ids)
    end = made.latestOffset(begin, ReadAllAvailable())
    assert sum(places(end)[topic].values()) == 100
    assert ids_in(end) == ids_in(begin)
    assert ids_in(stream_of(broker, subscribe=topic).initialOffset()) == {}
