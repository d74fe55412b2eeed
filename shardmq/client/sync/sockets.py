"""Making a socket to an address, for programs with threads: in time, and not a moment longer than it is wanted."""

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from shardmq.client.api.tls import context_for, server_name, why
from shardmq.client.api.url import Address
from shardmq.errors import ConnectionLost, ShardmqError

LENT_SECONDS: Final = 0.05
"""For so long after a thread has read its own answer the next one is expected to do the same. Longer costs those who
are told things that they have not asked for, such as that the broker is blocked; shorter, the I/O thread more wakes."""

TAKEN_BACK_SECONDS: Final = 0.001
"""Pause between two looks at whether who reads a socket that was shut down has noticed."""

WAIT_SECONDS_MAX: Final = 3600.0
"""One wait is no longer: a timeout may be infinite, and poll takes no more than 24 days."""

SIGNAL_SECONDS: Final = 0.25
"""One wait of the main thread is no longer. A signal ends a wait, but not where it comes in the moment before: its
handler, or Ctrl-C, then has to wait as long."""


class TlsSocket:
    """A TLS connection with the methods of a non-blocking socket, once its handshake is over.

    OpenSSL's objects are not safe from several threads: one lock. What it has decrypted and not handed out shows in no
    poll, so a read takes all there is.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor, for poll."""
        return self._socket.fileno()

    def send(self, data: bytes | memoryview) -> int:
        """Send what the socket takes.

        Raises:
            BlockingIOError: it takes nothing now.
        """
        view = memoryview(data)
        sent = 0
        with self._lock:
            try:
                while sent < len(view):  # a call sends one TLS record, of 16 KiB
                    sent += self._socket.send(view[sent:])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as full:
                if not sent:
                    raise BlockingIOError from full
        return sent

    def recv_into(self, buffer: bytearray) -> int:
        """Read what there is; 0 at the end.

        Raises:
            BlockingIOError: there is nothing now.
        """
        view = memoryview(buffer)
        count = 0
        with self._lock:
            try:
                while count < len(view):
                    got = self._socket.recv_into(view[count:])
                    count += got
                    if not got:
                        break
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as empty:
                if not count:
                    raise BlockingIOError from empty
            except ssl.SSLEOFError:  # the peer hung up without a goodbye; frames have their own length
                pass
        return count

    def pending(self) -> bool:
        """Whether decrypted bytes wait to be read, which poll does not tell."""
        with self._lock:
            return self._socket.pending() > 0

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._socket.close()


Stream = socket.socket | TlsSocket


class WakePipe:
    """Wakes a thread from its poll."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)

    def wake(self) -> None:
        """Make `reader` readable; as many wakes as a pipe holds are as good as one more.

        Raises:
            OSError: it is closed.
        """
        with contextlib.suppress(BlockingIOError):
            self._writer.send(b"\0")

    def drain(self) -> None:
        """Take all wakes that have come."""
        with contextlib.suppress(BlockingIOError):
            self.reader.recv(4096)

    def close(self) -> None:
        """Close both ends."""
        self.reader.close()
        self._writer.close()


class ReadingRight:
    """Who reads a connection's socket: its I/O thread, or a thread that waits for the only answer there is to come.

    Such a thread reads its answer itself, as being woken by the I/O thread costs more than the reading. Meanwhile, and
    for LENT_SECONDS after that, the right is lent: the I/O thread does not watch for bytes, unless some are to come for
    which nobody waits.

    A signal's handler may raise wherever a function begins, and behind each call. So it is an assignment, and no call,
    that takes the right and gives it back: with a lock there would be a moment in which it is held by nobody, for ever.

    Attributes:
        holder: who reads: the I/O thread, or the answer that a thread waits for; None for nobody. A thread that was
            interrupted after it has borrowed the right, and before it reads, sets it back.
        is_lent: whether the I/O thread does not watch for bytes.
        fault: what a thread met that had borrowed the right; the I/O thread deals with it.
    """

    def __init__(self) -> None:
        self._taking = threading.Lock()
        self._poll = select.poll()
        self._used_at = self._refused_until = 0.0
        self.holder: object = None
        self.is_lent = False
        self.fault: Exception | None = None

    def renew(self, stream: Stream) -> None:
        """Begin with a socket; TLS sockets are read by the I/O thread alone."""
        self._poll = select.poll()
        self._poll.register(stream.fileno(), select.POLLIN)
        self.is_lent = False
        self.fault = None

    def borrow(self, holder: object) -> bool:
        """Take the right to read if nobody uses it; `read_until` gives it back."""
        if time.monotonic() < self._refused_until or not self._take(holder):
            return False
        self.is_lent = True
        return True

    def end_loan(self) -> None:
        """Leave reading to the I/O thread, which is to be woken, for a while at least."""
        self.is_lent = False
        self._refused_until = time.monotonic() + LENT_SECONDS

    def read_until(self, is_done: Callable[[], bool], read: Callable[[], bool], until: float) -> None:
        """Read until it is done or the loan has ended, as where `fault` was met.

        A poll stands before each read, though the socket could be read waiting: that would save 0.6 µs, but a thread
        that is interrupted in a poll has certainly taken nothing from the socket.
        """
        try:
            while self.is_lent and not is_done() and (seconds := wait_seconds(until)):
                if self._poll.poll(seconds * 1000):
                    self._read_lent(read)
        finally:
            self.holder = None
            self._used_at = time.monotonic()

    def _read_lent(self, read: Callable[[], bool]) -> None:
        try:
            read()
        except (ShardmqError, OSError) as fault:
            self.fault = fault
            self.end_loan()
        except BaseException:
            self.fault = ConnectionLost("a thread was interrupted while it took in what the broker said")
            self.end_loan()
            raise

    def use(self, read: Callable[[], bool]) -> bool:
        """Read, if nobody else does: for the I/O thread. Returns what `read` does."""
        if not self._take(self):
            return False
        try:
            return read()
        finally:
            self.holder = None

    def expire(self) -> None:
        """End the loan where nobody has waited for a while."""
        if self.is_lent and self.holder is None and time.monotonic() - self._used_at >= LENT_SECONDS:
            self.is_lent = False

    @contextlib.contextmanager
    def taken_back(self, stream: Stream | None) -> Iterator[None]:
        """Let nobody read meanwhile: the socket is about to be closed."""
        if not self._take(self):
            if isinstance(stream, socket.socket):
                with contextlib.suppress(OSError):
                    stream.shutdown(socket.SHUT_RDWR)  # wakes who reads it
            while not self._take(self):
                time.sleep(TAKEN_BACK_SECONDS)
        self.is_lent = False
        try:
            yield
        finally:
            self.holder = None

    def _take(self, holder: object) -> bool:
        with self._taking:
            if self.holder is not None:
                return False
            self.holder = holder
        return True


def wait_seconds(until: float) -> float:
    """Return how long to wait at once, in seconds: whoever waits until then looks at the time, and waits again.

    Args:
        until: by the monotonic clock; may be infinite.
    """
    is_main = threading.get_ident() == threading.main_thread().ident
    return max(0.0, min(until - time.monotonic(), SIGNAL_SECONDS if is_main else WAIT_SECONDS_MAX))


def dial(address: Address, tls: ssl.SSLContext | None, seconds: float, stop: socket.socket) -> Stream:
    """Connect to an address, with a TLS handshake where it asks for one.

    Args:
        address: where to.
        tls: the program's context.
        seconds: for all of it.
        stop: when this can be read, it is given up.

    Raises:
        ConnectionLost: nobody answers there, or not in time, or not as is wanted.
    """
    deadline = time.monotonic() + seconds
    context = context_for(address, tls)
    fault: OSError | ValueError | None = None  # ValueError: of a host that can have no address
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, place in places:
            sock = socket.socket(family, kind, protocol)
            try:
                _connect(sock, place, deadline, stop)
                return _dressed(sock, address, context, deadline, stop)
            except OSError as refused:
                sock.close()
                fault = refused
            except BaseException:
                sock.close()
                raise
    except (OSError, ValueError) as unknown:
        fault = unknown
    raise ConnectionLost(f"no broker answers at {address}: {why(fault)}") from fault


def _connect(sock: socket.socket, place: object, deadline: float, stop: socket.socket) -> None:
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        sock.connect(place)  # type: ignore[arg-type]  # it is from getaddrinfo
    _wait(sock, select.POLLOUT, deadline, stop)
    failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if failed:
        raise OSError(failed, os.strerror(failed))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _dressed(
    sock: socket.socket, address: Address, context: ssl.SSLContext | None, deadline: float, stop: socket.socket
) -> Stream:
    if context is None:
        return sock
    wrapped = context.wrap_socket(sock, server_hostname=server_name(address), do_handshake_on_connect=False)
    try:
        for wanted in _handshake(wrapped):
            _wait(wrapped, wanted, deadline, stop)
    except BaseException:
        wrapped.close()
        raise
    return TlsSocket(wrapped)


def _handshake(wrapped: ssl.SSLSocket) -> Iterator[int]:
    while True:
        try:
            wrapped.do_handshake()
        except ssl.SSLWantReadError:
            yield select.POLLIN
        except ssl.SSLWantWriteError:
            yield select.POLLOUT
        else:
            return


def _wait(sock: socket.socket, wanted: int, deadline: float, stop: socket.socket) -> None:
    poll = select.poll()
    poll.register(sock, wanted)
    poll.register(stop, select.POLLIN)
    while True:
        seconds = wait_seconds(deadline)
        if not seconds:
            raise TimeoutError("no answer in time")
        for descriptor, _ in poll.poll(seconds * 1000):
            if descriptor == stop.fileno():
                raise InterruptedError("it is not wanted any more")
            return
