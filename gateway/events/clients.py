"""Events of clients, by RabbitMQ's names: connections, channels, consumers, logins; and what they find wrong."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from shardmq.gateway.events.encryption import tls_facts
from shardmq.gateway.events.exchange import EventExchange
from shardmq.gateway.links.consumer import Consumer


class ClientInfo(Protocol):
    """A client that was let in."""

    @property
    def identity(self) -> str:
        """Names its connection in the whole broker."""

    @property
    def user(self) -> str:
        """Who it is."""

    @property
    def vhost(self) -> str:
        """The virtual host it has opened."""


class ConnectionInfo(Protocol):
    """A connection, whatever its protocol.

    Attributes:
        auth_mechanism: how its client has logged in, by SASL's names.
    """

    auth_mechanism: str

    @property
    def protocol(self) -> str:
        """Its name."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def peer_port(self) -> int:
        """The client's port."""

    @property
    def address(self) -> tuple[str, int]:
        """Where the client has found this gateway: host and port."""

    @property
    def is_tls(self) -> bool:
        """Whether it is encrypted."""

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The encryption; None where there is none."""

    @property
    def limits(self) -> dict[str, int]:
        """What was agreed on with the client, by RabbitMQ's names."""

    @property
    def connected_at_ms(self) -> int:
        """Since when, milliseconds since 1970."""

    @property
    def client_properties(self) -> dict[str, Any]:
        """What the client says of itself."""


class ClientEvents:
    """Tells what clients of this gateway do.

    Args:
        exchange: where it is told.
        node: the name of this gateway.
    """

    def __init__(self, exchange: EventExchange, node: str) -> None:
        self._exchange = exchange
        self._node = node

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens: what only events need is not looked up for nobody."""
        return self._exchange.is_heard

    def connection_created(self, connection: ConnectionInfo, client: ClientInfo) -> None:
        """Tell that a client was let in."""
        if not self._exchange.is_heard:
            return
        facts = {
            **self._connection(client),
            "user": client.user,
            "vhost": client.vhost,
            "type": "network",
            **_place(connection),
            "port": connection.address[1],
            **tls_facts(connection.tls),
            **connection.limits,
            "connected_at": connection.connected_at_ms,
            **_own_name(connection.client_properties),
            "client_properties": connection.client_properties,
        }
        self._exchange.tell("connection.created", facts)

    def connection_closed(self, connection: ConnectionInfo, client: ClientInfo) -> None:
        """Tell that a client is gone."""
        if self._exchange.is_heard:
            properties = connection.client_properties
            facts = {**self._connection(client), **_own_name(properties), "client_properties": properties}
            self._exchange.tell("connection.closed", facts)

    def channel_created(self, client: ClientInfo, number: int) -> None:
        """Tell that a channel was opened."""
        if not self._exchange.is_heard:
            return
        facts = {
            **_channel(client, number),
            "connection": client.identity,
            "number": number,
            "user": client.user,
            "vhost": client.vhost,
        }
        self._exchange.tell("channel.created", facts)

    def channel_closed(self, client: ClientInfo, number: int) -> None:
        """Tell that a channel was closed."""
        if self._exchange.is_heard:
            self._exchange.tell("channel.closed", _channel(client, number))

    def consumer_created(
        self, client: ClientInfo, channel: int, queue: str, consumer: Consumer, arguments: Mapping[str, Any]
    ) -> None:
        """Tell that a consumer was started."""
        if not self._exchange.is_heard:
            return
        facts = {
            **_consumer(client, channel, consumer),
            "queue": queue,
            "exclusive": consumer.exclusive,
            "ack_required": not consumer.auto_ack,
            "prefetch_count": consumer.own_prefetch,
            "arguments": arguments,
        }
        self._exchange.tell("consumer.created", facts)

    def consumer_deleted(self, client: ClientInfo, channel: int, queue: str, consumer: Consumer) -> None:
        """Tell that a consumer has ended; `queue` is "" where the queue was deleted before."""
        if self._exchange.is_heard:
            self._exchange.tell("consumer.deleted", {**_consumer(client, channel, consumer), "queue": queue})

    def logged_in(self, connection: ConnectionInfo, user: str) -> None:
        """Tell that a user has proven who they are."""
        if self._exchange.is_heard:
            self._exchange.tell("user.authentication.success", self._login(connection, user))

    def refused(self, connection: ConnectionInfo, user: str, error: str) -> None:
        """Tell that somebody has not."""
        if self._exchange.is_heard:
            self._exchange.tell("user.authentication.failure", {**self._login(connection, user), "error": error})

    def findings(self, client: ClientInfo, findings: Sequence[tuple[bool, Mapping[str, Any]]]) -> bool:
        """Tell of findings that begin (true) or end. Returns whether anybody listens."""
        for is_open, facts in findings:
            event = "finding.opened" if is_open else "finding.closed"
            self._exchange.tell(event, {"user_who_performed_action": client.user, **facts})
        return self._exchange.is_heard

    def _connection(self, client: ClientInfo) -> dict[str, Any]:
        return {
            "pid": client.identity,
            "name": client.identity,
            "node": self._node,
            "user_who_performed_action": client.user,
        }

    def _login(self, connection: ConnectionInfo, user: str) -> dict[str, Any]:
        facts = {"name": user, "connection_type": "network", "node": self._node, **_place(connection)}
        return facts if connection.tls is None else {**facts, **tls_facts(connection.tls)}


def _place(connection: ConnectionInfo) -> Mapping[str, Any]:
    """Where a client is, and how it has come."""
    return {
        "protocol": connection.protocol,
        "auth_mechanism": connection.auth_mechanism,
        "peer_host": connection.peer,
        "peer_port": connection.peer_port,
        "host": connection.address[0],
        "ssl": connection.is_tls,
    }


def _own_name(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The name that a client has given its connection, if it has: RabbitMQ's clients call it connection_name."""
    name = properties.get("connection_name")
    return {"user_provided_name": name} if isinstance(name, str) else {}


def _channel(client: ClientInfo, number: int) -> Mapping[str, Any]:
    name = f"{client.identity} ({number})"
    return {"pid": name, "name": name, "user_who_performed_action": client.user}


def _consumer(client: ClientInfo, channel: int, consumer: Consumer) -> Mapping[str, Any]:
    return {
        "consumer_tag": consumer.tag,
        "channel": f"{client.identity} ({channel})",
        "vhost": client.vhost,
        "user_who_performed_action": client.user,
    }
