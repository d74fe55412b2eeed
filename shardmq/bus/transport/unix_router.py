"""The listening end of links over a Unix domain socket."""

import contextlib
import errno
import logging
import os
import select
import socket
import time
from collections.abc import Hashable
from typing import Final

from shardmq.bus.address import IPC, check_private
from shardmq.bus.transport.connection import CLOSE_SECONDS, READING, Connection
from shardmq.bus.transport.transport import ENVELOPES_PER_RECEIVE, RECEIVE_BYTES, Received
from shardmq.bus.transport.unix_dealer import HANDSHAKE_SECONDS
from shardmq.bus.transport.zmtp import DEALER, ROUTER, Zmtp
from shardmq.errors import StartupRefused

BACKLOG: Final = 128

CONNECTIONS_MAX: Final = 512
"""Each takes a file descriptor and a buffer; a broker has some ten processes."""

_log = logging.getLogger(__name__)


class UnixRouter:
    """A socket of type ROUTER; see `transport.Router`.

    Args:
        address: to listen at, `ipc://` and a path.

    Raises:
        StartupRefused: the address is invalid, not safe to use, or in use.
    """

    zmq_socket = None

    def __init__(self, address: str) -> None:
        check_private(address, must_exist=True)
        self.more = False
        self._address = address
        self._path = address.removeprefix(IPC)
        self._listening = _listen(address, self._path)
        self._inode = os.stat(self._path).st_ino
        self._epoll = select.epoll()
        self._is_accepting = False
        self._connections: dict[int, Connection] = {}
        self._greeting: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}
        self._found: list[tuple[int, int]] = []
        self._accept_more()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._epoll.closed

    def fileno(self) -> int:
        """The file descriptor that becomes readable when `receive` is to be called."""
        return self._epoll.fileno()

    def poll(self, milliseconds: int) -> bool:
        """Wait until `receive` is to be called; returns whether it is."""
        self._found = self._epoll.poll(milliseconds / 1000)
        return bool(self._found)

    def send(self, caller: Hashable, envelope: bytes) -> bool:
        """Send a caller an envelope; returns False where it is not connected."""
        assert isinstance(caller, Connection)
        if caller.send(envelope):
            return True
        self._waiting[caller] = None  # so that its end is told
        return False

    def receive(self, has_come: bool = False) -> list[Received]:  # noqa: ARG002  (the interface's)
        """Take what has come, in order."""
        received: list[Received] = []
        self.more = False
        found, self._found = self._found or self._epoll.poll(0), []
        waiting = self._waiting
        for fd, _ in found:
            connection = self._connections.get(fd)
            if connection is None:
                self._accept()
                continue
            messages = connection.wire.messages
            if not messages and connection.is_open and connection.receive():
                self.more = True
            if connection.is_violated:
                _log.warning("%s: hung up on a caller: %s", self._address, connection.reason)
            if messages or not connection.is_open:
                waiting[connection] = None
        if not waiting:
            return received
        size = 0
        while waiting and len(received) < ENVELOPES_PER_RECEIVE and size <= RECEIVE_BYTES:
            for connection in list(waiting):
                messages = connection.wire.messages
                if messages:
                    message = messages.popleft()
                    size += len(message)
                    received.append((connection, "", message))
                if not messages:
                    del waiting[connection]
                    if not connection.is_open:
                        self._forget(connection)
                        received.append((connection, "", None))
        self.more = self.more or bool(waiting)
        return received

    def is_behind(self, caller: Hashable) -> bool:
        """Whether a caller has yet to read what it was sent, as far as that is known."""
        assert isinstance(caller, Connection)
        return caller.is_behind

    def hang_up(self, caller: Hashable) -> None:
        """End a caller's connection, and drop what waits to be sent to it."""
        assert isinstance(caller, Connection)
        caller.close("this end has hung up")
        caller.wire.messages.clear()
        self._waiting.pop(caller, None)
        self._forget(caller)

    def tick(self, now: float) -> None:
        """Look after connections; called every tenth of a second or so."""
        for connection in list(self._greeting):
            if connection.wire.is_ready:
                self._greeting.discard(connection)
            elif now - connection.since > HANDSHAKE_SECONDS:
                self.hang_up(connection)
        self._accept_more()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stop listening."""
        deadline = time.monotonic() + seconds
        for connection in self._connections.values():
            if connection.is_open:
                connection.finish(deadline)
        with contextlib.suppress(OSError):
            if not self._epoll.closed and os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        self._connections.clear()
        self._listening.close()
        self._epoll.close()

    def _accept(self) -> None:
        while len(self._connections) < CONNECTIONS_MAX:
            try:
                channel, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as fault:
                if fault.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                _log.warning("%s: a caller cannot be let in yet: %s", self._address, fault.strerror)
                break
            connection = Connection(channel, self._epoll, Zmtp(ROUTER, DEALER))
            if connection.is_open:
                self._connections[connection.fd] = connection
                self._greeting.add(connection)
        self._epoll.unregister(self._listening)  # until there is room again
        self._is_accepting = False

    def _accept_more(self) -> None:
        if not self._is_accepting and len(self._connections) < CONNECTIONS_MAX:
            self._epoll.register(self._listening, READING)
            self._is_accepting = True

    def _forget(self, connection: Connection) -> None:
        if self._connections.get(connection.fd) is connection:
            del self._connections[connection.fd]
        self._greeting.discard(connection)


def _listen(address: str, path: str) -> socket.socket:
    """Listen at a path; a socket that a killed process has left there is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        try:
            listening.bind(path)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise
            if _is_served(path):
                raise StartupRefused(
                    f"another process listens at {address}; stop it, or choose another address"
                ) from None
            os.unlink(path)
            listening.bind(path)
        listening.listen(BACKLOG)
    except OSError as fault:
        listening.close()
        raise StartupRefused(
            f"the bus cannot use {address}: {fault.strerror or fault}; choose another address"
        ) from fault
    except StartupRefused:
        listening.close()
        raise
    return listening


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True
