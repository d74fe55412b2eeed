"""Filters, order, pages and columns of lists."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import regex

from shardmq.errors import InvalidRequest
from shardmq.protocol.native.operations.statistics import StatsList
from shardmq.search.bounded import BoundedSearch
from shardmq.topology.expressions import read_expression

FILTER_SECONDS: Final = 0.1
"""A regular expression may take this long with all names together: nobody else is served meanwhile."""

Row = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page:
    """What of a list is shown.

    Attributes:
        start: the first item's place.
        end: the place behind the last one's.
        total: items without the filter by name.
        filtered: items on all pages.
        number: of the page, from 1 on; 0 where everything is on it.
        size: items of a page.
    """

    start: int
    end: int
    total: int
    filtered: int
    number: int
    size: int

    @staticmethod
    def of(operation: StatsList, total: int, filtered: int) -> "Page":
        """The page that is asked for.

        Raises:
            InvalidRequest: there is none of that number.
        """
        if not operation.page:
            return Page(0, filtered, total, filtered, 0, filtered)
        start = (operation.page - 1) * operation.page_size
        if start >= filtered and operation.page > 1:
            pages = max(1, -(-filtered // operation.page_size))
            raise InvalidRequest(
                f"page {operation.page} out of range: there are {pages} pages of {operation.page_size} {operation.noun}"
            )
        end = min(start + operation.page_size, filtered)
        return Page(start, end, total, filtered, operation.page, operation.page_size)

    def table(self, rows: Sequence[Row], columns: Sequence[str]) -> Row:
        """The answer."""
        return {
            "items": [*map(picker(columns), rows)] if columns else rows,
            "page": self.number or 1,
            "page_size": self.size,
            "page_count": max(1, -(-self.filtered // self.size)) if self.size else 1,
            "item_count": len(rows),
            "filtered_count": self.filtered,
            "total_count": self.total,
        }


def name_filter(operation: StatsList) -> Callable[[Iterable[Item], Callable[[Item], str]], list[Item]]:
    """A function that keeps those items whose names match.

    Raises:
        InvalidRequest: the expression cannot be read; by the function, where it takes too long.
    """
    if not operation.name:
        return lambda items, _name_of: list(items)
    if not operation.use_regex:
        part = operation.name.lower()
        return lambda items, name_of: [item for item in items if part in name_of(item).lower()]
    pattern = read_expression("the name filter", operation.name, regex.IGNORECASE)

    def keep(items: Iterable[Item], name_of: Callable[[Item], str]) -> list[Item]:
        expression = BoundedSearch(pattern, FILTER_SECONDS)
        try:
            return [item for item in items if expression.finds(name_of(item))]
        except TimeoutError:
            raise InvalidRequest(
                f"the name filter '{operation.name}' takes too long; simplify the expression"
            ) from None

    return keep


def value_at(row: Row, column: str) -> Any:
    """What a row has in a column, dotted where it is in a table; None for nothing."""
    found: Any = row
    for name in column.split("."):
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def picker(columns: Sequence[str]) -> Callable[[Row], Row]:
    """A function that picks the wanted columns of a row, 3 µs for 16 of them; a list has many rows."""
    plain = [column for column in columns if "." not in column]
    tables: dict[str, list[str]] = {}
    for column in columns:
        table, dot, name = column.partition(".")
        if dot and table not in plain:
            tables.setdefault(table, []).append(name)
    inside = {table: picker(names) for table, names in tables.items()}

    def picked(row: Row) -> Row:
        found = {name: row[name] for name in plain if name in row}
        for table, pick in inside.items():
            source = row.get(table)
            if isinstance(source, dict):
                found[table] = pick(source)
        return found

    return picked


def rank(value: Any) -> tuple[int, Any]:
    """What values of any kind are ordered by: numbers, then texts; what is missing or a table comes first."""
    if isinstance(value, bool | int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (0, 0)


def sort_rows(rows: list[Row], operation: StatsList, order: Sequence[str]) -> list[Row]:
    """Rows by the column asked for; those that are equal there, and where none is asked for, by `order`.

    Raises:
        InvalidRequest: no row has that column.
    """
    rows.sort(key=lambda row: [rank(row.get(name)) for name in order])
    column = operation.sort
    if column and column != order[-1]:
        values = [value_at(row, column) for row in rows]
        if rows and all(value is None for value in values) and column.partition(".")[0] not in rows[0]:
            raise InvalidRequest(f"{operation.noun} have no column '{column}' to sort by")
        rows.sort(key=lambda row: rank(value_at(row, column)), reverse=operation.reverse)
    elif operation.reverse:
        rows.reverse()
    return rows


def show(operation: StatsList, rows: list[Row], name_of: Callable[[Row], str], order: Sequence[str]) -> Row:
    """The answer to a list of which all rows are at hand.

    Raises:
        InvalidRequest: the filter, the column to sort by or the page makes no sense.
    """
    found: list[Row] = name_filter(operation)(rows, name_of)
    page = Page.of(operation, len(rows), len(found))
    found = sort_rows(found, operation, order)
    return page.table(found[page.start : page.end], operation.columns)
