"""Lists of connections, channels and consumers, here and at other gateways.

a client asks ─► its gateway: own rows ─┬─► filtered by who asks ─► answer
                     └─► coordinator ─► other gateways: their rows
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.publishes.fan_out import ConfirmTarget
from shardmq.gateway.session.channel_consumers import ChannelConsumers
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.member import Member
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.gateway import GatewayState
from shardmq.topology.entities import MANAGEMENT_TAGS, SEE_ALL_TAGS

ANSWER_SECONDS: Final = 2.0
"""A gateway that is silent for so long is left out."""


Row = dict[str, Any]


class ConnectionInfo(Protocol):
    """A connection, whatever its protocol."""

    @property
    def protocol(self) -> str:
        """Its name."""

    @property
    def session(self) -> Session | None:
        """What the client has from when it is let in."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def peer_port(self) -> int:
        """The client's port."""

    @property
    def is_tls(self) -> bool:
        """Whether it is encrypted."""

    @property
    def is_blocked(self) -> bool:
        """Whether an alarm holds its publishes."""

    @property
    def connected_at_ms(self) -> int:
        """Since when, milliseconds since 1970."""

    @property
    def client_properties(self) -> dict[str, Any]:
        """What the client says of itself."""

    def modes(self, channel: int) -> tuple[bool, bool]:
        """Whether a channel confirms what is published there, and whether it is transactional."""


class ClientLists:
    """What this gateway has to list.

    Args:
        state: of the process.
        connections: all of them; looked at whenever somebody asks.
    """

    def __init__(self, state: GatewayState, connections: Iterable[ConnectionInfo]) -> None:
        self._state = state
        self._connections = connections
        self._makers: Mapping[str, Callable[[ConnectionInfo, Session, Counter[ConfirmTarget]], list[Row]]] = {
            "connections": self._connection,
            "channels": _channels,
            "consumers": self._consumers,
        }

    def rows(self, noun: str) -> list[Row]:
        """The rows of this gateway: "connections", "channels" or "consumers"; there are none under other nouns."""
        make = self._makers.get(noun)
        if make is None:
            return []
        unconfirmed: Counter[ConfirmTarget] = Counter()
        if noun == "channels":
            for link in self._state.links:
                unconfirmed.update(link.confirms.unconfirmed())
        opened = ((connection, connection.session) for connection in self._connections)
        return [
            row
            for connection, session in opened
            if session is not None
            for row in make(connection, session, unconfirmed)
        ]

    def rows_of(
        self, noun: str, connection: ConnectionInfo, session: Session, unconfirmed: Counter[ConfirmTarget]
    ) -> list[Row]:
        """The rows of one connection."""
        return self._makers[noun](connection, session, unconfirmed)

    def _connection(
        self, connection: ConnectionInfo, session: Session, _unconfirmed: Counter[ConfirmTarget]
    ) -> list[Row]:
        client = session.client
        row = {
            "name": client.identity,
            "user": client.user,
            "vhost": client.vhost,
            "peer_host": connection.peer,
            "peer_port": connection.peer_port,
            "protocol": "HTTP" if client.serves_http else connection.protocol,
            "tls": connection.is_tls,
            "state": "blocked" if connection.is_blocked else "running",
            "channels": client.channels,
            "connected_at": connection.connected_at_ms,
            "client_properties": connection.client_properties,
            "gateway": self._state.name,
        }
        return [row]

    def _consumers(
        self, _connection: ConnectionInfo, session: Session, _unconfirmed: Counter[ConfirmTarget]
    ) -> list[Row]:
        return [
            self._consumer(session.client, channel.number, consumer)
            for channel in session.channels.values()
            for consumer in channel.consumers.by_tag.values()
        ] + [
            self._member(session.client, channel.number, member)
            for channel in session.channels.values()
            for member in _members(channel.consumers)
        ]

    def _member(self, client: Client, channel: int, member: Member) -> Row:
        numbers = [(each.consumer.queue, each.consumer.number) for each in member.partitions.values()]
        queues = [(self._state.topology.queue_by_id(queue), number) for queue, number in numbers]
        return {
            "tag": member.tag,
            "queue": member.subscription.topic,
            "channel": channel,
            "connection": client.identity,
            "user": client.user,
            "vhost": client.vhost,
            "prefetch": member.prefetch,
            "auto_ack": member.subscription.auto_ack,
            "exclusive": False,
            "priority": 0,
            "gateway": self._state.name,
            "group": member.subscription.group,
            "partitions": {queue.name: number for queue, number in queues if queue is not None},
        }

    def _consumer(self, client: Client, channel: int, consumer: Consumer) -> Row:
        queue = self._state.topology.queue_by_id(consumer.queue)
        return {
            "tag": consumer.tag,
            "queue": "" if queue is None else queue.name,
            "channel": channel,
            "connection": client.identity,
            "user": client.user,
            "vhost": client.vhost,
            "prefetch": consumer.own_prefetch,
            "auto_ack": consumer.auto_ack,
            "exclusive": consumer.exclusive,
            "priority": consumer.priority,
            "gateway": self._state.name,
            "consumer": consumer.number,
        }


def _members(consumers: ChannelConsumers) -> Collection[Member]:
    """The consumers of a channel that are members of groups."""
    return () if consumers.groups is None else consumers.groups.by_tag.values()


def _channels(connection: ConnectionInfo, session: Session, unconfirmed: Counter[ConfirmTarget]) -> list[Row]:
    rows = []
    client = session.client
    for channel in session.channels.values():
        consumers = channel.consumers.by_tag.values()
        members = _members(channel.consumers)
        prefetches = [consumer.own_prefetch for consumer in consumers] + [member.prefetch for member in members]
        confirms, transactional = connection.modes(channel.number)
        row = {
            "number": channel.number,
            "connection": client.identity,
            "user": client.user,
            "vhost": client.vhost,
            "consumers": len(consumers) + len(members),
            "unacked": channel.tags.outstanding,
            "unconfirmed": unconfirmed[channel.publisher],
            "prefetch": 0 if 0 in prefetches else sum(prefetches),
            "global_prefetch": channel.consumers.shared_prefetch,
            "confirm": confirms,
            "transactional": transactional,
        }
        rows.append(row)
    return rows


def gather_rows(state: GatewayState, noun: str, then: Callable[[list[Row]], None]) -> None:
    """Call `then` with the rows of all gateways that answer, in order."""

    def join(lists: list[list[Row]]) -> None:
        order = _ORDER[noun]
        then(sorted((row for rows in lists for row in rows), key=lambda row: [row[field] for field in order]))

    collector = AnswerCollector(2, join)
    collector.take(state.coordinator.lists(noun, None))
    state.coordinator.inspect(collector.take, ANSWER_SECONDS, noun)


def visible(noun: str, rows: list[Row], client: Client, tags: tuple[str, ...]) -> list[Row]:
    """The rows that a user may see.

    Administrators and monitors see all, others those of their own connections, and with the tag "management" the
    consumers in their virtual host; those of an administrative session in all where they have a permission.
    """
    if not SEE_ALL_TAGS.isdisjoint(tags):
        return rows
    if noun == "consumers" and not MANAGEMENT_TAGS.isdisjoint(tags):
        here = client.vhosts_shown
        return [row for row in rows if row["vhost"] in here]
    return [row for row in rows if row["user"] == client.user]


_ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "connections": ("vhost", "connected_at", "name"),
    "channels": ("connection", "number"),
    "consumers": ("vhost", "queue", "connection", "channel", "tag"),
}
"""The lists there are, and by what each is ordered."""

CLIENT_LISTS: Final = tuple(_ORDER)
