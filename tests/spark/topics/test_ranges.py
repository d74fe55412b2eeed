"""Ranges for tasks: all messages once, in as many pieces as were asked for."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import InvalidRequest
from shardmq.spark.options import Options, parse
from shardmq.spark.topics.offsets import TopicPartition
from shardmq.spark.topics.ranges import TopicRange, ranges_between


def options(**given: int) -> Options:
    names = {name: str(value) for name, value in given.items()}
    return parse({"url": "shardmq://127.0.0.1/", "subscribe": "t", **names}, "topic")


def cut(sizes: list[int], **given: int) -> list[int]:
    """The sizes of the pieces of partitions that begin at 10."""
    start = {TopicPartition("t", number): 10 for number in range(len(sizes))}
    end = {TopicPartition("t", number): 10 + size for number, size in enumerate(sizes)}
    return [part.end - part.first for part in ranges_between(start, end, options(**given))]


def test_a_range_is_one_partition_where_nothing_else_is_asked_for() -> None:
    assert cut([100, 0, 50]) == [100, 50]
    assert cut([100, 50], minPartitions=2) == [100, 50]


def test_large_partitions_are_cut_for_min_partitions() -> None:
    assert cut([100, 100], minPartitions=4) == [50, 50, 50, 50]
    assert cut([300, 100], minPartitions=4) == [100, 100, 100, 100]
    assert cut([1000, 1], minPartitions=4) == [250, 250, 250, 250, 1]
    assert cut([2], minPartitions=10) == [1, 1]


def test_no_range_has_more_than_max_records_per_partition() -> None:
    assert cut([100], maxRecordsPerPartition=30) == [25, 25, 25, 25]
    assert cut([100, 20], maxRecordsPerPartition=30) == [25, 25, 25, 25, 20]


def test_so_many_tasks_that_spark_would_drown_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="raise maxRecordsPerPartition"):
        cut([10_000_000], maxRecordsPerPartition=1)


def test_a_partition_without_a_place_begins_at_0() -> None:
    assert ranges_between({}, {TopicPartition("t", 3): 5}, options()) == [TopicRange("t", 3, 0, 5)]


def test_a_partition_that_goes_back_has_no_range() -> None:
    place = TopicPartition("t", 0)
    assert ranges_between({place: 100}, {place: 5}, options()) == []


@given(
    st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=8),
    st.integers(0, 1000),
    st.integers(10_000, 10**7) | st.just(0),
)
def test_every_message_is_in_one_range(spans: dict[int, tuple[int, int]], pieces: int, most: int) -> None:
    start = {TopicPartition("t", number): first for number, (first, _) in spans.items()}
    end = {TopicPartition("t", number): first + size for number, (first, size) in spans.items()}
    parts = ranges_between(start, end, options(minPartitions=pieces, maxRecordsPerPartition=most))
    reached = dict(start)
    for part in parts:
        assert reached[part.partition] == part.first < part.end
        assert not most or part.end - part.first <= most
        reached[part.partition] = part.end
    assert reached == end


def test_ranges_travel_to_executors() -> None:
    part = TopicRange("t", 1, 5, 9)
    assert pickle.loads(pickle.dumps(part)) == part
