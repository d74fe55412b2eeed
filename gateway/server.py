"""Listens, accepts, knows the connections, and checks who may open one."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import secrets
from typing import Any, Final

from shardmq.errors import (
    AuthenticationFailed,
    ConnectionFault,
    ReplyCode,
    RequestError,
    ShardmqError,
    StartupRefused,
)
from shardmq.gateway.clients import Lists
from shardmq.gateway.hub import Hub
from shardmq.gateway.native import NativeConnection
from shardmq.gateway.presence import Presence
from shardmq.gateway.session import Session
from shardmq.gateway.shardlink import Outcome
from shardmq.gateway.tls import SHUTDOWN_SECONDS, TlsOptions, server_context
from shardmq.limits import HANDSHAKE_SECONDS, NAME_BYTES_MAX
from shardmq.passwords import hash_password, verify_password
from shardmq.wire.operations import ConnectionOpen

BACKLOG: Final = 1024
LOOPBACK_ONLY: Final = frozenset({"guest"})
"""Users with a password everybody knows; RabbitMQ's `loopback_users`."""

SILENCE_CHECK_SECONDS: Final = 1.0

COMPLAINTS_MAX: Final = 10
"""Refused logins logged between two checks of silence; the others are counted. Whoever guesses fills no disk."""

_log = logging.getLogger(__name__)


class Server:
    """See the module.

    Args:
        hub: of the process.
        host: address to listen on.
        port: TCP port; several gateways may listen on the same one (SO_REUSEPORT).
        tls: another port, with TLS.

    Raises:
        StartupRefused: the files for TLS are not what they should be.
    """

    def __init__(self, hub: Hub, host: str, port: int, tls: TlsOptions | None = None) -> None:
        self.hub = hub
        self._host = host
        self._port = port
        self._tls = tls
        self._tls_context = None if tls is None else server_context(tls)
        self._connections: set[NativeConnection] = set()
        self._listeners: list[asyncio.Server] = []
        self._presence = Presence(hub)
        self._complaints = 0
        self._check_at = 0.0
        self._authenticating: set[asyncio.Task[None]] = set()
        # Checking a password takes 50 ms on purpose; one that was right is remembered as a keyed hash.
        self._key = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}
        hub.on_tick(self._tick)
        hub.on_census(self._census)
        hub.coordinator.lists = Lists(hub, self._connections).rows

    async def listen(self) -> None:
        """Begin to accept.

        Raises:
            StartupRefused: the address is not ours to listen on.
        """
        await self._listen(self._port, "--port")
        if self._tls is not None:
            security = {
                "ssl": self._tls_context,
                "ssl_handshake_timeout": HANDSHAKE_SECONDS,
                "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
            }
            await self._listen(self._tls.port, "--tls-port", **security)

    async def _listen(self, port: int, option: str, **security: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(
                self._connection, self._host, port, reuse_port=True, backlog=BACKLOG, **security
            )
        except OSError as fault:
            raise StartupRefused(
                f"cannot listen on {self._host}:{port}: {fault.strerror or fault}; is another broker running? "
                f"choose another {option}"
            ) from fault
        self._listeners.append(listener)

    def add(self, connection: NativeConnection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def opened(self, connection: NativeConnection, session: Session) -> None:
        """A client was let in."""
        self._presence.opened(connection, session)

    def check_channels(self, session: Session) -> None:
        """Make sure that a session's user may open one more channel.

        Raises:
            NotAllowed: the user's limit is reached.
        """
        self._presence.check_channels(session)

    def remove(self, connection: NativeConnection) -> None:
        """A client is gone."""
        self._connections.discard(connection)
        if connection.session is not None:
            self._presence.closed(connection.session)

    def authenticate(self, connection: NativeConnection, operation: ConnectionOpen) -> None:
        """Find out whether this client may open this virtual host, then tell the connection."""
        task = asyncio.create_task(self._authenticate(connection, operation))
        self._authenticating.add(task)
        task.add_done_callback(self._authenticating.discard)

    async def drain(self, seconds: float) -> None:
        """Accept no more, read no more, wait until every publish is answered, then part from everybody."""
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.stop_reading()
        deadline = asyncio.get_running_loop().time() + seconds
        while not self.hub.is_settled and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close(ShardmqError("the broker is shutting down", ReplyCode.CONNECTION_FORCED))
        while self._connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)

    async def _authenticate(self, connection: NativeConnection, operation: ConnectionOpen) -> None:
        fault: ConnectionFault | None = None
        try:
            await self._check_user(connection.peer, operation)
            await self._check_vhost(operation)
        except ConnectionFault as refused:
            fault = refused
            self._complain(connection.peer, operation.user, refused)
        connection.opened(operation, fault)

    def _complain(self, peer: str, user: str, fault: ConnectionFault) -> None:
        self._complaints += 1
        if self._complaints <= COMPLAINTS_MAX:
            text = fault.text if fault.text.isprintable() else repr(fault.text)  # names are the client's; one line each
            _log.warning("login of user %r from %s refused: %s", user[:NAME_BYTES_MAX], peer, text)

    async def _check_user(self, peer: str, operation: ConnectionOpen) -> None:
        name = operation.user
        user = self.hub.topology.users.get(name)
        stored = user.password if user is not None else ""
        proof = hmac.digest(
            self._key, f"{stored}\0{operation.password}".encode("utf-8", "surrogatepass"), hashlib.sha256
        )
        if not hmac.compare_digest(self._verified.get(name, b""), proof):
            if not await asyncio.to_thread(_is_password, operation.password, stored):
                raise AuthenticationFailed(f"user '{name[:NAME_BYTES_MAX]}' is not known, or the password is wrong")
            self._verified[name] = proof
        if name in LOOPBACK_ONLY and not _is_loopback(peer):
            raise AuthenticationFailed(f"user '{name}' may connect from this machine only; make a user of your own")

    async def _check_vhost(self, operation: ConnectionOpen) -> None:
        """Whether the user may open the virtual host, and neither has its limit of connections reached."""
        topology, name, vhost = self.hub.topology, operation.user, operation.vhost
        self._check_access(name, vhost)
        if any("max-connections" in limits for limits in (topology.vhosts[vhost].limits, topology.users[name].limits)):
            admitted: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            self.hub.coordinator.admit(vhost, name, admitted.set_result)
            outcome = await admitted
            if isinstance(outcome, RequestError):
                raise AuthenticationFailed(outcome.text, ReplyCode.NOT_ALLOWED)
            self._check_access(name, vhost)  # again: it took a while

    def _check_access(self, name: str, vhost: str) -> None:
        topology = self.hub.topology
        if vhost not in topology.vhosts:
            raise AuthenticationFailed(f"there is no virtual host '{vhost[:NAME_BYTES_MAX]}'", ReplyCode.NOT_ALLOWED)
        if name not in topology.users or (name, vhost) not in topology.permissions:
            raise AuthenticationFailed(
                f"access to vhost '{vhost}' refused for user '{name}'; a permission there is missing",
                ReplyCode.NOT_ALLOWED,
            )

    def _connection(self) -> NativeConnection:
        return NativeConnection(self)

    def _tick(self, now: float) -> None:
        if now >= self._check_at:
            self._check_at = now + SILENCE_CHECK_SECONDS
            if self._complaints > COMPLAINTS_MAX:
                _log.warning("%d more logins were refused", self._complaints - COMPLAINTS_MAX)
            self._complaints = 0
            for connection in list(self._connections):
                connection.abort_if_silent(now)

    def _census(self) -> dict[str, Any]:
        sessions = [connection.session for connection in self._connections if connection.session is not None]
        channels = [channel for session in sessions for channel in session.channels.values()]
        return {
            "port": self._port,
            "tls_port": None if self._tls is None else self._tls.port,
            "connections": len(self._connections),
            "channels": len(channels),
            "consumers": sum(len(channel.consumers) for channel in channels),
        }


def _is_password(password: str, stored: str) -> bool:
    """Whether it is a user's password; takes as long for a user who is not known (""), or whose hash is a quick one, so
    that nobody learns which names exist."""
    if stored and verify_password(password, stored):
        return True
    if not stored.startswith("scrypt$"):
        hash_password(password)
    return False


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
