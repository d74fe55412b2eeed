"""The dialing end of a link over a Unix domain socket."""

import select
import socket
import time
from typing import Final

from shardmq.bus.address import IPC, check_private, is_tcp
from shardmq.bus.transport.connection import CLOSE_SECONDS, Connection
from shardmq.bus.transport.transport import ENVELOPES_PER_RECEIVE, Envelope
from shardmq.bus.transport.zmtp import DEALER, ROUTER, Zmtp
from shardmq.errors import StartupRefused

HANDSHAKE_SECONDS: Final = 10.0
"""A listener that has not answered for so long is called anew."""


class UnixDealer:
    """A socket of type DEALER; see `transport.Dealer`. It connects when `redial` is called.

    Args:
        address: of the listener, `ipc://` and a path.
        identity: of this socket.

    Raises:
        StartupRefused: the address is not safe to use.
    """

    zmq_socket = None

    def __init__(self, address: str, identity: bytes) -> None:
        check_private(address, must_exist=False)
        self.more = False
        self._path = address.removeprefix(IPC)
        self._identity = identity
        self._epoll = select.epoll(1)
        self._connection: Connection | None = None
        self._was_ready = False

    @property
    def is_connected(self) -> bool:
        """Whether the last `receive` has found a listener at the other end."""
        connection = self._connection
        return connection is not None and connection.is_open and connection.wire.is_ready

    @property
    def complaint(self) -> str:
        """Why whoever listens cannot be talked with, where that is known; else ""."""
        connection = self._connection
        return connection.reason if connection is not None and connection.is_violated else ""

    @property
    def has_news(self) -> bool:
        """Whether the file descriptor may keep silent about something that `receive` would find."""
        connection = self._connection
        return connection is not None and (not connection.is_open or bool(connection.wire.messages))

    @property
    def has_come(self) -> bool:
        """Whether `receive` would find something. Asking takes 1 µs; reading in vain takes 4."""
        return bool(self._epoll.poll(0)) or self.has_news

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._epoll.closed

    def fileno(self) -> int:
        """The file descriptor that becomes readable when `receive` is to be called."""
        return self._epoll.fileno()

    def poll(self, milliseconds: int) -> bool:
        """Wait until `receive` is to be called; returns whether it is."""
        return bool(self._epoll.poll(milliseconds / 1000))

    def send(self, envelope: bytes) -> bool:
        """Send an envelope; returns False where no listener is at the other end."""
        connection = self._connection
        return connection is not None and connection.send(envelope)

    def receive(self) -> list[Envelope]:
        """Take what has come."""
        connection = self._connection
        self.more = False
        if connection is None:
            return []
        messages = connection.wire.messages
        if not messages and connection.is_open:
            self.more = connection.receive()
        if len(messages) <= ENVELOPES_PER_RECEIVE:
            taken = list(messages)
            messages.clear()
            return taken
        self.more = True
        return [messages.popleft() for _ in range(ENVELOPES_PER_RECEIVE)]

    def took_up(self) -> bool:
        """Whether a connection was made since the last call of this."""
        was_ready, self._was_ready = self._was_ready, self.is_connected
        return self._was_ready and not was_ready

    def redial(self, now: float) -> None:
        """Connect again, where nothing is connected or has become of it."""
        connection = self._connection
        if connection is not None and connection.is_open:
            if connection.wire.is_ready or now - connection.since < HANDSHAKE_SECONDS:
                return
            connection.close("it did not answer")
        self._connection = None
        self._was_ready = False
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            channel.connect(self._path)
        except OSError:  # nobody listens yet, or too many wait already: the owner calls again
            channel.close()
            return
        self._connection = Connection(channel, self._epoll, Zmtp(DEALER, ROUTER, self._identity))

    def redirect(self, address: str, peer: str) -> bool:  # noqa: ARG002  (the interface's)
        """Leave the listener, and call another one when `redial` is called."""
        if address and is_tcp(address):
            raise StartupRefused(f"a link over ipc cannot go on at {address}; give ipc:// addresses")
        if self._connection is not None:
            self._connection.close("this end calls another one")
        self._connection = None
        self._was_ready = False
        if address:
            check_private(address, must_exist=False)
        self._path = address.removeprefix(IPC)
        return False

    def hang_up(self) -> None:
        """Drop what waits to be sent, where that is possible."""
        if self._connection is not None:
            self._connection.close("this end has hung up")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close the socket."""
        if self._connection is not None and self._connection.is_open:
            self._connection.finish(time.monotonic() + seconds)
        self._epoll.close()
