"""Exchanges of topics: one partition for each message."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.exchanges.partition import Partition


def topic(partitions: int, partitioner: str | None = None) -> Partition:
    exchange = Partition({} if partitioner is None else {"x-partitioner": partitioner})
    for number in reversed(range(partitions)):  # in any order
        exchange.add(str(number), 100 + number, {})
    return exchange


@given(st.text(min_size=1), st.integers(1, 50), st.integers(0))
def test_a_key_has_one_partition_whoever_asks(key: str, partitions: int, turn: int) -> None:
    first = topic(partitions).match(key)
    assert len(first) == 1
    assert list(topic(partitions).match(key, None, turn)) == list(first)
    assert 100 <= next(iter(first)) < 100 + partitions


def test_keys_are_spread_evenly() -> None:
    exchange = topic(8)
    found = Counter(next(iter(exchange.match(f"key-{number}"))) for number in range(8000))
    assert len(found) == 8
    assert max(found.values()) < 1.2 * min(found.values())


@pytest.mark.parametrize(("partitioner", "key"), [("key", ""), ("round-robin", ""), ("round-robin", "key")])
def test_messages_whose_key_says_nothing_take_turns(partitioner: str, key: str) -> None:
    exchange = topic(3, partitioner)
    assert exchange.takes_turns(key)
    assert [next(iter(exchange.match(key, None, turn))) for turn in range(5)] == [100, 101, 102, 100, 101]


@pytest.mark.parametrize("header", [{"x-partition": 3}, {"x-partition": -1}, {"x-partition": True}, {}, None])
def test_a_message_that_names_no_partition_of_the_topic_goes_nowhere(header: dict[str, object] | None) -> None:
    exchange = topic(3, "explicit")
    assert exchange.needs_message
    assert list(exchange.match("", Properties(headers={"x-partition": 2}))) == [102]
    assert not exchange.match("", Properties(headers=header))
    assert not exchange.match("")


def test_a_message_with_more_keys_has_one_partition() -> None:
    exchange = topic(5)
    assert list(exchange.match_any(["a", "b", "c"])) == list(exchange.match("a"))


def test_partitions_that_are_added_are_used_and_those_that_go_are_not() -> None:
    exchange = topic(1)
    assert {next(iter(exchange.match(str(number)))) for number in range(50)} == {100}
    exchange.add("1", 101, {})
    assert {next(iter(exchange.match(str(number)))) for number in range(50)} == {100, 101}
    exchange.remove("0", 100, {})
    exchange.remove("1", 101, {})
    assert exchange.is_empty
    assert not exchange.match("a")


def test_nothing_else_is_bound_to_it() -> None:
    with pytest.raises(PreconditionFailed, match="partitions of its topic alone"):
        Partition.check_binding("7", {})
