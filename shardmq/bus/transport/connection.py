"""A connection over a Unix domain socket that speaks ZMTP, for both ends of a link.

It writes at once what the socket takes, and the rest when there is room again. Nothing bounds what waits but the
credit windows of those who post it, as with a socket of libzmq without limits; when the session ends, it is dropped.
"""

import contextlib
import errno
import select
import socket
import time
from collections import deque
from typing import Final

from shardmq.bus.transport.zmtp import Zmtp, ZmtpViolation, header_of

SEND_BUFFER_BYTES: Final = 4 << 20
"""Asked of the kernel, which gives as much as `net.core.wmem_max`: the other end goes on reading while this one works.
"""

COPIED_BYTES_MAX: Final = 16 << 10
"""An envelope up to this size is copied behind its header; above, both are written as they are."""

PIECES_MAX: Final = 64
"""Pieces that one call writes; the kernel takes 1,024."""

READS_MAX: Final = 8
"""Reads at a time, so that other connections get their turn."""

CLOSE_SECONDS: Final = 1.0
"""How long a process that stops waits for its peers to take what is still to be sent."""

READING: Final = select.EPOLLIN
WRITING: Final = select.EPOLLIN | select.EPOLLOUT


class Connection:
    """A connection to one peer.

    Args:
        channel: a connected socket.
        epoll: in which it is waited for.
        wire: this end.

    Attributes:
        wire: this end.
        is_open: whether the connection stands.
        reason: why it does not.
        is_violated: whether it ended as the peer does not speak ZMTP as this end does.
        since: when it was made, monotonic seconds.
    """

    __slots__ = (
        "_epoll",
        "_is_unread",
        "_socket",
        "_waiting",
        "_watched",
        "fd",
        "is_open",
        "is_violated",
        "reason",
        "since",
        "wire",
    )

    def __init__(self, channel: socket.socket, epoll: select.epoll, wire: Zmtp) -> None:
        channel.setblocking(False)
        with contextlib.suppress(OSError):
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.wire = wire
        self.is_open, self.is_violated = True, False
        self.reason = ""
        self.since = time.monotonic()
        self.fd = channel.fileno()
        self._socket = channel
        self._epoll = epoll
        self._waiting: deque[memoryview] = deque()
        self._is_unread = False  # the peer reads no more; what it has sent is still to be read
        self._watched = READING
        epoll.register(self.fd, READING)
        self._write(wire.opening)

    @property
    def is_behind(self) -> bool:
        """Whether something waits for the peer to read."""
        return bool(self._waiting)

    def send(self, envelope: bytes) -> bool:
        """Send an envelope; returns False where the connection has ended, or has not begun."""
        if not (self.is_open and self.wire.is_ready):
            return False
        header = header_of(len(envelope))
        if self._is_unread:
            return True
        if len(envelope) <= COPIED_BYTES_MAX:
            return self._write(header + envelope)
        was_behind = bool(self._waiting)
        self._waiting += (memoryview(header), memoryview(envelope))
        return was_behind or self.flush()

    def _write(self, data: bytes) -> bool:
        if self._waiting:
            self._waiting.append(memoryview(data))
            return True
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as fault:
            return self._write_failed(fault)
        if sent < len(data):
            self._waiting.append(memoryview(data)[sent:])
            self._watch(WRITING)
        return True

    def flush(self) -> bool:
        """Write what waits, as far as there is room; returns whether the connection stands."""
        waiting = self._waiting
        while waiting:
            try:
                sent = self._socket.sendmsg([waiting[place] for place in range(min(len(waiting), PIECES_MAX))])
            except BlockingIOError:
                self._watch(WRITING)
                return True
            except OSError as fault:
                return self._write_failed(fault)
            while waiting and sent >= len(waiting[0]):
                sent -= len(waiting.popleft())
            if sent:
                waiting[0] = waiting[0][sent:]
        self._watch(READING)
        return True

    def _watch(self, events: int) -> None:
        if self._watched != events:
            self._watched = events
            self._epoll.modify(self.fd, events)

    def _write_failed(self, fault: OSError) -> bool:
        self._waiting.clear()
        if fault.errno not in (errno.EPIPE, errno.ECONNRESET):
            self.close(f"writing failed: {fault.strerror}")
            return False
        self._is_unread = True  # the end of what it has sent ends the connection
        self._watch(READING)
        return True

    def receive(self) -> bool:
        """Read what has come, and write what waits; returns whether more may have come."""
        if self._waiting and not self.flush():
            return False
        wire = self.wire
        try:
            for _ in range(READS_MAX):
                space = wire.space()
                count = self._socket.recv_into(space)
                if not count:
                    self.close("it has hung up")
                    return False
                wire.took(count)
                if wire.replies:
                    self._reply()
                if count < len(space):
                    return False
        except BlockingIOError:
            return False
        except OSError as fault:
            self.close(f"reading failed: {fault.strerror}")
            return False
        except ZmtpViolation as violation:
            self.is_violated = True
            self.close(str(violation))
            return False
        return True

    def _reply(self) -> None:
        replies, self.wire.replies = self.wire.replies, []
        if not self._waiting:  # somebody who does not read gets no answers
            for reply in replies:
                self._write(reply)

    def close(self, reason: str = "") -> None:
        """End the connection; what waits is dropped."""
        if self.is_open:
            self.is_open = False
            self.reason = reason
            self._waiting.clear()
            self._epoll.unregister(self.fd)
            self._socket.close()

    def finish(self, deadline: float) -> None:
        """Wait until the peer has taken what waits, or a monotonic time, and end the connection."""
        room = select.poll()  # a gateway's file descriptors are too many for select.select()
        room.register(self.fd, select.POLLOUT)
        while self._waiting and self.flush() and self._waiting:
            seconds = deadline - time.monotonic()
            if seconds <= 0 or not room.poll(seconds * 1000):
                break
        self.close()
