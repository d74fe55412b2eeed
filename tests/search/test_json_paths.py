"""Conditions on values inside documents."""

import time
from typing import Any

import pytest

from shardmq.errors import InvalidRequest
from shardmq.search.json_paths import Condition

ORDER = {
    "id": "A-7",
    "paid": True,
    "total": 120.5,
    "note": None,
    "odd name": {"x": 1},
    "items": [{"sku": "b", "price": 9}, {"sku": "c", "price": 10.0, "tags": ["new", "red"]}],
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("$.id", True),
        ("$.nothing", False),
        ("$.note", True),
        ("$.note == null", True),
        ("$.id == 'A-7'", False),  # JSON has no such quotation marks: they are part of the text
        ('$.id == "A-7"', True),
        ("$.id = A-7", True),
        ("$.id != A-7", False),
        ("$.total > 100", True),
        ("$.total <= 100", False),
        ("$.paid == true", True),
        ("$.paid == 1", False),
        ("$.total > abc", False),
        ("$['odd name'].x == 1", True),
        ('$["odd name"]["x"] >= 1.0', True),
        ("$.items[0].price == 9", True),
        ("$.items[-1].sku == c", True),
        ("$.items[5]", False),
        ("$.items[*].price == 10", True),
        ("$.items.*.price > 10", False),
        ("$..tags[*] == red", True),
        ("$..price < 10", True),
        ("$..*", True),
        ("$", True),
    ],
)
def test_a_condition_holds_where_a_value_at_its_path_is_so(text: str, holds: bool) -> None:
    assert Condition(text).holds(ORDER) is holds


@pytest.mark.parametrize("text", ["", "id", "$id", "$.", "$.a >", "$.a ~ 1", "$[?(@.a)]", "$.a[0:2]", "$.a b"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Condition(text)


def test_descents_inside_descents_end_in_time() -> None:
    deep: Any = list(range(20_000))
    for _ in range(200):
        deep = [deep, deep]
    began = time.process_time()
    assert not Condition("$..*..*..*..x == 1").holds(deep)
    assert time.process_time() - began < 0.5
