"""Consistent hashing: one destination for every message, shares by weight, and little that moves."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.exchanges.consistent_hash import ConsistentHash
from shardmq.topology.exchanges.exchange_type import Destination

KEYS = [f"key-{number}" for number in range(2000)]
WEIGHTS = st.dictionaries(st.integers(1, 1000), st.integers(1, 5), min_size=1, max_size=8)


def exchange(weights: dict[int, int], **arguments: str) -> ConsistentHash:
    made = ConsistentHash(arguments)
    for destination, weight in weights.items():
        made.add(str(weight), destination, {})
    return made


def routes(made: ConsistentHash) -> dict[str, Destination]:
    found = {}
    for key in KEYS:
        (found[key],) = made.match(key)
    return found


@settings(max_examples=25)
@given(WEIGHTS)
def test_every_destination_gets_its_share(weights: dict[int, int]) -> None:
    shares = Counter(routes(exchange(weights)).values())
    for destination, weight in weights.items():
        expected = len(KEYS) * weight / sum(weights.values())
        assert abs(shares[destination] - expected) < 6 * expected**0.5 + 6


@settings(max_examples=25)
@given(WEIGHTS, st.integers(2000, 3000), st.integers(1, 5))
def test_a_new_destination_takes_its_share_and_nothing_else_moves(
    weights: dict[int, int], added: int, weight: int
) -> None:
    made = exchange(weights)
    before = routes(made)
    made.add(str(weight), added, {})
    after = routes(made)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert all(after[key] == added for key in moved)
    expected = len(KEYS) * weight / (sum(weights.values()) + weight)
    assert abs(len(moved) - expected) < 6 * expected**0.5 + 6
    made.remove(str(weight), added, {})
    assert routes(made) == before


@given(WEIGHTS, st.randoms(use_true_random=False))
def test_the_order_of_bindings_does_not_matter(weights: dict[int, int], random: Any) -> None:
    shuffled = list(weights.items())
    random.shuffle(shuffled)
    one, other = exchange(weights), exchange(dict(shuffled))
    assert all(one.match(key) == other.match(key) or len(weights) == 1 for key in KEYS[:50])


def test_a_destination_bound_twice_has_both_weights() -> None:
    made = exchange({1: 1, 2: 1})
    made.add("2", 1, {})
    assert routes(made) == routes(exchange({1: 3, 2: 1}))
    made.remove("2", 1, {})
    assert routes(made) == routes(exchange({1: 1, 2: 1}))


def test_queues_and_exchanges_are_destinations_alike() -> None:
    made = exchange({1: 1})
    made.add("1", "an exchange", {})
    assert set(routes(made).values()) == {1, "an exchange"}


def test_without_bindings_nothing_is_routed() -> None:
    assert not ConsistentHash().match("k")


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"hash-header": "user"}, lambda value: Properties(headers={"user": value})),
        ({"hash-property": "message_id"}, lambda value: Properties(message_id=value)),
        ({"hash-property": "correlation_id"}, lambda value: Properties(correlation_id=value)),
        ({"hash-property": "timestamp"}, lambda value: Properties(timestamp=int(value))),
    ],
)
def test_what_the_arguments_name_decides_and_not_the_key(arguments: dict[str, str], properties: Any) -> None:
    made = exchange({1: 1, 2: 1, 3: 1}, **arguments)
    assert made.needs_message
    found = {value: made.match("k", properties(str(value))) for value in range(100)}
    assert found == {value: made.match("another", properties(str(value))) for value in range(100)}
    assert len(set(map(tuple, found.values()))) == 3


@pytest.mark.parametrize("arguments", [{"hash-header": "h"}, {"hash-property": "message_id"}])
def test_messages_without_what_decides_have_one_destination(arguments: dict[str, str]) -> None:
    made = exchange({1: 1, 2: 1, 3: 1}, **arguments)
    assert made.match("a", None) == made.match("b", Properties()) == made.match("c", Properties(headers={"x": 1}))
    assert len(made.match("a", None)) == 1


def test_header_values_of_any_type_can_decide() -> None:
    made = exchange(dict.fromkeys(range(20), 1), **{"hash-header": "h"})
    for value in (1, 1.5, True, b"x", [1, {"a": 2}], {"a": 1, "b": 2}, None):
        assert len(made.match("", Properties(headers={"h": value}))) == 1


def test_by_key_alone_routes_can_be_remembered() -> None:
    assert not ConsistentHash().needs_message


@pytest.mark.parametrize("key", ["0", "-1", "", "k", "1.5", " 1", "1_0", "\N{SUPERSCRIPT TWO}"])
def test_a_weight_is_a_whole_number_from_1(key: str) -> None:
    with pytest.raises(PreconditionFailed, match="a whole number from 1"):
        ConsistentHash.check_binding(key, {})


@pytest.mark.parametrize("key", ["1", "10", "9" * 255])
def test_any_weight_is_taken(key: str) -> None:
    ConsistentHash.check_binding(key, {})
    made = exchange({1: 1})
    made.add(key, 2, {})
    assert len(made.match("k")) == 1


@pytest.mark.parametrize("value", [{1: 2, "a": 3}, [{(1, 2): 3}], {"a": {None: 1}}])
def test_a_header_that_is_a_table_counts_as_none_whatever_its_keys_are(value: Any) -> None:
    made = exchange(dict.fromkeys(range(1, 50), 1), **{"hash-header": "h"})
    assert list(made.match("key", Properties(headers={"h": value}))) == list(made.match("key", Properties()))
