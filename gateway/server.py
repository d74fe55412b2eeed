"""Listens, accepts, knows the connections, and checks who may open one."""

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
from typing import Any, Final

from shardmq.errors import AuthenticationFailed, ConnectionFault, ReplyCode, ShardmqError, StartupRefused
from shardmq.gateway.hub import Hub
from shardmq.gateway.native import NativeConnection
from shardmq.passwords import hash_password, verify_password
from shardmq.wire.operations import ConnectionOpen

BACKLOG: Final = 1024
LOOPBACK_ONLY: Final = frozenset({"guest"})
"""Users with a password everybody knows; RabbitMQ's `loopback_users`."""

SILENCE_CHECK_SECONDS: Final = 1.0


class Server:
    """See the module.

    Args:
        hub: of the process.
        host: address to listen on.
        port: TCP port; several gateways may listen on the same one (SO_REUSEPORT).
    """

    def __init__(self, hub: Hub, host: str, port: int) -> None:
        self.hub = hub
        self._host = host
        self._port = port
        self._connections: set[NativeConnection] = set()
        self._listener: asyncio.Server | None = None
        self._check_at = 0.0
        self._authenticating: set[asyncio.Task[None]] = set()
        # Checking a password takes 50 ms on purpose; one that was right is remembered as a keyed hash.
        self._key = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}
        hub.on_tick(self._tick)
        hub.on_census(self._census)

    async def listen(self) -> None:
        """Begin to accept.

        Raises:
            StartupRefused: the address is not ours to listen on.
        """
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                self._connection, self._host, self._port, reuse_port=True, backlog=BACKLOG
            )
        except OSError as fault:
            raise StartupRefused(
                f"cannot listen on {self._host}:{self._port}: {fault.strerror or fault}; is another broker running? "
                "choose another --port"
            ) from fault

    def add(self, connection: NativeConnection) -> None:
        """A client has connected."""
        self._connections.add(connection)

    def remove(self, connection: NativeConnection) -> None:
        """A client is gone."""
        self._connections.discard(connection)

    def authenticate(self, connection: NativeConnection, operation: ConnectionOpen) -> None:
        """Find out whether this client may open this virtual host, then tell the connection."""
        task = asyncio.create_task(self._authenticate(connection, operation))
        self._authenticating.add(task)
        task.add_done_callback(self._authenticating.discard)

    async def drain(self, seconds: float) -> None:
        """Accept no more, read no more, wait until every publish is answered, then part from everybody."""
        if self._listener is not None:
            self._listener.close()
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
            await self._check(connection.peer, operation)
        except ConnectionFault as refused:
            fault = refused
        connection.opened(operation, fault)

    async def _check(self, peer: str, operation: ConnectionOpen) -> None:
        name = operation.user
        user = self.hub.topology.users.get(name)
        stored = user.password if user is not None else ""
        proof = hmac.digest(
            self._key, f"{stored}\0{operation.password}".encode("utf-8", "surrogatepass"), hashlib.sha256
        )
        if not hmac.compare_digest(self._verified.get(name, b""), proof):
            if user is None:  # takes as long as a wrong password, so that nobody learns which names exist
                await asyncio.to_thread(hash_password, operation.password)
            if user is None or not await asyncio.to_thread(verify_password, operation.password, stored):
                raise AuthenticationFailed(f"user '{name}' is not known, or the password is wrong")
            self._verified[name] = proof
        if name in LOOPBACK_ONLY and not _is_loopback(peer):
            raise AuthenticationFailed(f"user '{name}' may connect from this machine only; make a user of your own")
        if operation.vhost not in self.hub.topology.vhosts:
            raise AuthenticationFailed(f"there is no virtual host '{operation.vhost}'", ReplyCode.NOT_ALLOWED)

    def _connection(self) -> NativeConnection:
        return NativeConnection(self)

    def _tick(self, now: float) -> None:
        if now >= self._check_at:
            self._check_at = now + SILENCE_CHECK_SECONDS
            for connection in list(self._connections):
                connection.abort_if_silent(now)

    def _census(self) -> dict[str, Any]:
        sessions = [connection.session for connection in self._connections if connection.session is not None]
        channels = [channel for session in sessions for channel in session.channels.values()]
        return {
            "port": self._port,
            "connections": len(self._connections),
            "channels": len(channels),
            "consumers": sum(len(channel.consumers) for channel in channels),
        }


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
