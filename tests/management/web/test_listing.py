"""Paging, sorting, filtering and columns."""

import json
import os
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import MATCH_SECONDS, NameFilter, in_order, listed
from shardmq.management.web.sorting import SortedRuns

ROWS: list[dict[str, Any]] = [
    {"name": f"queue-{number}", "messages": (number * 7) % 10, "message_stats": {"publish": number}}
    for number in range(10)
]


def test_without_a_page_all_is_answered() -> None:
    assert listed(ROWS, {}) == ROWS


def test_a_page_is_in_an_envelope() -> None:
    found = listed(ROWS, {"page": "2", "page_size": "4", "name": "QUEUE"})
    assert [row["name"] for row in found.pop("items")] == ["queue-4", "queue-5", "queue-6", "queue-7"]
    assert found == {
        "page": 2,
        "page_size": 4,
        "page_count": 3,
        "item_count": 4,
        "filtered_count": 10,
        "total_count": 10,
    }


def test_names_are_found_by_a_part_or_by_an_expression() -> None:
    assert [row["name"] for row in listed(ROWS, {"name": "-3"})] == ["queue-3"]
    assert len(listed(ROWS, {"name": "^queue-[1-4]$", "use_regex": "true", "page": "1"})["items"]) == 4
    assert listed(ROWS, {"name": "^queue-[1-4]$", "page": "1"})["items"] == []


def test_a_column_inside_another_sorts() -> None:
    found = listed(ROWS, {"sort": "message_stats.publish", "sort_reverse": "true", "columns": "name"})
    assert found[:2] == [{"name": "queue-9"}, {"name": "queue-8"}]
    mixed = [{"name": "a", "x": "text"}, {"name": "b", "x": 2}, {"name": "c"}, {"name": "d", "x": True}]
    assert [row["name"] for row in listed(mixed, {"sort": "x"})] == ["c", "d", "b", "a"]


def test_columns_keep_the_tables_they_are_in() -> None:
    found = listed(ROWS[:1], {"columns": "name,message_stats.publish,no.such,nothing"})
    assert found == [{"name": "queue-0", "message_stats": {"publish": 0}}]


@pytest.mark.parametrize(
    "column", ["name.q", "messages.x", "durable.x", "tags.0", "arguments.x", "message_stats.publish.x"]
)
def test_a_column_inside_what_is_no_table_is_nothing(column: str) -> None:
    row = {**ROWS[0], "durable": True, "tags": ["a"], "arguments": None}
    assert listed([row], {"columns": f"{column},messages"}) == [{"messages": 0}]
    assert listed([row], {"columns": f"messages,{column}"}) == [{"messages": 0}]


@pytest.mark.parametrize(
    "query",
    [
        *({"page": page} for page in ("0", "-1", "x", "1.5", "9" * 30, "\uff12")),
        {"page": "1", "page_size": "501"},
        {"page": "1", "page_size": "0"},
        {"page": "99"},
        {"page": "1", "name": "(", "use_regex": "true"},
        {"name": "(a|aa)+$", "use_regex": "true"},
    ],
)
def test_parameters_without_a_meaning_are_refused(query: dict[str, str]) -> None:
    rows = [{"name": "a" * 60 + "!"}] * 3
    with pytest.raises(ApiError) as refused:
        listed(rows, query)
    assert refused.value.status == 400


def test_an_expression_that_takes_long_is_given_up_after_all_names_together() -> None:
    names = NameFilter({"name": "(a|aa)+$", "use_regex": "true"})
    rows = [{"name": "a" * 24 + "!"}]  # some 10 ms, 10,000 times
    begun = time.process_time()
    with pytest.raises(ApiError, match="takes too long"):
        names.keep(rows * 10_000)
    assert time.process_time() - begun < 2 * MATCH_SECONDS


@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 3), st.floats(allow_nan=False), st.text(max_size=2)), max_size=60),
    st.integers(1, 7),
    st.booleans(),
)
def test_rows_sorted_in_runs_are_in_the_order_that_sorting_all_gives(
    values: list[Any], size: int, is_reversed: bool
) -> None:
    rows = [{"at": {"value": value}, "number": number} for number, value in enumerate(values)]
    query = {"sort": "at.value", "sort_reverse": str(is_reversed), "columns": "number"}
    runs = SortedRuns(query)
    for start in range(0, len(rows), size):
        runs.add(rows[start : start + size])
    expected = [{"number": row["number"]} for row in in_order(rows, query)]
    assert [json.loads(row) for row in runs.merged()] == expected
    assert [json.loads(row) for row in runs.merged(2, 5)] == expected[2:5]


def test_runs_that_do_not_fit_one_look_are_read_whole() -> None:
    texts = [f"{number:05}" + os.urandom(700).hex() for number in range(300)]
    runs = SortedRuns({"sort": "text"})
    runs.add([{"text": text} for text in reversed(texts)])
    assert [json.loads(row)["text"] for row in runs.merged()] == texts
