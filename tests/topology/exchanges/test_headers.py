"""Headers exchanges against RabbitMQ's documentation of x-match, and what counts as equal."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import PreconditionFailed
from shardmq.message.properties import Properties
from shardmq.topology.exchanges.headers import Headers, equal


def matches(arguments: dict[str, Any], headers: dict[str, Any] | None) -> bool:
    exchange = Headers()
    exchange.add("", 1, arguments)
    return bool(exchange.match("any key", Properties(headers=headers)))


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "all", "a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1, "b": 3}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"c": 1}, False),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "all"}, None, True),
        ({}, None, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"x-match": "any"}, None, False),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {"b": 1}, False),
        ({"x-match": "any", "a": None, "b": 1}, {"a": 5}, True),
        ({"a": 1}, None, False),
        ({"x-a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"b": 2, "x-a": 1}, True),
        ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True),
        ({"x-match": "all-with-x"}, None, True),
        ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
    ],
)
def test_matches_as_rabbitmq_does(arguments: dict[str, Any], headers: dict[str, Any] | None, expected: bool) -> None:
    assert matches(arguments, headers) is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        ("1", 1, False),
        ("a", b"a", True),
        (b"a", "a", True),
        ("a", b"b", False),
        ([1, 2], [1.0, 2], True),
        ([1], [True], False),
        ([1], [1, 2], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, 0, False),
        (1, None, False),
        (Decimal("1.50"), Decimal("1.5"), True),
        (Decimal("1.50"), "1.50", True),
        ("1.50", Decimal("1.50"), True),
        (Decimal("1.50"), "1.5", False),
        (Decimal(1), True, False),
    ],
)
def test_equal_is_by_value_but_true_is_no_number(left: Any, right: Any, expected: bool) -> None:
    assert equal(left, right) is expected
    assert matches({"h": right}, {"h": left}) is (expected or right is None)


@pytest.mark.parametrize("how", ["some", "ALL", "", 1, None, True])
def test_x_match_is_one_of_four(how: Any) -> None:
    with pytest.raises(PreconditionFailed, match="all, any, all-with-x, any-with-x"):
        Headers.check_binding("", {"x-match": how})


@pytest.mark.parametrize("how", ["all", "any", "all-with-x", "any-with-x"])
def test_the_four_are_taken_and_so_is_none(how: str) -> None:
    Headers.check_binding("", {"x-match": how, "a": 1})
    Headers.check_binding("", {"a": 1})


def test_bindings_that_differ_in_a_values_type_are_two() -> None:
    exchange = Headers()
    exchange.add("", 1, {"a": 1})
    exchange.add("", 1, {"a": True})
    exchange.remove("", 1, {"a": True})
    assert list(exchange.match("", Properties(headers={"a": 1}))) == [1]
    assert not exchange.match("", Properties(headers={"a": True}))


TABLES = st.dictionaries(st.sampled_from(["a", "b", "x-c"]), st.sampled_from([None, 1, True, "1"]))


@given(TABLES, TABLES, st.sampled_from(["all", "any", "all-with-x", "any-with-x"]))
def test_means_what_the_definition_says(wanted: dict[str, Any], headers: dict[str, Any], how: str) -> None:
    counted = {name for name in wanted if "with-x" in how or not name.startswith("x-")}
    given_values = {name: (type(headers[name]), headers[name]) for name in counted & headers.keys()}
    hits = {
        name
        for name, value in given_values.items()
        if wanted[name] in (None, value[1]) and (wanted[name] is None or type(wanted[name]) is value[0])
    }
    expected = hits == counted if how.startswith("all") else bool(hits)
    assert matches({**wanted, "x-match": how}, headers) is expected
