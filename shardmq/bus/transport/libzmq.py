"""Sockets of libzmq, for links over TCP: it encrypts and sends on threads of its own, and connects again by itself."""

import contextlib
import time
from collections.abc import Hashable
from typing import Final

import zmq

from shardmq.bus.address import is_tcp
from shardmq.bus.curve import CurveGuard, guard_of
from shardmq.bus.transport.transport import ENVELOPES_PER_RECEIVE, NO_ENVELOPE, RECEIVE_BYTES, Envelope, Received
from shardmq.errors import StartupRefused

RECONNECT_MS: Final = 20
RECONNECT_MAX_MS: Final = 500
"""ZeroMQ's first and longest pause before it connects again."""

LOST_SECONDS: Final = 30
"""A connection on which nothing has come through for so long is closed, whatever waits to be sent: a host that is cut
off ends none. Sessions end much earlier; this frees memory and descriptors."""

RECALL_SECONDS: Final = 1.0
RECALL_SECONDS_MAX: Final = 5.0
"""Time between two connects to a listener that refused the handshake or spoke another protocol, twice as long each
time, as a busy machine takes its time for a handshake. ZeroMQ itself would not connect again, though keys and
processes may be replaced."""

CLOSING_SECONDS: Final = 0.5
"""For an address that is in use to become free: libzmq's thread closes what this process has listened with before."""

SHARED_BYTES: Final = 256 << 10
"""An envelope from this size on is not copied for libzmq's threads and from them: below it, that takes less time."""

POLLIN: Final = int(zmq.POLLIN)  # arithmetic on pyzmq's enumerations takes 3 µs
POLLOUT: Final = int(zmq.POLLOUT)
NOBLOCK: Final = int(zmq.NOBLOCK)
SNDMORE: Final = NOBLOCK | int(zmq.SNDMORE)


class ZmqDealer:
    """A socket of type DEALER; see `transport.Dealer`.

    Args:
        context: of the process.
        address: of the listener; "" for nobody, until `redirect` names one.
        identity: of this socket.
        peer: the listener's name.

    Raises:
        StartupRefused: the address is invalid, or not safe to use.

    Attributes:
        guard: of the socket; None where the address needs none.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str, identity: bytes, peer: str) -> None:
        socket = self.zmq_socket = _open(context, zmq.DEALER)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        socket.setsockopt(zmq.ROUTING_ID, identity)
        self.guard = _attach(context, socket, address, peer) if address else None
        self.more = False
        self.complaint = ""  # libzmq does not tell
        self.is_connected = True
        self._was_connected = False
        self._context = context
        self._address = address
        self._identity = identity
        self._connections = 0  # under other identities than the first
        self._called_at = time.monotonic()
        self._recall_seconds = RECALL_SECONDS

    @property
    def has_news(self) -> bool:
        """Whether the file descriptor may keep silent about something that `receive` would find."""
        return readiness_of(self.zmq_socket) != POLLOUT

    @property
    def has_come(self) -> bool:
        """Whether `receive` would find something."""
        return self.has_news

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.zmq_socket.closed

    def fileno(self) -> int:
        """The file descriptor that becomes readable when `receive` is to be called."""
        return self.zmq_socket.fileno()

    def poll(self, milliseconds: int) -> bool:
        """Wait until `receive` is to be called; returns whether it is."""
        return bool(self.zmq_socket.poll(milliseconds))

    def send(self, envelope: bytes) -> bool:
        """Send an envelope; returns False where no listener is at the other end."""
        try:
            self.zmq_socket.send(envelope, NOBLOCK, copy=len(envelope) < SHARED_BYTES)
        except zmq.Again:
            return False
        self._called_at = 0.0
        self._recall_seconds = RECALL_SECONDS
        return True

    def receive(self) -> list[Envelope]:
        """Take what has come."""
        received: list[Envelope] = []
        self.more = False
        for _ in range(ENVELOPES_PER_RECEIVE):
            readiness = readiness_of(self.zmq_socket)
            self.is_connected = bool(readiness & POLLOUT)  # no limit can have been reached: it is not connected
            if not readiness & POLLIN:
                return received
            received.append(_content(self.zmq_socket.recv(NOBLOCK, copy=False)))
        self.is_connected = self.more = True
        return received

    def took_up(self) -> bool:
        """Whether a connection was made since the last call of this."""
        was_connected, self._was_connected = self._was_connected, self.is_connected
        return self.is_connected and not was_connected

    def redial(self, now: float) -> None:
        """Connect again, where nothing is connected or has become of it."""
        if not self._called_at:
            self._called_at = now  # it has just failed for the first time
        elif now - self._called_at >= self._recall_seconds:
            self._recall_seconds = min(2 * self._recall_seconds, RECALL_SECONDS_MAX)
            self.hang_up()

    def redirect(self, address: str, peer: str) -> bool:
        """Leave the listener, and call another one; nobody where the address is ""."""
        self._disconnect()
        self._address = ""
        if not address:
            return False
        if not is_tcp(address):
            raise StartupRefused(f"a link over TCP cannot go on at {address}; give tcp:// addresses")
        self._rename()
        self.guard = _join(self._context, self.zmq_socket, address, peer)
        self._address = address
        self._called_at = time.monotonic()
        return self.guard is not None

    def hang_up(self) -> None:
        """Drop what waits to be sent, and connect anew: after a network was cut, the old connection may hang long."""
        self._disconnect()
        self._rename()
        self._called_at = time.monotonic()
        self.zmq_socket.connect(self._address)

    def _disconnect(self) -> None:
        self._was_connected = False
        if self._address:
            with contextlib.suppress(zmq.ZMQError):  # ENOENT: ZeroMQ has given it up already
                self.zmq_socket.disconnect(self._address)

    def _rename(self) -> None:
        """Have the next connection another identity: a listener takes no second one while it holds the first."""
        self._connections += 1
        self.zmq_socket.setsockopt(zmq.ROUTING_ID, b"%s.%d" % (self._identity, self._connections))

    def close(self) -> None:
        """Close the socket."""
        self.zmq_socket.close()


class ZmqRouter:
    """A socket of type ROUTER; see `transport.Router`.

    Args:
        context: of the process.
        address: to listen at.

    Raises:
        StartupRefused: the address is invalid, not safe to use, or in use.

    Attributes:
        guard: of the socket; None where the address needs none.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> None:
        self.zmq_socket = _open(context, zmq.ROUTER)
        self.zmq_socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.guard = _attach(context, self.zmq_socket, address, "")
        self.more = False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.zmq_socket.closed

    def fileno(self) -> int:
        """The file descriptor that becomes readable when `receive` is to be called."""
        return self.zmq_socket.fileno()

    def poll(self, milliseconds: int) -> bool:
        """Wait until `receive` is to be called; returns whether it is."""
        return bool(self.zmq_socket.poll(milliseconds))

    def send(self, caller: Hashable, envelope: bytes) -> bool:
        """Send a caller an envelope; returns False where it is not connected."""
        assert isinstance(caller, bytes)
        try:
            self.zmq_socket.send(caller, SNDMORE)  # send_multipart() takes 6 µs more
            self.zmq_socket.send(envelope, NOBLOCK, copy=len(envelope) < SHARED_BYTES)
        except zmq.ZMQError as fault:
            if fault.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def receive(self, has_come: bool = False) -> list[Received]:
        """Take what has come, in order. Asking a socket on which something has come takes 2 µs."""
        received: list[Received] = []
        self.more = False
        size = 0
        while has_come or readiness_of(self.zmq_socket) & POLLIN:
            has_come = False
            message = self._next()
            received.append(message)
            size += len(message[2] or b"")
            if len(received) == ENVELOPES_PER_RECEIVE or size > RECEIVE_BYTES:
                self.more = True
                break
        return received

    def is_behind(self, caller: Hashable) -> bool:  # noqa: ARG002  (the interface's)
        """Whether a caller has yet to read what it was sent, as far as that is known."""
        return False  # libzmq does not tell

    def hang_up(self, caller: Hashable) -> None:
        """End a caller's connection, and drop what waits to be sent to it."""

    def tick(self, now: float) -> None:
        """Look after connections; called every tenth of a second or so."""

    def close(self) -> None:
        """Stop listening."""
        self.zmq_socket.close()

    def _next(self) -> Received:
        if self.guard is None:
            receive = self.zmq_socket.recv  # recv_multipart() takes 2 µs more
            identity, envelope = receive(NOBLOCK), receive(NOBLOCK)
            while self.zmq_socket.getsockopt(zmq.RCVMORE):
                receive(NOBLOCK)
                envelope = NO_ENVELOPE
            return identity, "", envelope
        caller, *frames = self.zmq_socket.recv_multipart(NOBLOCK, copy=False)
        key_name = str(frames[-1].get("User-Id")) if frames else ""
        return caller.bytes, key_name, _content(frames[0]) if len(frames) == 1 else NO_ENVELOPE


def _content(frame: zmq.Frame) -> Envelope:
    """What is in a frame; where that is much, in place."""
    return frame.bytes if len(frame) < SHARED_BYTES else frame.buffer


def _open(context: "zmq.Context[zmq.Socket[bytes]]", kind: int) -> "zmq.Socket[bytes]":
    """Make a socket without limits of its own."""
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = socket.rcvhwm = 0  # counted in messages, it could not bound bytes; credit windows do
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, LOST_SECONDS // 3)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, LOST_SECONDS // 3)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 2)
    socket.setsockopt(zmq.TCP_MAXRT, LOST_SECONDS * 1000)
    return socket


def _attach(
    context: "zmq.Context[zmq.Socket[bytes]]", socket: "zmq.Socket[bytes]", address: str, peer: str
) -> CurveGuard | None:
    """Do what `_join` does with a socket that is new, and is closed where that fails."""
    try:
        return _join(context, socket, address, peer)
    except StartupRefused:
        socket.close()
        raise


def _join(
    context: "zmq.Context[zmq.Socket[bytes]]", socket: "zmq.Socket[bytes]", address: str, peer: str
) -> CurveGuard | None:
    """Connect a socket to a peer, or bind it where no peer is named, with the keys that its address needs.

    Returns:
        The guard of the socket; None where the address needs none.

    Raises:
        StartupRefused: the address is invalid, not safe to use, or in use.
    """
    try:
        socket.ipv6 = "[" in address
        guard = guard_of(context, address)
        if guard is not None and peer:
            guard.protect_dialer(socket, peer)
        elif guard is not None:
            guard.protect_listener(socket)
        if peer:
            socket.connect(address)
        else:
            _bind(socket, address)
    except zmq.ZMQError as fault:
        raise StartupRefused(f"the bus cannot use {address}: {fault.strerror}; choose another address") from fault
    return guard


def _bind(socket: "zmq.Socket[bytes]", address: str) -> None:
    until = time.monotonic() + CLOSING_SECONDS
    while True:
        try:
            socket.bind(address)
        except zmq.ZMQError as fault:
            if fault.errno != zmq.EADDRINUSE or time.monotonic() >= until:
                raise
            time.sleep(CLOSING_SECONDS / 50)
        else:
            return


def readiness_of(socket: "zmq.Socket[bytes]") -> int:
    """Which of POLLIN and POLLOUT are possible. Asking takes 2 µs; trying and catching the exception takes 10."""
    events = socket.getsockopt(zmq.EVENTS)
    assert isinstance(events, int)
    return events
