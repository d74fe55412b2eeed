"""The requests of those who look at much, page by page, as values."""

from collections.abc import Sequence
from typing import Any

from shardmq.client.api.results import converted
from shardmq.client.api.statistics import ListQuery
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_fields, check_names, check_number, words
from shardmq.limits import LIST_PAGE_MAX
from shardmq.protocol.native.operations.statistics import FindingsTell, StatsGet, StatsList, StatsOverview

Table = dict[str, Any]


def _table(result: object) -> Table:
    return converted(result, Table, "a request for a table")


def stats_list(noun: str, query: ListQuery) -> Request[Table]:
    """List things of one kind, with counters and rates."""
    check_names(noun=noun, vhost=query.vhost or "", name=query.name, sort=query.sort)
    check_number("page", query.page, 0, 2**31 - 1)
    check_number("page_size", query.page_size, 1, LIST_PAGE_MAX)
    operation = StatsList(
        0,
        0,
        noun,
        query.vhost,
        query.name,
        query.use_regex,
        query.sort,
        query.reverse,
        query.page,
        query.page_size,
        words("columns", query.columns),
        query.with_statistics,
    )
    check_fields(operation)
    return Request(f"listing {noun}", _table, operation)


def stats_get(noun: str, vhost: str, name: str) -> Request[Table]:
    """Describe one thing."""
    check_names(noun=noun, vhost=vhost, name=name)
    return Request(f"describing '{name}' of {noun}", _table, StatsGet(0, 0, noun, vhost, name))


def stats_overview(vhost: str | None, is_detailed: bool) -> Request[Table]:
    """Sum up the broker."""
    check_names(vhost=vhost or "")
    return Request("asking for an overview", _table, StatsOverview(0, 0, vhost, is_detailed))


def findings_tell(findings: Sequence[tuple[bool, Table]]) -> Request[bool]:
    """Publish findings that begin or end."""
    operation = FindingsTell(0, 0, list(findings))
    check_fields(operation)
    return Request("telling of findings", lambda result: bool(_table(result)["is_heard"]), operation)
