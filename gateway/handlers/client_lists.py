"""Who is connected: lists of connections, channels and consumers, here and at all other gateways.

a client asks ─► its gateway: own rows ─┬─► filtered by who asks ─► answer
                     └─► coordinator ─► other gateways: their rows
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.fan_out import ConfirmTarget
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.gateway import GatewayState

ANSWER_SECONDS: Final = 2.0
"""A gateway that is silent for so long is left out."""


Row = dict[str, Any]


class ConnectionInfo(Protocol):
    """A connection, whatever its protocol."""

    @property
    def protocol(self) -> str: ...
    @property
    def session(self) -> Session | None: ...
    @property
    def peer(self) -> str: ...
    @property
    def peer_port(self) -> int: ...
    @property
    def is_tls(self) -> bool: ...
    @property
    def is_blocked(self) -> bool: ...
    @property
    def connected_at_ms(self) -> int: ...
    @property
    def client_properties(self) -> dict[str, Any]: ...
    def modes(self, channel: int) -> tuple[bool, bool]:
        """Whether a channel confirms what is published there, and whether it is transactional."""


class Lists:
    """What this gateway has to list.

    Args:
        hub: of the process.
        clients: all that are connected; looked at whenever somebody asks.
    """

    def __init__(self, hub: GatewayState, clients: Iterable[ConnectionInfo]) -> None:
        self._hub = hub
        self._clients = clients
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
            for link in self._hub.links:
                unconfirmed.update(link.confirms.unconfirmed())
        opened = ((client, client.session) for client in self._clients)
        return [row for client, session in opened if session is not None for row in make(client, session, unconfirmed)]

    def _connection(self, client: ConnectionInfo, session: Session, _unconfirmed: Counter[ConfirmTarget]) -> list[Row]:
        row = {
            "name": session.identity,
            "user": session.user,
            "vhost": session.vhost,
            "peer_host": client.peer,
            "peer_port": client.peer_port,
            "protocol": client.protocol,
            "tls": client.is_tls,
            "state": "blocked" if client.is_blocked else "running",
            "channels": len(session.channels),
            "connected_at": client.connected_at_ms,
            "client_properties": client.client_properties,
            "gateway": self._hub.name,
        }
        return [row]

    def _consumers(self, _client: ConnectionInfo, session: Session, _unconfirmed: Counter[ConfirmTarget]) -> list[Row]:
        return [
            self._consumer(session, channel.number, consumer)
            for channel in session.channels.values()
            for consumer in channel.consumers.values()
        ]

    def _consumer(self, session: Session, channel: int, consumer: Consumer) -> Row:
        queue = self._hub.topology.queue_by_id(consumer.queue)
        return {
            "tag": consumer.tag,
            "queue": "" if queue is None else queue.name,
            "channel": channel,
            "connection": session.identity,
            "user": session.user,
            "vhost": session.vhost,
            "prefetch": consumer.own_prefetch,
            "auto_ack": consumer.auto_ack,
            "exclusive": consumer.exclusive,
            "priority": consumer.priority,
        }


def _channels(client: ConnectionInfo, session: Session, unconfirmed: Counter[ConfirmTarget]) -> list[Row]:
    rows = []
    for channel in session.channels.values():
        prefetches = [consumer.own_prefetch for consumer in channel.consumers.values()]
        confirms, transactional = client.modes(channel.number)
        row = {
            "number": channel.number,
            "connection": session.identity,
            "user": session.user,
            "vhost": session.vhost,
            "consumers": len(channel.consumers),
            "unacked": channel.ledger.outstanding,
            "unconfirmed": unconfirmed[channel],
            "prefetch": 0 if 0 in prefetches else sum(prefetches),
            "confirm": confirms,
            "transactional": transactional,
        }
        rows.append(row)
    return rows


def gather_rows(hub: GatewayState, noun: str, then: Callable[[list[Row]], None]) -> None:
    """Call `then` with the rows of all gateways that answer, in order."""

    def join(lists: list[list[Row]]) -> None:
        order = _ORDER[noun]
        then(sorted((row for rows in lists for row in rows), key=lambda row: [row[field] for field in order]))

    gathering = AnswerCollector(2, join)
    gathering.take(hub.coordinator.lists(noun))
    hub.coordinator.inspect(gathering.take, ANSWER_SECONDS, noun)


def visible(noun: str, rows: list[Row], session: Session, tags: tuple[str, ...]) -> list[Row]:
    """The rows that a user may see: administrators and monitors all, others those of their own connections, and with
    the tag "management" the consumers in their virtual host.
    """
    if "administrator" in tags or "monitoring" in tags:
        return rows
    if noun == "consumers" and ("management" in tags or "policymaker" in tags):
        return [row for row in rows if row["vhost"] == session.vhost]
    return [row for row in rows if row["user"] == session.user]


_ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "connections": ("vhost", "connected_at", "name"),
    "channels": ("connection", "number"),
    "consumers": ("vhost", "queue", "connection", "channel", "tag"),
}
"""The lists there are, and by what each is ordered."""

CLIENT_LISTS: Final = tuple(_ORDER)
