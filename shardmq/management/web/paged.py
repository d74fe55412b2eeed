"""Lists that the broker itself pages, filters and sorts: one page of 10,000 queues costs what it shows."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from shardmq.client.api.statistics import ListQuery
from shardmq.errors import InvalidRequest, NotFound
from shardmq.limits import LIST_PAGE_MAX
from shardmq.management.samples.spans import BadSpan, Spans, now, spans_of
from shardmq.management.web.call import Call, Row
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import page_of, with_columns
from shardmq.management.web.long_lists import ROWS_AT_ONCE, Pieces, in_pieces, long_list

COUNTS: Final = ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "ack", "redeliver")
"""What queues and connections count of messages, in RabbitMQ's words and ours."""

EXCHANGE: Final = ("vhost", "name", "type", "durable", "auto_delete", "internal", "arguments", "counts", "rates")
"""What is shown of an exchange."""

PAGES: Final[Mapping[str, tuple[int, Sequence[str]]]] = {
    "queues": (ROWS_AT_ONCE, ()),
    "exchanges": (LIST_PAGE_MAX, EXCHANGE),
}
"""What is listed page by page: how much at once, as an exchange takes a tenth of a queue, and what is shown."""

DELIVER_GET: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""What RabbitMQ sums up as deliver_get."""


def message_stats(counts: Row, rates: Row) -> Row:
    """Counts of messages and their rates, as RabbitMQ writes them: "publish", "publish_details"."""
    shown: Row = {}
    for name in (*COUNTS, *(name for name in counts if name not in COUNTS)):
        shown[name] = counts.get(name, 0)
        shown[f"{name}_details"] = {"rate": rates.get(name, 0.0)}
    shown["deliver_get"] = sum(counts.get(name, 0) for name in DELIVER_GET)
    shown["deliver_get_details"] = {"rate": sum(rates.get(name, 0.0) for name in DELIVER_GET)}
    return shown


def sort_names(more: Mapping[str, str]) -> Mapping[str, str]:
    """RabbitMQ's names of columns to sort by, and ours; `more` beside those of message_stats."""
    names = {}
    for name in COUNTS:
        names[f"message_stats.{name}"] = f"counts.{name}"
        names[f"message_stats.{name}_details.rate"] = f"rates.{name}"
    return {"": "", "name": "", **names, **more}


def asked_spans(call: Call) -> Spans:
    """The samples that a request asks for.

    Raises:
        ApiError: an age or a step makes no sense.
    """
    try:
        return spans_of(call.query)
    except BadSpan as fault:
        raise ApiError.bad_request(str(fault)) from fault


def with_samples(call: Call, noun: str, rows: list[Row]) -> list[Row]:
    """Rows with the samples that a request asks for.

    Raises:
        ApiError: an age or a step makes no sense.
    """
    call.facts.samples.look(noun, rows, asked_spans(call), now())
    return rows


async def _all(call: Call, noun: str, query: ListQuery, show: Callable[[Row], Row]) -> Pieces:
    """All queues or exchanges, of which some hundred are in memory at a time.

    The broker lists them page by page. Those that are deleted meanwhile move others to pages that were there before:
    those are asked for one by one.

    Raises:
        ApiError: the filter by name makes no sense.
    """
    connection = await call.caller.administration()

    async def page(number: int) -> Row:
        return await connection.stats_list(noun, dataclasses.replace(query, page=number))

    def shown(rows: list[Row]) -> list[Row]:
        return with_samples(call, noun, [show(row) for row in rows if row.get("vhost", "-")])

    with refusals():
        table = await page(1)
        if table["page_count"] == 1:
            yield shown(table["items"])
            return
        names = dataclasses.replace(query, columns=["vhost", "name"], with_statistics=False)
        left = {(row["vhost"], row["name"]) for row in (await connection.stats_list(noun, names)).pop("items")}
    for number in count(2):
        rows = [row for row in table["items"] if (row["vhost"], row["name"]) in left]
        left.difference_update([(row["vhost"], row["name"]) for row in rows])
        yield shown(rows)
        if number > table["page_count"]:
            break
        try:
            table = await page(number)
        except InvalidRequest:
            break  # so many were deleted meanwhile
    for vhost, name in sorted(left):
        with contextlib.suppress(NotFound):
            yield shown([await connection.stats_get(noun, vhost, name)])


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Has what the broker refuses of a list be told in RabbitMQ's words."""
    try:
        yield
    except InvalidRequest as fault:
        error = "page_out_of_range" if "out of range" in fault.text else "bad_request"
        raise ApiError(400, error, fault.text) from fault


async def paged(call: Call, noun: str, vhost: str | None, show: Callable[[Row], Row], sorts: Mapping[str, str]) -> Any:
    """A list as it was asked for: a page of it in an envelope, or all.

    Args:
        call: the request.
        noun: of the broker's list.
        vhost: whose; None for all that the caller may see.
        show: a row in RabbitMQ's words.
        sorts: RabbitMQ's names of the columns that the broker sorts by, and its own.

    Raises:
        ApiError: a parameter makes no sense, or there is no such page.
    """
    has_statistics = not call.has_flag("disable_stats") or call.has_flag("enable_queue_totals")
    sort = sorts.get(call.query.get("sort", ""))
    if "page" not in call.query or sort is None:
        return await _long(call, noun, ListQuery(vhost, with_statistics=has_statistics), show)
    page, size = page_of(call.query)
    query = ListQuery(
        vhost,
        call.query.get("name", ""),
        call.has_flag("use_regex"),
        sort,
        call.has_flag("sort_reverse"),
        page,
        size,
        with_statistics=has_statistics,
    )
    with refusals():
        table = await (await call.caller.administration()).stats_list(noun, query)
    rows = with_samples(call, noun, [show(row) for row in table["items"] if row.get("vhost", "-")])
    if noun == "queues":
        call.facts.samples.listed(noun, rows, now())
    table["items"] = [with_columns(row, call.query) for row in rows]
    table["item_count"] = len(table["items"])
    return table


async def _long(call: Call, noun: str, everything: ListQuery, show: Callable[[Row], Row]) -> Any:
    """A list that the broker does not cut or sort as it was asked for."""
    if noun in PAGES:
        size, columns = PAGES[noun]
        query = dataclasses.replace(everything, page_size=size, columns=columns)
        return await long_list(_all(call, noun, query, show), call)
    table = await (await call.caller.administration()).stats_list(noun, everything)

    def shown(rows: list[Row]) -> list[Row]:
        return with_samples(call, noun, [show(row) for row in rows if row.get("vhost", "-")])

    return await long_list(in_pieces(table.pop("items"), shown), call)
