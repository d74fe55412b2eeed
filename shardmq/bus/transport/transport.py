"""What links ask of a socket: a dealer at the dialing end, a router at the listening end. Neither ever blocks."""

from collections.abc import Hashable
from typing import Final, Protocol

import zmq

ENVELOPES_PER_RECEIVE: Final = 64
"""Envelopes that one call of `receive` takes off a socket, so that a process's other sockets get their turn."""

ENVELOPE_BYTES: Final = 8 << 20
"""An envelope that exceeds this size is closed and another begun, so that a backlog comes in portions."""

RECEIVE_BYTES: Final = 4 * ENVELOPE_BYTES
"""A listener stops receiving for this call above so many bytes; the last envelope may hold a message of any size. A
dialer needs no such limit: the windows of its consumers bound what comes."""

NO_ENVELOPE: Final = b""
"""Stands for a message of several frames, which is none of ours."""

Envelope = bytes | bytearray | memoryview
Received = tuple[Hashable, str, Envelope | None]
"""Whom it is from, the name its key is allowed under ("" where there are no keys), and what came: an envelope, or None
where the caller has hung up."""


class Dealer(Protocol):
    """The dialing end.

    Attributes:
        more: whether the last `receive` left envelopes behind.
    """

    more: bool

    @property
    def zmq_socket(self) -> "zmq.Socket[bytes] | None":
        """The socket of libzmq, which a poller has to ask; None where the file descriptor tells all."""

    @property
    def is_connected(self) -> bool:
        """Whether the last `receive` has found a listener at the other end."""

    @property
    def complaint(self) -> str:
        """Why whoever listens cannot be talked with, where that is known; else ""."""

    @property
    def has_news(self) -> bool:
        """Whether the file descriptor may keep silent about something that `receive` would find."""

    @property
    def has_come(self) -> bool:
        """Whether `receive` would find something."""

    @property
    def closed(self) -> bool:
        """Whether the socket was closed."""

    def fileno(self) -> int:
        """The file descriptor that becomes readable when `receive` is to be called."""

    def poll(self, milliseconds: int) -> bool:
        """Wait until `receive` is to be called; returns whether it is."""

    def send(self, envelope: bytes) -> bool:
        """Send an envelope; returns False where no listener is at the other end."""

    def receive(self) -> list[Envelope]:
        """Take what has come."""

    def took_up(self) -> bool:
        """Whether a connection was made since the last call of this."""

    def redial(self, now: float) -> None:
        """Connect again, where nothing is connected or has become of it."""

    def redirect(self, address: str, peer: str) -> bool:
        """Leave the listener, and call another one; nobody where the address is "".

        Args:
            address: of the same kind as the one before.
            peer: the new listener's name.

        Returns:
            Whether the socket talks to the holder of the peer's key only.

        Raises:
            StartupRefused: the address is invalid, or not safe to use.
        """

    def hang_up(self) -> None:
        """Drop what waits to be sent, where that is possible."""

    def close(self) -> None:
        """Close the socket."""


class Router(Protocol):
    """The listening end.

    Attributes:
        more: whether the last `receive` left envelopes behind.
    """

    more: bool

    @property
    def zmq_socket(self) -> "zmq.Socket[bytes] | None":
        """The socket of libzmq, which a poller has to ask; None where the file descriptor tells all."""

    @property
    def closed(self) -> bool:
        """Whether the socket was closed."""

    def fileno(self) -> int:
        """The file descriptor that becomes readable when `receive` is to be called."""

    def poll(self, milliseconds: int) -> bool:
        """Wait until `receive` is to be called; returns whether it is."""

    def send(self, caller: Hashable, envelope: bytes) -> bool:
        """Send a caller an envelope; returns False where it is not connected."""

    def receive(self, has_come: bool = False) -> list[Received]:
        """Take what has come, in order.

        Args:
            has_come: a poller has found something on this socket.
        """

    def is_behind(self, caller: Hashable) -> bool:
        """Whether a caller has yet to read what it was sent, as far as that is known."""

    def hang_up(self, caller: Hashable) -> None:
        """End a caller's connection and drop what waits to be sent to it, where that is possible."""

    def tick(self, now: float) -> None:
        """Look after connections; called every tenth of a second or so."""

    def close(self) -> None:
        """Stop listening."""
