"""Which list answers what, and who may ask: users with a tag, by RabbitMQ's rules for its management."""

from collections.abc import Collection
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, RequestError
from shardmq.gateway.handlers.lists import user_row
from shardmq.gateway.handlers.statistics.clients import NOUNS, list_clients, reply_with
from shardmq.gateway.handlers.statistics.entities import ENTITIES, only
from shardmq.gateway.handlers.statistics.entity_lists import get_entity, list_entities
from shardmq.gateway.handlers.statistics.overview import sum_up
from shardmq.gateway.handlers.statistics.paging import Row, show
from shardmq.gateway.handlers.statistics.queues import get_queue, list_queues
from shardmq.gateway.handlers.topics.group_lists import list_groups
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.protocol.native.operations.statistics import FindingsTell, StatsGet, StatsList, StatsOverview
from shardmq.topology.entities import MANAGEMENT_TAGS, SEE_ALL_TAGS


def _sees_all(client: Client) -> bool:
    return not SEE_ALL_TAGS.isdisjoint(client.tags)


def _vhosts(client: Client, vhost: str | None) -> Collection[str]:
    """The virtual hosts that are meant, as far as the user may see them.

    Raises:
        AccessRefused: the user has no tag, or may not see that virtual host.
        NotFound: there is no virtual host of that name.
    """
    topology = client.state.topology
    if MANAGEMENT_TAGS.isdisjoint(client.tags):
        raise AccessRefused(
            f"user '{client.user}' has no tag that lets it manage: management, policymaker, monitoring or administrator"
        )
    if vhost is None:
        return [name for name in topology.vhosts if _sees_all(client) or (client.user, name) in topology.permissions]
    if not _sees_all(client) and (client.user, vhost) not in topology.permissions:
        raise AccessRefused(f"access to vhost '{vhost}' refused for user '{client.user}'")
    topology.check_vhost(vhost)
    return (vhost,)


def stats_list(channel: Channel, operation: StatsList, reply: Reply) -> None:
    """List things of one kind.

    Raises:
        AccessRefused: the user has no tag, or may not see that virtual host.
        NotFound: there is no virtual host of that name.
        InvalidRequest: there is no such list, or the filter, the order or the page makes no sense.
    """
    client, noun = channel.client, operation.noun
    vhosts = _vhosts(client, operation.vhost)
    if noun == "queues":
        list_queues(client.state, operation, frozenset(vhosts), reply)
    elif noun in NOUNS:
        _list_clients(client, operation, vhosts, reply)
    elif noun in ENTITIES:
        list_entities(client.state, operation, vhosts, reply)
    elif noun == "groups":
        _list_groups(client, operation, vhosts, reply)
    elif noun == "users":
        reply(show(operation, _users(client), _name, ("name",)))
    else:
        nouns = ", ".join(sorted(["groups", "queues", "users", *NOUNS, *ENTITIES]))
        raise InvalidRequest(f"there is no list of '{noun}'; ask for one of {nouns}")


def _list_groups(client: Client, operation: StatsList, vhosts: Collection[str], reply: Reply) -> None:
    """List the groups that consume topics, of the connection's virtual host; of all in an administrative session."""

    def shape(rows: list[Row]) -> Row:
        found = [row for row in rows if row["vhost"] in vhosts]
        return show(operation, found, lambda row: row["group"], ("vhost", "topic", "group"))

    def take(outcome: Outcome) -> None:
        if isinstance(outcome, RequestError):
            reply(outcome)
        else:
            reply_with(reply, shape)(outcome)

    list_groups(client, take)


def _list_clients(client: Client, operation: StatsList, vhosts: Collection[str], reply: Reply) -> None:
    """List connections and channels of the user, or everybody's for those who see all; consumers by virtual host.

    Who does not see all sees no addresses of others.
    """
    sees_all = _sees_all(client)
    user = "" if sees_all or operation.noun == "consumers" else client.user
    shown = None if sees_all and operation.vhost is None else list(vhosts)
    if user and operation.vhost is None:
        shown = None  # an administrative session is in no virtual host
    list_clients(client.state, operation, shown, user, "" if sees_all else client.user, reply)


def _name(row: Row) -> str:
    name: str = row["name"]
    return name


def _users(client: Client) -> list[Row]:
    with_hash = client.is_administrator
    found = client.state.topology.users.values()
    return [user_row(user, with_hash) for user in found if _sees_all(client) or user.name == client.user]


def stats_get(channel: Channel, operation: StatsGet, reply: Reply) -> None:
    """Describe one thing.

    Raises:
        AccessRefused: the user has no tag, or may not see it.
        NotFound: it does not exist.
        InvalidRequest: there is nothing of that kind.
    """
    client, noun = channel.client, operation.noun
    vhosts = _vhosts(client, operation.vhost or None)
    if noun == "queues":
        get_queue(client.state, operation, reply)
    elif noun == "users":
        reply(only([row for row in _users(client) if row["name"] == operation.name], noun, operation.name))
    elif noun in ("connections", "channels"):
        _get_client(client, operation, reply)
    elif noun in ENTITIES and noun != "bindings":
        get_entity(client.state, noun, operation.name, vhosts, reply)
    else:
        raise InvalidRequest(f"one of '{noun}' cannot be asked for; list them")


def _get_client(client: Client, operation: StatsGet, reply: Reply) -> None:
    def take(outcome: Any) -> None:
        if isinstance(outcome, dict):
            found = [row for row in outcome["items"] if row["name"] == operation.name]
            missing = NotFound(f"there is nothing named '{operation.name}' among the {operation.noun}")
            reply(found[0] if found else missing)
        else:
            reply(outcome)

    question = StatsList(0, 0, operation.noun, name=operation.name)
    _list_clients(client, question, (), take)


def stats_overview(channel: Channel, operation: StatsOverview, reply: Reply) -> None:
    """Sum up the broker, or a virtual host.

    Raises:
        AccessRefused: the user has no tag, or may not see that virtual host.
        NotFound: there is no virtual host of that name.
    """
    client = channel.client
    vhosts = _vhosts(client, operation.vhost)
    sees_all = _sees_all(client)
    sum_up(client.state, vhosts, sees_all, operation.is_detailed and sees_all, reply)


def findings_tell(channel: Channel, operation: FindingsTell, reply: Reply) -> None:
    """Publish findings that begin or end as events.

    Raises:
        AccessRefused: the user has neither the tag monitoring nor administrator.
    """
    client = channel.client
    if not _sees_all(client):
        raise AccessRefused(
            f"user '{client.user}' has neither the tag monitoring nor administrator: no findings to tell"
        )
    reply({"is_heard": client.state.events.findings(client, operation.findings)})


REQUESTS: Final[dict[type[Any], Any]] = {
    StatsList: stats_list,
    StatsGet: stats_get,
    StatsOverview: stats_overview,
    FindingsTell: findings_tell,
}
