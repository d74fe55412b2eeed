"""Connections, channels and consumers of all gateways.

Each gateway names the first of its own, and the one that was asked merges them. What takes long to say of each, as what
a client says of itself, is said of those alone.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import InvalidRequest, RequestError
from shardmq.gateway.events.encryption import tls_facts
from shardmq.gateway.handlers.client_lists import ANSWER_SECONDS, ClientLists
from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.handlers.statistics.flow import CountedConnection, Flow
from shardmq.gateway.handlers.statistics.paging import Page, Row, name_filter, sort_rows
from shardmq.gateway.session.client import Client
from shardmq.gateway.state.gateway import GatewayState
from shardmq.protocol.native.operations.statistics import StatsList

NOUNS: Final[dict[str, tuple[str, ...]]] = {
    "connections": ("vhost", "connected_at", "name"),
    "channels": ("connection", "number", "name"),
    "consumers": ("vhost", "queue", "connection", "channel", "tag", "name"),
}
"""The lists there are, and by what each is ordered."""

Found = tuple[Row, CountedConnection]


class ClientPages:
    """What this gateway has to list, page by page.

    Args:
        state: of the process.
        lists: the same at once.
        connections: all of them; looked at whenever somebody asks.
        flow: what is counted of them.
    """

    def __init__(
        self, state: GatewayState, lists: ClientLists, connections: Collection[CountedConnection], flow: Flow
    ) -> None:
        self._state = state
        self._lists = lists
        self._connections = connections
        self._flow = flow

    def answer(self, noun: str, query: Row | None = None) -> list[Row]:
        """What other gateways are told: all rows; with a query, one table with the first of them and counts."""
        if query is None:
            return self._lists.rows(noun)
        if noun == "overview":
            return [self._flow.table(self._state.census, query["is_detailed"])]
        if noun == "exchanges":
            return self._flow.of_exchanges(frozenset(query["vhosts"]), query.get("names"))
        try:
            return [self._first(noun, query)]
        except InvalidRequest as refusal:
            return [{"refusal": refusal.text}]

    def _first(self, noun: str, query: Row) -> Row:
        """The first rows that a query is for, and how many there are."""
        operation = StatsList(0, 0, noun, name=query["name"], use_regex=query["use_regex"], sort=query["sort"])
        vhosts, user, is_counted = query["vhosts"], query["user"], query["sort"].startswith(("counts.", "rates."))
        every = [
            (row, connection)
            for row, connection in self._light_rows(noun, is_counted, query.get("addresses_of", ""))
            if (row["vhost"] in vhosts if vhosts is not None else row["vhost"]) and (not user or row["user"] == user)
        ]
        found = name_filter(operation)(every, lambda found: _searched(found[0]))
        connection_of = {row["name"]: connection for row, connection in found}
        rows = sort_rows([row for row, _ in found], replaced(operation, query["reverse"]), NOUNS[noun])
        first = rows[: query["count"]]
        for row in first:
            session = connection_of[row["name"]].session
            if noun == "channels" and session is not None:
                row |= self._flow.of_channel(connection_of[row["name"]], session.channels[row["number"]])
            elif noun == "connections":
                row |= _agreed(connection_of[row["name"]])
                row |= self._flow.of_connection(connection_of[row["name"]])
        return {"rows": first, "total": len(every), "filtered": len(found)}

    def _light_rows(self, noun: str, is_counted: bool, addresses_of: str) -> list[Found]:
        """Rows with what takes little to say; addresses of the clients of that user alone, "" for everybody's."""
        found: list[Found] = []
        unconfirmed = Counter[Any]()
        if noun == "channels":
            for link in self._state.links:
                unconfirmed.update(link.confirms.unconfirmed())
        for connection in self._connections:
            session = connection.session
            if session is None or session.client.serves_http:
                continue
            if noun == "connections":
                row = _connection_row(self._state.name, connection, session.client)
                found.append((row | self._flow.of_connection(connection) if is_counted else row, connection))
                continue
            for row in self._lists.rows_of(noun, connection, session, unconfirmed):
                row["name"] = _name_of(noun, row)
                if addresses_of in ("", row["user"]):
                    row |= {"peer_host": connection.peer, "peer_port": connection.peer_port}
                if noun == "channels" and is_counted:
                    row |= self._flow.of_channel(connection, session.channels[row["number"]])
                found.append((row, connection))
        return found


def _searched(row: Row) -> str:
    """What the filter by name looks into: what is shown."""
    name: str = row["name"]
    return f"{row['peer_host']}:{row['peer_port']} {name}" if "peer_host" in row else name


def replaced(operation: StatsList, reverse: bool) -> StatsList:
    """The same list in another direction."""
    return StatsList(0, 0, operation.noun, sort=operation.sort, reverse=reverse)


def _name_of(noun: str, row: Row) -> str:
    if noun == "channels":
        return f"{row['connection']} ({row['number']})"
    return f"{row['connection']} ({row['channel']}) {row['tag']}"


def _connection_row(gateway: str, connection: CountedConnection, client: Client) -> Row:
    return {
        "name": client.identity,
        "user": client.user,
        "vhost": client.vhost,
        "peer_host": connection.peer,
        "peer_port": connection.peer_port,
        "protocol": connection.protocol,
        "tls": connection.is_tls,
        "state": "blocked" if connection.is_blocked else "running",
        "channels": client.channels,
        "consumers": client.consumers,
        "connected_at": connection.connected_at_ms,
        "gateway": gateway,
    }


def _agreed(connection: CountedConnection) -> Row:
    """What a client said of itself, and what was agreed on with it, by RabbitMQ's names."""
    host, port = connection.address
    return {
        "client_properties": connection.client_properties,
        "host": host,
        "port": port,
        "auth_mechanism": connection.auth_mechanism,
        **connection.limits,
        **({} if connection.tls is None else tls_facts(connection.tls)),
    }


def list_clients(
    state: GatewayState, operation: StatsList, vhosts: list[str] | None, user: str, addresses_of: str, reply: Reply
) -> None:
    """List connections, channels or consumers.

    Args:
        state: of the gateway that was asked.
        operation: what is asked.
        vhosts: those of connections that are shown; None for all.
        user: whose connections alone are shown; "" for everybody's.
        addresses_of: whose addresses alone are shown; "" for everybody's.
        reply: called once.
    """
    count = operation.page * operation.page_size or 1 << 31

    def shape(tables: list[Row]) -> Row:
        refused = [table["refusal"] for table in tables if "refusal" in table]
        if refused:
            raise InvalidRequest(refused[0])
        total, filtered = (sum([table[name] for table in tables]) for name in ("total", "filtered"))
        page = Page.of(operation, total, filtered)
        rows = sort_rows([row for table in tables for row in table["rows"]], operation, NOUNS[operation.noun])
        return page.table(rows[page.start : page.end], operation.columns)

    query = {
        "name": operation.name,
        "use_regex": operation.use_regex,
        "sort": operation.sort,
        "reverse": operation.reverse,
        "vhosts": vhosts,
        "user": user,
        "addresses_of": addresses_of,
        "count": count,
    }
    ask_gateways(state, operation.noun, query, reply_with(reply, shape))


def reply_with(reply: Reply, shape: Callable[[list[Row]], Row]) -> Callable[[list[Row]], None]:
    """A function that replies with the shape of what came, or with the error that this raised."""

    def then(tables: list[Row]) -> None:
        outcome: Outcome
        try:
            outcome = shape(tables)
        except RequestError as refusal:
            outcome = refusal
        reply(outcome)

    return then


def ask_gateways(state: GatewayState, noun: str, query: Row, then: Callable[[list[Row]], None]) -> None:
    """Call `then` with the tables of all gateways that answer."""
    collector = AnswerCollector(2, lambda lists: then([table for tables in lists for table in tables]))
    collector.take(state.coordinator.lists(noun, query))
    state.coordinator.inspect(collector.take, ANSWER_SECONDS, noun, query)
