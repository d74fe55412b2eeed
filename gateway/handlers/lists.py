"""Lists of what exists, with counts, and the status.

Who may log in may see what is in the connection's virtual host, as long as there is a permission there. Of users,
permissions, transactions, connections and other virtual hosts, those without the tag "administrator" or "monitoring"
see what concerns themselves, and of the broker's processes nothing (RabbitMQ's rule for "management"). The lists of an
administrative session are of all virtual hosts that the user may see.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.base import Inspect
from shardmq.definitions.export import shown_hash
from shardmq.definitions.parameters import parameter_row, shovel_rows
from shardmq.definitions.policies import topic_permission_row
from shardmq.definitions.rows import (
    STAGED,
    Row,
    binding_row,
    exchange_row,
    permission_row,
    policy_columns,
    queue_row,
    topic_row,
    transaction_row,
    vhost_row,
)
from shardmq.errors import AccessRefused, InvalidRequest
from shardmq.gateway.handlers.client_lists import CLIENT_LISTS, gather_rows, visible
from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.handlers.status import ANSWER_SECONDS, gather
from shardmq.gateway.handlers.topics.group_lists import list_groups
from shardmq.gateway.handlers.topics.partitions import may_read, topics_of
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.protocol.native.operations.connection import StatusGet
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.topology.entities import MANAGEMENT_TAGS, REPLY_QUEUES, SEE_ALL_TAGS, OpenTransaction, User
from shardmq.topology.policies.preview import policy_row

Tags = tuple[str, ...]


def user_row(user: User, with_hash: bool) -> Row:
    """A user, as lists show it; the password's hash is for administrators."""
    row: Row = {"name": user.name, "tags": list(user.tags), "limits": user.limits}
    if with_hash:
        row["password_hash"], row["hashing_algorithm"] = shown_hash(user.password)
    return row


def _exchanges(client: Client, _tags: Tags) -> list[Row]:
    topology, here = client.state.topology, client.vhosts_shown
    return [
        exchange_row(exchange) | policy_columns(topology.policies.applied(exchange))
        for exchange in topology.exchanges.values()
        if exchange.vhost in here
    ]


def _bindings(client: Client, _tags: Tags) -> list[Row]:
    found, here = client.state.topology.bindings.values(), client.vhosts_shown
    return [binding_row(binding) for binding in found if binding.vhost in here]


def _topics(client: Client, _tags: Tags) -> list[Row]:
    found, here = client.state.topology.topics.values(), client.vhosts_shown
    return [topic_row(topic) for topic in found if topic.vhost in here]


def _readable_topics(client: Client, _tags: Tags) -> list[Row]:
    """Topics and streams that the user may read."""
    return [
        {"name": name, "vhost": vhost, "partitions": len(queues)}
        for vhost, name, queues in topics_of(client)
        if may_read(client, vhost, name)
    ]


def _vhosts(client: Client, tags: Tags) -> list[Row]:
    topology, sees_all = client.state.topology, _sees_all(tags)
    found = topology.vhosts.values()
    return [
        vhost_row(each, topology.tracing.get(each.name, 0))
        for each in found
        if sees_all or (client.user, each.name) in topology.permissions
    ]


def _users(client: Client, tags: Tags) -> list[Row]:
    sees_all, with_hash = _sees_all(tags), "administrator" in tags
    found = client.state.topology.users.values()
    return [user_row(user, with_hash) for user in found if sees_all or user.name == client.user]


def _permissions(client: Client, tags: Tags) -> list[Row]:
    sees_all = _sees_all(tags)
    found = client.state.topology.permissions.values()
    return [permission_row(each) for each in found if sees_all or each.user == client.user]


def _topic_permissions(client: Client, tags: Tags) -> list[Row]:
    sees_all = _sees_all(tags)
    found = client.state.topology.topic_permissions
    return [
        topic_permission_row(each)
        for (user, _), there in found.items()
        if sees_all or user == client.user
        for each in there.values()
    ]


def _policies(client: Client, tags: Tags) -> list[Row]:
    """Policies and operator policies of the virtual hosts that the user may open, in the order of precedence."""
    topology, sees_all = client.state.topology, _sees_all(tags)
    found = sorted(topology.policies, key=lambda each: (each.vhost, each.is_operator, -each.priority, each.name))
    return [policy_row(each) for each in found if sees_all or (client.user, each.vhost) in topology.permissions]


def _parameters(client: Client, tags: Tags) -> list[Row]:
    """Parameters, which may have passwords in them: for those who may set them."""
    topology, found = client.state.topology, client.state.topology.parameters
    if "administrator" in tags:
        return [parameter_row(each) for each in found]
    if "policymaker" not in tags:
        return []
    return [parameter_row(each) for each in found if (client.user, each.vhost) in topology.permissions]


def _shovels(client: Client, tags: Tags) -> list[Row]:
    sees_all, topology = _sees_all(tags), client.state.topology
    if MANAGEMENT_TAGS.isdisjoint(tags):
        return []
    return [row for row in shovel_rows(topology) if sees_all or (client.user, row["vhost"]) in topology.permissions]


def _sees_all(tags: Tags) -> bool:
    return not SEE_ALL_TAGS.isdisjoint(tags)


_AT_HAND: Final[Mapping[str, Callable[[Client, Tags], list[Row]]]] = MappingProxyType(
    {
        "exchanges": _exchanges,
        "bindings": _bindings,
        "topics": _topics,
        "readable-topics": _readable_topics,
        "vhosts": _vhosts,
        "users": _users,
        "permissions": _permissions,
        "topic-permissions": _topic_permissions,
        "policies": _policies,
        "parameters": _parameters,
        "shovels": _shovels,
    }
)
"""Lists that the replica has."""


_OF_VHOST: Final = frozenset({"exchanges", "bindings", "topics", "readable-topics", "groups", "queues", "transactions"})
"""Lists of what is in the connection's virtual host."""


def may_see(client: Client, vhost: str) -> bool:
    """Whether the user may see what is in a virtual host."""
    return _sees_all(client.tags) or (client.user, vhost) in client.state.topology.permissions


def _check_manager(client: Client) -> None:
    if MANAGEMENT_TAGS.isdisjoint(client.tags):
        raise AccessRefused(f"user '{client.user}' has lost its tags: an administrative session takes one")


def topology_list(channel: Channel, operation: TopologyList, reply: Reply) -> None:
    """List what exists.

    Raises:
        InvalidRequest: there is no such list.
        AccessRefused: the user's permission in the virtual host was taken away.
    """
    client, noun = channel.client, operation.noun
    if client.is_administrative:
        _check_manager(client)
    elif noun in _OF_VHOST and not may_see(client, client.vhost):
        raise AccessRefused(f"access to vhost '{client.vhost}' refused for user '{client.user}'")
    if noun in _AT_HAND:
        reply(_AT_HAND[noun](client, client.tags))
    elif noun == "queues":
        _list_queues(client, reply)
    elif noun == "groups":
        list_groups(client, reply)
    elif noun == "transactions":
        _list_transactions(client, reply)
    elif noun in CLIENT_LISTS:
        gather_rows(client.state, noun, lambda rows: reply(visible(noun, rows, client, client.tags)))
    else:
        nouns = ", ".join(sorted([*_AT_HAND, "groups", "queues", "transactions", *CLIENT_LISTS]))
        raise InvalidRequest(f"there is no list of '{noun}'; ask for one of {nouns}")


def _list_queues(client: Client, reply: Reply) -> None:
    """The queues, with the counts of the shards that answer."""
    here = client.vhosts_shown

    def join(tables: list[Row]) -> None:
        counts = {row["id"]: row for table in tables for row in table["queues"] if row["vhost"] in here}
        topology = client.state.topology
        reply(
            [
                queue_row(queue, counts.get(queue.id)) | policy_columns(topology.policies.applied(queue))
                for queue in topology.queues.values()
                if queue.vhost in here and not queue.name.startswith(REPLY_QUEUES)
            ]
        )

    gathering = AnswerCollector(len(client.state.links), join)
    for link in client.state.links:
        link.look(Inspect(), gathering.take, ANSWER_SECONDS)


def _list_transactions(client: Client, reply: Reply) -> None:
    """The user's undecided transactions, with what is staged for them on all shards together."""
    state, here = client.state, client.vhosts_shown

    def is_shown(transaction: OpenTransaction) -> bool:
        return transaction.vhost in here and (transaction.user == client.user or _sees_all(client.tags))

    def join(tables: list[Row]) -> None:
        staged: dict[int, Counter[str]] = defaultdict(Counter)
        for table in tables:
            for row in table["staged"]:
                staged[row["number"]].update({name: row[name] for name in STAGED})
        is_whole = len(tables) == count
        state.changed()  # notes the time
        found = [each for each in state.topology.transactions.values() if is_shown(each)]
        reply([transaction_row(each, state.now_ms, staged[each.number] if is_whole else None) for each in found])

    count = len(state.links)
    gathering = AnswerCollector(count, join)
    for link in state.links:
        link.look(Inspect(), gathering.take, ANSWER_SECONDS)


def status_get(channel: Channel, _operation: StatusGet, reply: Reply) -> None:
    """The broker's state.

    Those who do not see all are told of the queues in their virtual hosts, and of how many connections, channels and
    consumers are theirs.
    """
    client = channel.client
    if _sees_all(client.tags):
        gather(client.state, reply)
        return

    own = {"connections": 0, "channels": 0, "consumers": 0}

    def connections(rows: list[Row]) -> None:
        mine = [row for row in rows if row["user"] == client.user]
        own.update(connections=len(mine), channels=sum(row["channels"] for row in mine))
        gather_rows(client.state, "consumers", consumers)

    def consumers(rows: list[Row]) -> None:
        own["consumers"] = sum(row["user"] == client.user for row in rows)
        gathering = AnswerCollector(len(client.state.links), show)
        for link in client.state.links:
            link.look(Inspect(), gathering.take, ANSWER_SECONDS)

    def show(tables: list[Row]) -> None:
        found = [row for table in tables for row in table["queues"] if may_see(client, row["vhost"])]
        found.sort(key=lambda queue: (queue["vhost"], queue["name"]))
        reply({"processes": [], "queues": found, "own": own})

    gather_rows(client.state, "connections", connections)


REQUESTS: Final[dict[type[Any], Any]] = {TopologyList: topology_list, StatusGet: status_get}
