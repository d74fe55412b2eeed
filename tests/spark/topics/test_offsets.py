"""Places in topics: written in checkpoints, given by options, found by times; and what is refused in which words."""

import json
from typing import Any

import pytest

from shardmq.errors import InvalidRequest, PreconditionFailed
from shardmq.spark.connection.topics import PartitionState
from shardmq.spark.options import Options, parse
from shardmq.spark.topics.offsets import Places, TopicPartition, end_of, from_json, start_of, to_json, within

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
STATES = {ZERO: PartitionState(0, 100, 200), ONE: PartitionState(1, 0, 50)}


def options(**given: Any) -> Options:
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
    return parse({"url": "shardmq://127.0.0.1/", "subscribe": "orders", **texts}, "topic", "readStream")


def seek(partition: TopicPartition, time_ms: int) -> int:
    """A message a millisecond, the first of each partition at 1000."""
    state = STATES[partition]
    return min(max(state.first, state.first + time_ms - 1000), state.next)


def start(usual: str = "earliest", **given: Any) -> Places:
    return start_of(options(**given), STATES, usual, seek)


def end(**given: Any) -> Places:
    return end_of(options(**given), STATES, seek)


def test_places_are_written_as_kafkas_source_does() -> None:
    places = {ONE: 7, ZERO: 23, TopicPartition("payments", 10): 0}
    assert to_json(places) == {"orders": {"0": 23, "1": 7}, "payments": {"10": 0}}
    assert from_json(to_json(places)) == places


def test_a_job_begins_where_its_options_say() -> None:
    assert start() == {ZERO: 100, ONE: 0}
    assert start("latest") == {ZERO: 200, ONE: 50}
    assert start(startingOffsets="LATEST") == {ZERO: 200, ONE: 50}
    assert start(startingOffsets={"orders": {"0": 150, "1": -1}}) == {ZERO: 150, ONE: 50}
    assert start(startingOffsets={"orders": {"0": -2, "1": 50}}) == {ZERO: 100, ONE: 50}
    assert start(startingOffsets="latest", startingTimestamp="1020") == {ZERO: 120, ONE: 20}
    assert start(startingOffsetsByTimestamp={"orders": {"0": 0, "1": 1049}}) == {ZERO: 100, ONE: 49}


def test_a_batch_ends_where_its_options_say() -> None:
    assert end() == {ZERO: 200, ONE: 50}
    assert end(endingOffsets={"orders": {"0": 150, "1": -1}}) == {ZERO: 150, ONE: 50}
    assert end(endingTimestamp="1020") == {ZERO: 120, ONE: 20}
    assert end(endingOffsetsByTimestamp={"orders": {"0": 5000, "1": 1001}}) == {ZERO: 200, ONE: 1}


def test_a_time_that_no_message_has_is_refused_or_is_the_end() -> None:
    with pytest.raises(InvalidRequest, match="topic 'orders', partition 1 has no message of time 1080 ms or later"):
        start(startingTimestamp="1080")
    assert start(startingTimestamp="1080", startingOffsetsByTimestampStrategy="latest") == {ZERO: 180, ONE: 50}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"0": 150}, "says nothing of topic 'orders', partition 1; it is to name all"),
        ({"0": 150, "1": 0, "2": 0}, "names topic 'orders', partition 2, not among those that are read"),
        (
            {"0": 99, "1": 0},
            r"partition 0: messages \[99, 100\) cannot be read: the oldest one there is has offset 100",
        ),
        ({"0": 201, "1": 0}, r"partition 0: .* the partition ends at 200: it was made anew"),
    ],
)
def test_offsets_that_are_not_there_are_refused(given: dict[str, int], said: str) -> None:
    with pytest.raises((InvalidRequest, PreconditionFailed), match=said):
        start(startingOffsets={"orders": given})
    with pytest.raises((InvalidRequest, PreconditionFailed), match=said):
        end(endingOffsets={"orders": given})


def test_a_loss_that_is_allowed_is_what_is_there() -> None:
    lenient = options(failOnDataLoss="false")
    assert [within(ZERO, offset, STATES, lenient) for offset in (0, 99, 100, 200, 201)] == [100, 100, 100, 200, 200]


def test_many_partitions_are_not_all_named() -> None:
    states = {TopicPartition("t", number): PartitionState(number, 0, 1) for number in range(100)}
    with pytest.raises(InvalidRequest, match="partition 9 and 90 more; it is to name"):
        start_of(options(startingOffsets={"t": {}}), states, "earliest", seek)
