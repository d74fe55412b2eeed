"""Paging, sorting, filtering and columns."""

from typing import Any

import pytest

from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed

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
