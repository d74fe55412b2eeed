"""Topics of several partitions, read in batches and as streams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, PreconditionFailed
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.protocol import Op
from shardmq.spark.connection.topics import Topics
from shardmq.spark.options import parse
from shardmq.spark.topics import subscription
from shardmq.spark.topics.batch import TopicReader
from shardmq.spark.topics.stream import TopicStreamReader
from tests.spark.topics.partitions import COLUMNS, batch, found, publish, stream_of
from tests.spark.topics.streams import bodies, finish, loader, places, sizes, start, written
from tests.spark.write.published import refused


def test_every_partition_is_read_in_its_order(broker: Broker, channel: shardmq.Channel, topic: str) -> None:
    publish(channel, topic, 0, 1000)
    made = batch(broker, subscribe=topic)
    assert len(made.partitions()) == 4
    rows = found(made, made.partitions())
    assert sorted(rows) == [0, 1, 2, 3]
    for of_one in rows.values():
        assert [offset for offset, _ in of_one] == list(range(len(of_one)))
        values = [value for _, value in of_one]
        assert values == sorted(values)
    assert sorted(value for of_one in rows.values() for _, value in of_one) == list(range(1000))


def test_assigned_partitions_alone_are_read(broker: Broker, channel: shardmq.Channel, topic: str) -> None:
    publish(channel, topic, 0, 100)
    everything = batch(broker, subscribe=topic)
    rows = found(everything, everything.partitions())
    some = batch(broker, assign={topic: [3, 1]})
    assert found(some, some.partitions()) == {1: rows[1], 3: rows[3]}
    with pytest.raises(NotFound, match="has 4 partitions, numbered from 0; there is no partition 4"):
        batch(broker, assign={topic: [4]}).partitions()


def test_topics_are_found_by_a_pattern_of_their_whole_names(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    publish(channel, topic, 0, 10)
    made = batch(broker, subscribePattern=f"{topic[:12]}.*")
    assert sum(map(len, found(made, made.partitions()).values())) == 10
    with pytest.raises(InvalidRequest, match=f"no topic's whole name fits option subscribePattern '{topic[:12]}'"):
        batch(broker, subscribePattern=topic[:12]).partitions()


def test_streams_are_found_by_a_pattern_as_topics_are(broker: Broker, channel: shardmq.Channel) -> None:
    channel.topic_declare("found-asia", 2)
    channel.queue_declare("found-eu", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("found-jobs", durable=True)
    made = batch(broker, subscribePattern="found-.*")
    publish(channel, "found-asia", 0, 10)
    channel.basic_publish("", "found-eu", b"10")
    rows = [row for part in made.partitions() for arrow in made.read(part) for row in arrow.to_pylist()]
    assert sorted(int(row["value"]) for row in rows) == list(range(11))
    channel.topic_delete("found-asia")
    for queue in ("found-eu", "found-jobs"):
        channel.queue_delete(queue)


class EarlierBroker(BrokerConnection):
    """A connection to a broker that has no list of readable topics, as those before had none."""

    def insist(self, operation: Op, *values: object) -> Any:
        return super().insist(operation, *("planets" if value == "readable-topics" else value for value in values))


def test_an_earlier_broker_tells_topics_alone(broker: Broker, topic: str) -> None:
    connection = EarlierBroker(broker.url)
    assert topic in Topics(connection).names()
    connection.close()


def test_the_permission_to_read_a_topic_is_enough(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, topic: str
) -> None:
    publish(channel, topic, 0, 10)
    connection.user_put("analyst", "secret")
    connection.permission_put("analyst", "/", "^$", "^$", f"^{topic}$")
    url = broker.url.replace("guest:guest", "analyst:secret")
    made = TopicReader(parse({"url": url, "subscribe": topic}, "topic"), COLUMNS)
    assert sum(map(len, found(made, made.partitions()).values())) == 10
    with pytest.raises(AccessRefused, match="'other'"):
        TopicReader(parse({"url": url, "subscribe": "other"}, "topic"), COLUMNS).partitions()
    connection.user_delete("analyst")


def test_topics_that_fit_a_pattern_and_may_not_be_read_are_left_out(
    broker: Broker, connection: shardmq.Connection, channel: shardmq.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PATTERN_SECONDS", 0.0)
    channel.topic_declare("app-a", 2)
    connection.user_put("stranger", "secret")
    connection.permission_put("stranger", "/", "^$", "^$", "^app-a$")
    url = broker.url.replace("guest:guest", "stranger:secret")
    made = TopicStreamReader(parse({"url": url, "subscribePattern": "app-.*"}, "readStream"), COLUMNS)
    begin = made.initialOffset()
    channel.topic_declare("app-b", 2)
    publish(channel, "app-a", 0, 10)
    assert places(made.latestOffset(begin, ReadAllAvailable())).keys() == {"app-a"}
    connection.permission_put("stranger", "/", "^$", "^$", "^$")
    with pytest.raises(AccessRefused, match="'app-a'"):  # what a stream reads is not left out
        made.latestOffset(begin, ReadAllAvailable())
    connection.user_delete("stranger")
    for topic in ("app-a", "app-b"):
        channel.topic_delete(topic)


@pytest.fixture
def pair(connection: shardmq.Connection) -> Iterator[tuple[str, str]]:
    """Two topics of a partition each, which pattern pair-.* fits, with ten messages each."""
    topics = ("pair-one", "pair-two")
    with connection.channel() as channel:
        for topic in topics:
            channel.topic_declare(topic, 1)
            publish(channel, topic, 0, 10)
        yield topics
        for topic in {row["name"] for row in connection.topology("topics")}.intersection(topics):
            channel.topic_delete(topic)


@pytest.mark.parametrize("seconds", [0.0, 3600.0], ids=["names looked for", "names kept"])
def test_a_topic_that_is_deleted_under_a_pattern_is_lost_as_failOnDataLoss_says(
    broker: Broker,
    channel: shardmq.Channel,
    pair: tuple[str, str],
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(subscription, "PATTERN_SECONDS", seconds)
    strict, lenient, again = (
        stream_of(broker, subscribePattern="pair-.*", startingOffsets="earliest", failOnDataLoss=fails)
        for fails in ("true", "false", "false")
    )
    one, two = pair
    begin = strict.initialOffset()
    middle = lenient.latestOffset(begin, ReadAllAvailable())
    assert places(middle) == {one: {"0": 10}, two: {"0": 10}}
    publish(channel, one, 10, 20)
    publish(channel, two, 10, 20)
    channel.topic_delete(two)
    with pytest.raises(PreconditionFailed, match=f"not there any more: topic '{two}', partition 0. What the stream"):
        strict.latestOffset(middle, ReadAllAvailable())
    end = lenient.latestOffset(middle, ReadAllAvailable())
    assert places(end) == {one: {"0": 20}}
    assert caplog.text.count(f"not there any more: topic '{two}'") == 1
    assert found(lenient, lenient.partitions(middle, end)) == {0: [(place, place) for place in range(10, 20)]}
    assert places(again.latestOffset(middle, ReadAllAvailable())) == {one: {"0": 20}}, "also when it is started again"
    channel.topic_declare(two, 1)
    publish(channel, two, 0, 3)
    monkeypatch.setattr(subscription, "PATTERN_SECONDS", 0.0)
    assert places(lenient.latestOffset(end, ReadAllAvailable())) == {one: {"0": 20}, two: {"0": 3}}


def test_a_stream_all_of_whose_topics_were_deleted_waits_for_others(
    broker: Broker, channel: shardmq.Channel, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "PATTERN_SECONDS", 0.0)
    made = stream_of(broker, subscribePattern="pair-.*", failOnDataLoss="false")
    begin = made.initialOffset()
    for topic in pair:
        channel.topic_delete(topic)
    end = made.latestOffset(begin, ReadAllAvailable())
    assert end == made.latestOffset(end, ReadAllAvailable()) == made.reportLatestOffset() == {}
    channel.topic_declare(pair[0], 1)
    assert places(made.latestOffset(end, ReadAllAvailable())) == {pair[0]: {"0": 0}}


def test_a_micro_batch_of_a_topic_that_was_deleted_is_run_again_as_failOnDataLoss_says(
    broker: Broker,
    channel: shardmq.Channel,
    pair: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def gateways(connection: BrokerConnection, topic: str) -> list[str]:
        """Ask for them also where the broker is on one machine."""
        return [place["gateway"] for place in connection.insist(Op.QUEUE_PLACES, topic)]

    monkeypatch.setattr(BrokerConnection, "gateways", gateways)
    one, two = pair
    begin, end = ({one: {"0": place}, two: {"0": place}} for place in (0, 10))
    channel.topic_delete(two)
    strict, lenient = (
        stream_of(broker, subscribePattern="pair-.*", failOnDataLoss=fails) for fails in ("true", "false")
    )
    with pytest.raises(NotFound, match=f"'{two}'"):
        found(strict, strict.partitions(begin, end))
    assert found(lenient, lenient.partitions(begin, end)) == {0: [(place, place) for place in range(10)]}
    assert f"topic '{two}', partition 0: messages [0, 10) cannot be read" in caplog.text


def test_partitions_that_are_added_while_a_stream_runs_are_read_from_their_first_message(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    made = stream_of(broker, subscribe=topic)
    begin = made.initialOffset()
    assert places(begin) == {topic: {"0": 0, "1": 0, "2": 0, "3": 0}}
    publish(channel, topic, 0, 100)
    channel.topic_extend(topic, 6)
    publish(channel, topic, 100, 300)
    end = made.latestOffset(begin, ReadAllAvailable())
    assert sorted(end[topic]) == ["0", "1", "2", "3", "4", "5"]
    rows = found(made, made.partitions(begin, end))
    assert sorted(value for of_one in rows.values() for _, value in of_one) == list(range(300))
    assert rows[4]
    assert rows[4][0][0] == 0


def test_a_topic_that_was_made_anew_fails_the_stream_by_name(
    broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    publish(channel, topic, 0, 100)
    made = stream_of(broker, subscribe=topic)
    begin = made.initialOffset()
    channel.topic_delete(topic)
    channel.topic_declare(topic, 4)
    with pytest.raises(PreconditionFailed, match=f"topic '{topic}', partition 0: .* the partition ends at 0"):
        made.latestOffset(begin, ReadAllAvailable())


def test_a_query_whose_topic_was_made_anew_meanwhile_fails_by_its_checkpoint(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, topic: str, tmp_path: Path
) -> None:
    given = {"url": broker.url, "subscribe": topic, "startingOffsets": "earliest"}
    strict, lenient = (
        spark.readStream.format("shardmq").options(**given, failOnDataLoss=fails).load() for fails in ("true", "false")
    )
    publish(channel, topic, 0, 100)
    finish(start(strict, tmp_path))
    channel.topic_delete(topic)
    channel.topic_declare(topic, 4)
    publish(channel, topic, 0, 400)
    with pytest.raises(PySparkException) as error:
        finish(start(strict, tmp_path))
    assert "not the messages that the stream was reading" in refused(error)
    finish(start(lenient, tmp_path))
    assert written(spark, tmp_path) == sorted([*range(100), *range(400)])


def test_a_group_shows_how_far_a_stream_is(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, topic: str, tmp_path: Path
) -> None:
    publish(channel, topic, 0, 100)
    given = {"subscribe": topic, "startingOffsets": "earliest", "groupId": "counting", "maxOffsetsPerTrigger": "40"}
    source = spark.readStream.format("shardmq").option("url", broker.url).options(**given).load()
    assert sizes(finish(start(source, tmp_path))) == [40, 40, 20]
    assert written(spark, tmp_path) == list(range(100))
    assert [row["lag"] for row in channel.group_offsets(topic, "counting")] == [0, 0, 0, 0]
    publish(channel, topic, 100, 130)
    assert sum(row["lag"] for row in channel.group_offsets(topic, "counting")) == 30
    finish(start(source, tmp_path))
    assert written(spark, tmp_path) == list(range(130))
    assert [row["lag"] for row in channel.group_offsets(topic, "counting")] == [0, 0, 0, 0]


def test_a_group_that_cannot_be_moved_does_not_stop_a_stream(
    broker: Broker, channel: shardmq.Channel, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    publish(channel, topic, 0, 100)
    ends = [(row["partition"], row["end"]) for row in channel.group_offsets(topic, "ahead")]
    channel.group_commit(topic, "ahead", dict(ends))
    made = stream_of(broker, subscribe=topic, groupId="ahead", startingOffsets="earliest")
    begin = made.initialOffset()
    end = made.latestOffset(begin, ReadAllAvailable())
    assert places(end) == {topic: {str(number): place for number, place in ends}}
    assert f"group 'ahead' does not show how far the stream is in topic '{topic}'" in caplog.text


def test_a_dataframe_of_a_topic_goes_into_another_topic(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, topic: str
) -> None:
    load = loader(spark, broker)
    channel.topic_declare("copied", 3)
    publish(channel, topic, 0, 200)
    rows = load(topic).selectExpr("value", "cast(key as string) as routing_key")
    rows.write.format("shardmq").option("url", broker.url).option("exchange", "copied").mode("append").save()
    assert bodies(load("copied")) == list(range(200))
    of_key = "key binary, partition int"
    first, second = (load("copied", of_key).distinct().count() for _ in range(2))
    assert first == second == 200  # a key has one partition
    channel.topic_delete("copied")
