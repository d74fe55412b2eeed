"""A connection to the broker, for programs with threads: any thread may use it and everything on it."""

import os
import socket
import sys
from types import TracebackType
from typing import Any, Final, Self

from shardmq.client.channel import Channel
from shardmq.client.core import Core
from shardmq.client.io_thread import IoThread
from shardmq.client.url import Address, parse
from shardmq.client.waiting import TIMEOUT_SECONDS, Answer
from shardmq.errors import ConnectionLost, InvalidRequest, ShardmqError
from shardmq.limits import HEARTBEAT_SECONDS

CLOSE_SECONDS: Final = 5.0
"""`close` waits no longer than this for the server's goodbye."""

_HEARTBEAT_MAX: Final = 65_535


def client_properties() -> dict[str, Any]:
    """What the server is told of this program."""
    return {"product": "shardmq-python", "python": sys.version.split()[0], "pid": os.getpid()}


def check_heartbeat(heartbeat: int) -> None:
    """Raise InvalidRequest for a heartbeat that the wire cannot carry."""
    if not 0 <= heartbeat <= _HEARTBEAT_MAX:
        raise InvalidRequest(f"a heartbeat is 0 (none) to {_HEARTBEAT_MAX} seconds, not {heartbeat}")


def connect(
    url: str = "shardmq://guest:guest@127.0.0.1:5672/",
    timeout: float = TIMEOUT_SECONDS,
    heartbeat: int = HEARTBEAT_SECONDS,
) -> "Connection":
    """Connect to a broker.

    Args:
        url: shardmq://user:password@host:port/vhost; only the host is needed.
        timeout: seconds to wait for the connection, and later for each answer.
        heartbeat: seconds between signs of life; a broker silent for two of them is taken for dead. 0 for none.

    Raises:
        InvalidRequest: the URL or the heartbeat makes no sense.
        ConnectionLost: nobody answers there.
        AuthenticationFailed: user, password or virtual host are refused.
    """
    address = parse(url)
    check_heartbeat(heartbeat)
    try:
        sock = socket.create_connection((address.host, address.port), timeout)
    except OSError as fault:
        raise ConnectionLost(f"no broker answers at {address}: {fault.strerror or fault}") from fault
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(sock, address, timeout, heartbeat)
    try:
        connection._open()
    except ShardmqError:
        connection._abort()
        raise
    return connection


class Connection:
    """An open connection, with its I/O and heartbeats on a thread of its own. Made by `connect`.

    A context manager: leaving it closes the connection.
    """

    def __init__(self, sock: socket.socket, address: Address, timeout: float, heartbeat: int) -> None:
        self.timeout = timeout
        """Seconds each answer is waited for."""
        self._address = address
        self._core = Core(address, heartbeat)
        self._io = IoThread(sock, self._core, str(address))
        self._channels: set[Channel] = set()
        self._own_channel: Channel | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection to {self._address}, {'open' if self.is_open else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._core.fault is None

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the broker said of itself: product, version, protocol, heartbeat, frame_max, channel_max."""
        server = self._core.server
        return {name: getattr(server, name) for name in server.__struct_fields__}

    def channel(self) -> Channel:
        """Open a channel. Channels are cheap; each has its own delivery tags, consumers and order.

        Raises:
            ResourceLocked: the connection has as many channels as it may.
            Timeout, ConnectionFault: no answer, or no connection.
        """
        channel = Channel(self._core, self._io, self.timeout, self._channels.discard)
        self._channels.add(channel)
        return channel

    def status(self) -> dict[str, Any]:
        """The state of every process and queue, as `shardmq status` shows it."""
        status: dict[str, Any] = self._channel_for_questions().status()
        return status

    def topology(self, noun: str) -> list[dict[str, Any]]:
        """What there is in this virtual host: a table for each.

        Args:
            noun: "exchanges", "queues" or "bindings".
        """
        tables: list[dict[str, Any]] = self._channel_for_questions().topology(noun)
        return tables

    def close(self) -> None:
        """Close it, with all its channels; what is unacked returns to its queues. Always returns, within seconds."""
        if self.is_open:
            for channel in list(self._channels):
                channel.flush()
            with self._io.lock:
                self._core.close(self._closed_here())
                self._io.transmit()
        if not self._io.join(min(CLOSE_SECONDS, self.timeout)):
            self._abort()

    def _open(self) -> None:
        opened = Answer()
        self._io.start()
        with self._io.lock:
            self._core.open(client_properties(), opened)
            self._io.transmit()
        self._io.wait(opened, self.timeout, f"opening the connection to {self._address}")

    def _abort(self) -> None:
        with self._io.lock:
            self._core.lose(self._closed_here())
        self._io.stop()
        self._io.join(CLOSE_SECONDS)

    def _closed_here(self) -> ConnectionLost:
        return ConnectionLost(f"the connection to {self._address} was closed by this program")

    def _channel_for_questions(self) -> Channel:
        if self._own_channel is None or not self._own_channel.is_open:
            self._own_channel = self.channel()
        return self._own_channel
