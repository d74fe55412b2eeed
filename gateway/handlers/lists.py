"""Requests that look: what there is in the topology, with counts, and how the broker is.

Who may log in may see what is in the connection's virtual host, as long as there is a permission there. Of users,
permissions, transactions, connections and other virtual hosts, those without the tag "administrator" or "monitoring"
see what concerns themselves, and of the broker's processes nothing (RabbitMQ's rule for "management").
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.base import Inspect
from shardmq.definitions.export import shown_hash
from shardmq.definitions.rows import (
    STAGED,
    Row,
    binding_row,
    exchange_row,
    permission_row,
    queue_row,
    transaction_row,
    vhost_row,
)
from shardmq.errors import AccessRefused, InvalidRequest
from shardmq.gateway.handlers.client_lists import CLIENT_LISTS, gather_rows, visible
from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.handlers.status import ANSWER_SECONDS, gather
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.session import Session
from shardmq.protocol.native.operations.connection import StatusGet
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.topology.entities import REPLY_QUEUES, OpenTransaction, User

Tags = tuple[str, ...]


def user_row(user: User, with_hash: bool) -> Row:
    """A user, as lists show it; the password's hash is for administrators."""
    row: Row = {"name": user.name, "tags": list(user.tags), "limits": user.limits}
    if with_hash:
        row["password_hash"], row["hashing_algorithm"] = shown_hash(user.password)
    return row


def _exchanges(session: Session, _tags: Tags) -> list[Row]:
    found = session.hub.topology.exchanges.values()
    return [exchange_row(exchange) for exchange in found if exchange.vhost == session.vhost]


def _bindings(session: Session, _tags: Tags) -> list[Row]:
    found = session.hub.topology.bindings.values()
    return [binding_row(binding) for binding in found if binding.vhost == session.vhost]


def _vhosts(session: Session, tags: Tags) -> list[Row]:
    topology, sees_all = session.hub.topology, _sees_all(tags)
    found = topology.vhosts.values()
    return [vhost_row(each) for each in found if sees_all or (session.user, each.name) in topology.permissions]


def _users(session: Session, tags: Tags) -> list[Row]:
    sees_all, with_hash = _sees_all(tags), "administrator" in tags
    found = session.hub.topology.users.values()
    return [user_row(user, with_hash) for user in found if sees_all or user.name == session.user]


def _permissions(session: Session, tags: Tags) -> list[Row]:
    sees_all = _sees_all(tags)
    found = session.hub.topology.permissions.values()
    return [permission_row(each) for each in found if sees_all or each.user == session.user]


def _sees_all(tags: Tags) -> bool:
    return "administrator" in tags or "monitoring" in tags


_AT_HAND: Final[Mapping[str, Callable[[Session, Tags], list[Row]]]] = MappingProxyType(
    {
        "exchanges": _exchanges,
        "bindings": _bindings,
        "vhosts": _vhosts,
        "users": _users,
        "permissions": _permissions,
    }
)
"""Lists that the replica has."""


_OF_VHOST: Final = frozenset({"exchanges", "bindings", "queues", "transactions"})
"""Lists of what is in the connection's virtual host."""


def _may_see(session: Session, vhost: str) -> bool:
    return _sees_all(session.tags) or (session.user, vhost) in session.hub.topology.permissions


def topology_list(channel: Channel, operation: TopologyList, reply: Reply) -> None:
    """A list of what there is.

    Raises:
        InvalidRequest: there is no such list.
        AccessRefused: the user's permission in the virtual host was taken away.
    """
    session, noun = channel.session, operation.noun
    if noun in _OF_VHOST and not _may_see(session, session.vhost):
        raise AccessRefused(f"access to vhost '{session.vhost}' refused for user '{session.user}'")
    if noun in _AT_HAND:
        reply(_AT_HAND[noun](session, session.tags))
    elif noun == "queues":
        _list_queues(session, reply)
    elif noun == "transactions":
        _list_transactions(session, reply)
    elif noun in CLIENT_LISTS:
        gather_rows(session.hub, noun, lambda rows: reply(visible(noun, rows, session, session.tags)))
    else:
        nouns = ", ".join(sorted([*_AT_HAND, "queues", "transactions", *CLIENT_LISTS]))
        raise InvalidRequest(f"there is no list of '{noun}'; ask for one of {nouns}")


def _list_queues(session: Session, reply: Reply) -> None:
    """The queues, with the counts of the shards that answer."""

    def join(tables: list[Row]) -> None:
        counts = {row["id"]: row for table in tables for row in table["queues"] if row["vhost"] == session.vhost}
        found = session.hub.topology.queues.values()
        reply(
            [
                queue_row(queue, counts.get(queue.id))
                for queue in found
                if queue.vhost == session.vhost and not queue.name.startswith(REPLY_QUEUES)
            ]
        )

    gathering = AnswerCollector(len(session.hub.links), join)
    for link in session.hub.links:
        link.ask(Inspect(0), gathering.take, ANSWER_SECONDS)


def _list_transactions(session: Session, reply: Reply) -> None:
    """The user's undecided transactions, with what is staged for them on all shards together."""
    hub = session.hub

    def is_shown(transaction: OpenTransaction) -> bool:
        return transaction.vhost == session.vhost and (transaction.user == session.user or _sees_all(session.tags))

    def join(tables: list[Row]) -> None:
        staged: dict[int, Counter[str]] = defaultdict(Counter)
        for table in tables:
            for row in table["staged"]:
                staged[row["number"]].update({name: row[name] for name in STAGED})
        is_whole = len(tables) == len(hub.links)
        hub.changed()  # notes the time
        found = [each for each in hub.topology.transactions.values() if is_shown(each)]
        reply([transaction_row(each, hub.now_ms, staged[each.number] if is_whole else None) for each in found])

    gathering = AnswerCollector(len(hub.links), join)
    for link in hub.links:
        link.ask(Inspect(0), gathering.take, ANSWER_SECONDS)


def status_get(channel: Channel, _operation: StatusGet, reply: Reply) -> None:
    """How the broker is. Those who do not see all are told of the queues in their virtual hosts and of how many
    connections, channels and consumers are theirs.
    """
    session = channel.session
    if _sees_all(session.tags):
        gather(session.hub, reply)
        return

    own = {"connections": 0, "channels": 0, "consumers": 0}

    def connections(rows: list[Row]) -> None:
        mine = [row for row in rows if row["user"] == session.user]
        own.update(connections=len(mine), channels=sum(row["channels"] for row in mine))
        gather_rows(session.hub, "consumers", consumers)

    def consumers(rows: list[Row]) -> None:
        own["consumers"] = sum(row["user"] == session.user for row in rows)
        gathering = AnswerCollector(len(session.hub.links), show)
        for link in session.hub.links:
            link.ask(Inspect(0), gathering.take, ANSWER_SECONDS)

    def show(tables: list[Row]) -> None:
        found = [row for table in tables for row in table["queues"] if _may_see(session, row["vhost"])]
        found.sort(key=lambda queue: (queue["vhost"], queue["name"]))
        reply({"processes": [], "queues": found, "own": own})

    gather_rows(session.hub, "connections", connections)


REQUESTS: Final[dict[type[Any], Any]] = {TopologyList: topology_list, StatusGet: status_get}
