"""Listens, accepts, tells the protocol from the first byte, knows the connections."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, cast

from shardmq.errors import ReplyCode, ShardmqError, StartupRefused
from shardmq.gateway.amqp.connection import AmqpConnection
from shardmq.gateway.authentication.authenticator import Authenticator
from shardmq.gateway.handlers.client_lists import ClientLists
from shardmq.gateway.handlers.statistics.clients import ClientPages
from shardmq.gateway.handlers.statistics.flow import Flow
from shardmq.gateway.native.connection import NativeConnection
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.client_socket import READ_BUFFER, set_socket_options
from shardmq.gateway.session.connection import SILENCE_CHECK_SECONDS, ClientConnection
from shardmq.gateway.session.connection_tracking import ConnectionTracker
from shardmq.gateway.state.gateway import GatewayState
from shardmq.limits import HANDSHAKE_SECONDS, MESSAGE_BYTES_MAX
from shardmq.runtime.renewal import RenewableContext
from shardmq.runtime.tls import SHUTDOWN_SECONDS, TlsOptions

BACKLOG: Final = 1024
"""Connections that the kernel accepts ahead of us."""

STOPPING: Final = "broker forced connection closure with reason 'shutdown'"
"""What clients are told when the process stops; RabbitMQ's words, which programs know."""

GOODBYE_SECONDS: Final = 1.0
"""Time that clients have to hang up when the process stops, after they were told."""

WRITE_HIGH_WATER_BYTES: Final = 1 << 20
"""A client with more than this unread is given no more credit; small beside a delivery window."""

LEAST_HIGH_WATER_BYTES: Final = 16 << 10
"""The least of it, where many thousands of clients share the gateway's memory."""

AMQP: Final = ord("A")
"""The first byte of "AMQP"; the native protocol's frames begin with the upper byte of a small number."""


class Server:
    """Accepts clients, and closes their connections when the process stops.

    Args:
        state: of the gateway.
        host: address to listen on.
        port: TCP port; several gateways may listen on the same one (SO_REUSEPORT).
        tls: another port, with TLS, or the only one.
        message_bytes_max: of a message's body.

    Attributes:
        authenticator: checks logins.
        message_bytes_max: of a message's body.

    Raises:
        StartupRefused: a file for TLS does not exist, cannot be read, or holds something else.
    """

    def __init__(
        self,
        state: GatewayState,
        host: str,
        port: int,
        tls: TlsOptions | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.state = state
        self.message_bytes_max = message_bytes_max
        self._host = host
        self._port = port
        self._tls = tls
        self._tls_context = None if tls is None else RenewableContext(tls)
        self._connections: set[ClientConnection] = set()
        self._silent: set[ProtocolDetector] = set()  # have connected, and said nothing yet
        self._listeners: list[asyncio.Server] = []
        self._tracker = ConnectionTracker(state)
        self._nearly_silent: list[ClientConnection] = []
        self._check_at = 0.0
        self.authenticator = Authenticator(state)
        if self._tls_context is not None:
            state.on_tick(self._tls_context.look)
            self._tls_context.renew_at_hangup(asyncio.get_running_loop())
        state.on_tick(self._tick)
        state.on_census(self._census)
        lists, flow = ClientLists(state, self._connections), Flow(state, self._connections, time.monotonic())
        state.on_tick(flow.tick)
        state.coordinator.lists = ClientPages(state, lists, self._connections, flow).answer

    async def listen(self) -> None:
        """Begin to accept.

        Raises:
            StartupRefused: nothing can listen at the address, as when another process has its port.
        """
        if self._tls is None or not self._tls.is_alone:
            await self._listen(self._host, self._port, "--port")
        if self._tls is not None:
            security = {
                "ssl": self._tls_context,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
            await self._listen(self._tls.host or self._host, self._tls.port, "--tls-port", **security)

    async def _listen(self, host: str, port: int, option: str, **security: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(self._accept, host, port, reuse_port=True, backlog=BACKLOG, **security)
        except OSError as fault:
            raise StartupRefused(
                f"cannot listen on {host}:{port}: {fault.strerror or fault}; is another broker running? "
                f"choose another {option}"
            ) from fault
        self._listeners.append(listener)

    def _accept(self) -> "ProtocolDetector":
        return ProtocolDetector(self)

    def accepted(self, detector: "ProtocolDetector") -> None:
        """Count a client that has connected, and has said nothing yet."""
        self._silent.add(detector)

    def entered(self, detector: "ProtocolDetector") -> None:
        """Forget a client that has said which protocol it speaks, or is gone."""
        self._silent.discard(detector)

    def add(self, connection: ClientConnection) -> None:
        """Count a client that has connected, and whose protocol is known."""
        self._connections.add(connection)

    def opened(self, connection: ClientConnection, client: Client) -> None:
        """Note that a client was let in."""
        self.state.traffic.churn["connections_opened"] += not client.serves_http
        self._tracker.opened(connection, client)
        self.state.events.connection_created(connection, client)

    def check_channels(self, client: Client) -> None:
        """Make sure that a client's user may open one more channel.

        Raises:
            NotAllowed: the user's limit is reached.
        """
        self._tracker.check_channels(client)

    def left(self, client: Client) -> None:
        """Note that a client has nothing here any more, though its socket may live on for a while."""
        self.state.traffic.churn["connections_closed"] += not client.serves_http
        self._tracker.closed(client)

    def when_gone(self, client: Client, then: Callable[[], None]) -> None:
        """Call back when the exclusive queues of a client that has left are gone."""
        self._tracker.when_gone(client, then)

    @property
    def next_high_water(self) -> int:
        """Bytes that may wait to be sent to one more client before it counts as behind."""
        share = self.state.windows_bytes // (len(self._connections) + 1)
        return max(LEAST_HIGH_WATER_BYTES, min(WRITE_HIGH_WATER_BYTES, share))

    def remove(self, connection: ClientConnection) -> None:
        """Forget a client that is gone."""
        self._connections.discard(connection)

    async def drain(self, seconds: float) -> None:
        """Accept no more, read no more, wait until every publish is answered, then close all connections.

        Args:
            seconds: how long to wait.
        """
        for listener in self._listeners:
            listener.close()
        for detector in list(self._silent):
            detector.abort()
        for connection in self._connections:
            connection.stop_reading()
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.state.is_settled and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close(ShardmqError(STOPPING, ReplyCode.CONNECTION_FORCED))
        deadline = min(deadline, asyncio.get_running_loop().time() + GOODBYE_SECONDS)
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        self.authenticator.close()

    def _tick(self, _now: float) -> None:
        """Have clients be looked after once all is read that they said before: this tick may come late."""
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(self._look_after_clients))  # sockets are read in between

    def _look_after_clients(self) -> None:
        now = time.monotonic()
        if now < self._check_at:  # those that were nearly silent for too long; a group's partitions wait for them
            for connection in self._nearly_silent:
                if connection in self._connections:
                    connection.abort_if_silent(now)
            return
        self._check_at = now + SILENCE_CHECK_SECONDS
        self.authenticator.tick(now)
        for detector in list(self._silent):
            detector.abort_if_silent(now)
        for connection in list(self._connections):
            connection.abort_if_silent(now)
        self._nearly_silent = [each for each in self._connections if each.may_end_by(self._check_at)]

    def _census(self) -> dict[str, Any]:
        clients = [connection.session.client for connection in self._connections if connection.session is not None]
        return {
            "port": None if self._tls is not None and self._tls.is_alone else self._port,
            "tls_port": None if self._tls is None else self._tls.port,
            "connections": len(self._connections),
            "channels": sum([client.channels for client in clients]),
            "consumers": sum([client.consumers for client in clients]),
            "clients": _totals([client for client in clients if client.vhost and not client.serves_http]),
            **self.authenticator.counts,
            "logins": self.authenticator.logins,
        }


def _totals(clients: list[Client]) -> dict[str, int]:
    """What there is of clients in virtual hosts, as lists of them show it."""
    channels, consumers = sum([client.channels for client in clients]), sum([client.consumers for client in clients])
    return {"connections": len(clients), "channels": channels, "consumers": consumers}


class ProtocolDetector(asyncio.BufferedProtocol):
    """A socket that was accepted, until its first byte tells which protocol it speaks.

    Args:
        server: that has accepted it.
    """

    __slots__ = ("_accepted_at", "_server", "_transport")

    def __init__(self, server: Server) -> None:
        self._server = server
        self._accepted_at = time.monotonic()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first byte."""
        self._transport = cast(asyncio.Transport, transport)
        set_socket_options(transport)
        self._server.accepted(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """Forget a client that is gone without a word."""
        self._server.entered(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """The buffer to read into."""
        return READ_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Hand the socket over to the connection of the protocol that the client speaks."""
        server = self._server
        server.entered(self)
        kind = AmqpConnection if READ_BUFFER[0] == AMQP else NativeConnection
        connection: ClientConnection = kind(server, server.authenticator)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.buffer_updated(nbytes)

    def abort_if_silent(self, now: float) -> None:
        """Enforce the handshake's time; called about once a second."""
        if now - self._accepted_at > HANDSHAKE_SECONDS:
            self.abort()

    def abort(self) -> None:
        """Hang up."""
        self._transport.abort()
