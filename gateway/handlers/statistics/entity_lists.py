"""Lists of what the replica has, with what gateways count of it.

A page is cut of the things themselves where they have the column that it is sorted by: only those on it become rows.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.definitions.rows import Row
from shardmq.gateway.handlers.statistics.clients import ask_gateways, reply_with
from shardmq.gateway.handlers.statistics.entities import ENTITIES, in_order, only, with_tallies
from shardmq.gateway.handlers.statistics.overview import sum_up
from shardmq.gateway.handlers.statistics.paging import Page, name_filter, rank, sort_rows
from shardmq.gateway.state.gateway import GatewayState
from shardmq.limits import LIST_PAGE_MAX
from shardmq.protocol.native.operations.statistics import StatsList

Then = Callable[[list[Row]], None]

FLOW: Final = frozenset(("counts", "rates"))
"""Tables that are counted, not declared."""


def list_entities(state: GatewayState, operation: StatsList, vhosts: Collection[str], reply: Reply) -> None:
    """List things of one kind in these virtual hosts.

    Raises:
        InvalidRequest: the filter, the column to sort by or the page makes no sense.
    """
    noun, entity = operation.noun, ENTITIES[operation.noun]
    every = in_order(state, noun, vhosts)
    found = name_filter(operation)(every, entity.searched)
    page = Page.of(operation, len(every), len(found))
    if operation.sort in ("", entity.order[-1]):
        if operation.reverse:
            found.reverse()
    elif operation.sort in entity.columns:
        column = entity.columns[operation.sort]
        found.sort(key=lambda thing: rank(column(thing)), reverse=operation.reverse)
    else:
        _count(state, noun, _rows(state, noun, found), vhosts, (), _sorted(operation, page, reply))
        return
    shown = found[page.start : page.end]
    columns, left = operation.columns, operation.columns
    declared = [name for name in columns if name not in FLOW]
    if entity.columns.keys() >= set(declared) >= set(entity.order):
        picked = {name: entity.columns[name] for name in declared}
        rows = [{name: column(thing) for name, column in picked.items()} for thing in shown]
        left = [] if len(columns) - len(declared) in (0, len(FLOW)) else columns
    else:
        rows = _rows(state, noun, shown)
    _count(state, noun, rows, vhosts, columns, lambda rows: reply(page.table(rows, left)))


def _rows(state: GatewayState, noun: str, things: list[Any]) -> list[Row]:
    entity = ENTITIES[noun]
    return [entity.row(state, thing) for thing in things]


def _sorted(operation: StatsList, page: Page, reply: Reply) -> Then:
    """A function that replies with the page of rows that are sorted by what is in them alone."""

    def shape(rows: list[Row]) -> Row:
        found = sort_rows(rows, operation, ENTITIES[operation.noun].order)
        return page.table(found[page.start : page.end], operation.columns)

    return reply_with(reply, shape)


def get_entity(state: GatewayState, noun: str, name: str, vhosts: Collection[str], reply: Reply) -> None:
    """Describe one thing.

    Raises:
        NotFound: it does not exist.
    """
    name_of = ENTITIES[noun].columns["name"]
    thing = only([thing for thing in in_order(state, noun, vhosts) if name_of(thing) == name], noun, name)
    _count(state, noun, _rows(state, noun, [thing]), vhosts, (), lambda rows: reply(rows[0]))


def _count(
    state: GatewayState, noun: str, rows: list[Row], vhosts: Collection[str], columns: Sequence[str], then: Then
) -> None:
    """Call `then` with the rows, and what is counted of exchanges and virtual hosts where a column wants it."""

    def join_vhosts(summed: Any) -> None:
        then([{**row, **summed["vhosts"].get(row["name"], {})} for row in rows])

    if noun == "vhosts":
        sum_up(state, vhosts, False, False, join_vhosts)
    elif noun == "exchanges" and (not columns or FLOW.intersection(column.partition(".")[0] for column in columns)):
        names = [row["name"] for row in rows] if len(rows) <= LIST_PAGE_MAX else None
        query = {"vhosts": list({row["vhost"] for row in rows}), "names": names}
        ask_gateways(state, noun, query, lambda tallies: then(with_tallies(rows, tallies)))
    else:
        then(rows)
