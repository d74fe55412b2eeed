"""Lists as RabbitMQ pages, sorts and filters them: `page`, `page_size`, `name`, `use_regex`, `sort`, `columns`.

https://www.rabbitmq.com/docs/management#http-api: without `page` the answer is the whole list.
"""

from collections.abc import Mapping
from typing import Any, Final

import regex

from shardmq.errors import InvalidRequest
from shardmq.management.web.errors import ApiError
from shardmq.search.bounded import BoundedSearch
from shardmq.topology.expressions import read_expression

Row = dict[str, Any]

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
"""RabbitMQ's."""

MATCH_SECONDS: Final = 1.0
"""For all names of a list together: a caller's expression must not hold everybody else up."""

COLUMNS_MAX: Final = 200

PARAMETERS: Final = (
    "page",
    "page_size",
    "name",
    "use_regex",
    "sort",
    "sort_reverse",
    "columns",
    "pagination",
    "disable_stats",
    "enable_queue_totals",
)
"""The parameters of lists."""


def listed(rows: list[Row], query: Mapping[str, str]) -> Any:
    """A list as it was asked for: a page of it in an envelope, or all.

    Raises:
        ApiError: a parameter makes no sense, or there is no such page.
    """
    found = NameFilter(query).keep(rows)
    if "page" not in query:
        return [with_columns(row, query) for row in in_order(found, query)]
    page, size = page_of(query)
    start, end = window(page, size, len(found))
    items = in_order(found, query)[start:end]
    return envelope([with_columns(row, query) for row in items], page, size, len(found), len(rows))


def window(page: int, size: int, found: int) -> tuple[int, int]:
    """The places of the first row of a page, and behind its last one.

    Raises:
        ApiError: there is no such page.
    """
    first = (page - 1) * size
    if first > found:
        raise ApiError(400, "page_out_of_range", f"Page out of range, page: {page} page size: {size}, len: {found}")
    return first, first + size


def envelope(items: list[Any], page: int, size: int, found: int, total: int) -> Row:
    """A page as RabbitMQ sends it.

    Args:
        items: its rows.
        page: its number.
        size: rows of a page.
        found: rows on all pages.
        total: rows without the filter by name.
    """
    return {
        "filtered_count": found,
        "item_count": len(items),
        "items": items,
        "page": page,
        "page_count": -(-found // size) or 1,
        "page_size": size,
        "total_count": total,
    }


def page_of(query: Mapping[str, str]) -> tuple[int, int]:
    """The number of the page that was asked for, and how many rows it has.

    Raises:
        ApiError: one of them makes no sense.
    """
    page, size = _number(query, "page", 1), _number(query, "page_size", PAGE_SIZE)
    if size > PAGE_SIZE_MAX:
        raise ApiError.bad_request(f"page_size is {size}; {PAGE_SIZE_MAX} at most")
    return page, size


class NameFilter:
    """Keeps the rows with the name that was asked for: a part of it in any case, or a regular expression.

    Args:
        query: with `name` and `use_regex`.

    Raises:
        ApiError: it is no regular expression.
    """

    def __init__(self, query: Mapping[str, str]) -> None:
        self._part = query.get("name", "").lower()
        self._expression: BoundedSearch | None = None
        if self._part and query.get("use_regex", "").lower() == "true":
            try:
                pattern = read_expression("the name filter", query["name"], regex.IGNORECASE)
            except InvalidRequest as fault:
                raise ApiError.of(fault) from fault
            self._expression = BoundedSearch(pattern, MATCH_SECONDS)

    def keep(self, rows: list[Row]) -> list[Row]:
        """The rows that have it.

        Raises:
            ApiError: the expression takes too long, with all that it was tried on so far.
        """
        if not self._part:
            return rows
        if self._expression is None:
            return [row for row in rows if self._part in str(row.get("name", "")).lower()]
        try:
            return [row for row in rows if self._expression.finds(str(row.get("name", "")))]
        except TimeoutError:
            raise ApiError.bad_request("the regular expression in name takes too long; write a simpler one") from None


def in_order(rows: list[Row], query: Mapping[str, str]) -> list[Row]:
    """The rows sorted by the column that was asked for, dotted where it is inside another."""
    column = query.get("sort", "")
    if not column:
        return rows
    path = column.split(".")
    is_reversed = query.get("sort_reverse", "").lower() == "true"
    return sorted(rows, key=lambda row: sortable(inside(row, path)), reverse=is_reversed)


def inside(row: Any, path: list[str]) -> Any:
    """A value inside tables; None where there is none."""
    for step in path:
        row = row.get(step) if isinstance(row, dict) else None
    return row


def sortable(value: Any) -> tuple[int, float, str]:
    """A key by which values of any type have an order: none, numbers, texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def with_columns(row: Row, query: Mapping[str, str]) -> Row:
    """A row with those columns only that were asked for."""
    columns = query.get("columns", "")
    if not columns:
        return row
    kept: Row = {}
    for column in columns.split(",")[:COLUMNS_MAX]:
        path = column.strip().split(".")
        table = inside(row, path[:-1])
        if not isinstance(table, dict):
            continue
        place = kept
        for step in path[:-1]:
            place = place.setdefault(step, {})
        if path[-1] in table:
            place[path[-1]] = table[path[-1]]
    return kept


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    given = query.get(name, "")
    if not given:
        return default
    if not (given.isascii() and given.isdigit()) or len(given) > 9 or int(given) < 1:
        raise ApiError.bad_request(f"{name} is '{given[:20]}'; give a number from 1 on")
    return int(given)
