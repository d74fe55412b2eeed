"""Listens, accepts, and knows the connections."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from shardmq.errors import ReplyCode, ShardmqError, StartupRefused
from shardmq.gateway.authentication.authenticator import Authenticator
from shardmq.gateway.handlers.client_lists import Lists
from shardmq.gateway.protocol_detector import ProtocolDetector
from shardmq.gateway.session.connection import (
    LEAST_HIGH_WATER_BYTES,
    SILENCE_CHECK_SECONDS,
    WRITE_HIGH_WATER_BYTES,
    ClientConnection,
)
from shardmq.gateway.session.connection_tracking import ConnectionTracker
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.gateway import GatewayState
from shardmq.limits import HANDSHAKE_SECONDS, MESSAGE_BYTES_MAX
from shardmq.runtime.clock import Ticks
from shardmq.runtime.tls import SHUTDOWN_SECONDS, TlsOptions, server_context

BACKLOG: Final = 1024
STOPPING: Final = "broker forced connection closure with reason 'shutdown'"
"""What clients are told when the process stops; RabbitMQ's words, which programs know."""

GOODBYE_SECONDS: Final = 1.0
"""What clients have to hang up when the process stops, once all is said."""


class Server:
    """See the module.

    Args:
        hub: of the process.
        host: address to listen on.
        port: TCP port; several gateways may listen on the same one (SO_REUSEPORT).
        tls: another port, with TLS, or the only one.
        message_bytes_max: of a message's body.

    Attributes:
        logins: who may come in.
        message_bytes_max: as it was given.

    Raises:
        StartupRefused: the files for TLS are not what they should be.
    """

    def __init__(
        self,
        hub: GatewayState,
        host: str,
        port: int,
        tls: TlsOptions | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.hub = hub
        self.message_bytes_max = message_bytes_max
        self._host = host
        self._port = port
        self._tls = tls
        self._tls_context = None if tls is None else server_context(tls)
        self._connections: set[ClientConnection] = set()
        self._doorways: set[ProtocolDetector] = set()
        self._listeners: list[asyncio.Server] = []
        self._presence = ConnectionTracker(hub)
        self._check_at = 0.0
        self._ticks = Ticks()
        self.logins = Authenticator(hub)
        hub.on_tick(self._tick)
        hub.on_census(self._census)
        hub.coordinator.lists = Lists(hub, self._connections).rows

    async def listen(self) -> None:
        """Begin to accept.

        Raises:
            StartupRefused: the address is not ours to listen on.
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
            listener = await loop.create_server(self._doorway, host, port, reuse_port=True, backlog=BACKLOG, **security)
        except OSError as fault:
            raise StartupRefused(
                f"cannot listen on {host}:{port}: {fault.strerror or fault}; is another broker running? "
                f"choose another {option}"
            ) from fault
        self._listeners.append(listener)

    def accepted(self, doorway: ProtocolDetector) -> None:
        """Somebody has connected, and has said nothing yet."""
        self._doorways.add(doorway)

    def entered(self, doorway: ProtocolDetector) -> None:
        """It has said which protocol it speaks, or is gone."""
        self._doorways.discard(doorway)

    def add(self, connection: ClientConnection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def opened(self, connection: ClientConnection, session: Session) -> None:
        """A client was let in."""
        self._presence.opened(connection, session)

    def check_channels(self, session: Session) -> None:
        """Make sure that a session's user may open one more channel.

        Raises:
            NotAllowed: the user's limit is reached.
        """
        self._presence.check_channels(session)

    def left(self, session: Session) -> None:
        """A client that was let in has nothing here any more, though its socket may live on for a while."""
        self._presence.closed(session)

    def when_gone(self, session: Session, then: Callable[[], None]) -> None:
        """Call back when the exclusive queues of a client that has left are gone."""
        self._presence.when_gone(session, then)

    @property
    def next_high_water(self) -> int:
        """What may wait for one more client before it is taken for one that is behind."""
        share = self.hub.windows_bytes // (len(self._connections) + 1)
        return max(LEAST_HIGH_WATER_BYTES, min(WRITE_HIGH_WATER_BYTES, share))

    def remove(self, connection: ClientConnection) -> None:
        """A client is gone."""
        self._connections.discard(connection)

    async def drain(self, seconds: float) -> None:
        """Accept no more, read no more, wait until every publish is answered, then part from everybody."""
        for listener in self._listeners:
            listener.close()
        for doorway in list(self._doorways):
            doorway.abort()
        for connection in self._connections:
            connection.stop_reading()
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.hub.is_settled and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close(ShardmqError(STOPPING, ReplyCode.CONNECTION_FORCED))
        deadline = min(deadline, asyncio.get_running_loop().time() + GOODBYE_SECONDS)
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        self.logins.close()

    def _doorway(self) -> ProtocolDetector:
        return ProtocolDetector(self)

    def _tick(self, now: float) -> None:
        if self._ticks.stood_still(now) or now < self._check_at:
            return
        self._check_at = now + SILENCE_CHECK_SECONDS
        self.logins.tick(now)
        for doorway in list(self._doorways):
            doorway.abort_if_silent(now)
        for connection in list(self._connections):
            connection.abort_if_silent(now)

    def _census(self) -> dict[str, Any]:
        sessions = [connection.session for connection in self._connections if connection.session is not None]
        channels = [channel for session in sessions for channel in session.channels.values()]
        return {
            "port": None if self._tls is not None and self._tls.is_alone else self._port,
            "tls_port": None if self._tls is None else self._tls.port,
            "connections": len(self._connections),
            "channels": len(channels),
            "consumers": sum(len(channel.consumers) for channel in channels),
            **self.logins.counts,
        }
