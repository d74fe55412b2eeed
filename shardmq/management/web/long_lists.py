"""Lists of any length, of which some hundred rows are in memory at a time."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from shardmq.management.web.call import Call
from shardmq.management.web.listing import NameFilter, envelope, page_of, window, with_columns
from shardmq.management.web.sorting import SortedRuns
from shardmq.management.web.streaming import json_list

ROWS_AT_ONCE: Final = 200
"""A queue in RabbitMQ's words takes some 10 KB."""

Row = dict[str, Any]
Pieces = AsyncIterator[list[Row]]


async def in_pieces(rows: list[Row], show: Callable[[list[Row]], list[Row]]) -> Pieces:
    """Rows in RabbitMQ's words, some at a time, of rows that the broker gave at once; these are forgotten meanwhile."""
    rows.reverse()
    while rows:
        piece = [rows.pop() for _ in range(min(ROWS_AT_ONCE, len(rows)))]
        yield show(piece)


async def long_list(pieces: Pieces, call: Call) -> Any:
    """A list as it was asked for: a page of it in an envelope, or all; where that is long, to be sent piece by piece.

    Args:
        pieces: all rows, in RabbitMQ's words.
        call: the request.

    Raises:
        ApiError: a parameter makes no sense, or there is no such page.
    """
    query = call.query
    names = NameFilter(query)
    if query.get("sort"):
        async with call.facts.sorting:
            runs, total = await _gathered(pieces, names, query)
        return _sorted(runs, total, query)
    if "page" in query:
        return await _page(pieces, names, query)
    first: list[Row] = await anext(pieces, [])
    following = await anext(pieces, None)
    if following is None:
        return _cut(names.keep(first), query)

    async def rest() -> Pieces:
        yield _cut(names.keep(first), query)
        yield _cut(names.keep(following), query)
        async for rows in pieces:
            yield _cut(names.keep(rows), query)

    return json_list(rest())


async def _gathered(pieces: Pieces, names: NameFilter, query: Mapping[str, str]) -> tuple[SortedRuns, int]:
    runs, total = SortedRuns(query), 0
    async for rows in pieces:
        total += len(rows)
        runs.add(names.keep(rows))
    return runs, total


def _sorted(runs: SortedRuns, total: int, query: Mapping[str, str]) -> Any:
    if "page" in query:
        page, size = page_of(query)
        start, end = window(page, size, len(runs))
        return envelope([*map(msgspec.Raw, runs.merged(start, end))], page, size, len(runs), total)
    rows_in_order = map(msgspec.Raw, runs.merged())
    if len(runs) <= ROWS_AT_ONCE:
        return [*rows_in_order]
    return json_list(_some_at_a_time(rows_in_order))


async def _page(pieces: Pieces, names: NameFilter, query: Mapping[str, str]) -> Any:
    page, size = page_of(query)
    start, items, found, total = (page - 1) * size, list[Row](), 0, 0
    async for rows in pieces:
        total += len(rows)
        kept = names.keep(rows)
        items += _cut(kept[max(0, start - found) : max(0, start + size - found)], query)
        found += len(kept)
    window(page, size, found)
    return envelope(items, page, size, found, total)


def _cut(rows: list[Row], query: Mapping[str, str]) -> list[Row]:
    return [with_columns(row, query) for row in rows]


async def _some_at_a_time(rows: Iterator[msgspec.Raw]) -> AsyncIterator[list[msgspec.Raw]]:
    while some := [*islice(rows, ROWS_AT_ONCE)]:
        yield some
