"""One connection to a member: HTTP/1.1 over TCP or TLS, one request after the other, without blocking.

h11 knows HTTP, and this file the socket. aiohttp, by which the management process speaks HTTP, would take 0.3 s of
every process's start, which failovers wait for, and 20 MB of its memory; urllib3 blocks, so each watch would take a
thread.
"""

import contextlib
import errno
import os
import select
import socket
import ssl
from dataclasses import dataclass
from typing import Final

import h11

from shardmq.replication.etcd.members.resolver import Address

READ_BYTES: Final = 64 << 10


class Broken(Exception):
    """The connection is of no use any more; the text says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of an answer's body.

    Attributes:
        status: of HTTP.
        data: bytes of the body; may be empty.
        is_end: whether it is the last part.
    """

    status: int
    data: bytes
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom to connect to.

    Attributes:
        address: where.
        name: the host of the URL, as its certificate has it.
        title: host and port.
        tls: None for plain TCP.
    """

    address: Address
    name: str
    title: str
    tls: ssl.SSLContext | None = None


class Connection:
    """A connection, being made from the start.

    Args:
        peer: whom to connect to.

    Attributes:
        is_open: whether it was connected, TLS included.
        has_sent: whether any byte of the request may have left.
    """

    def __init__(self, peer: Peer) -> None:
        family, where = peer.address
        self.is_open = False
        self.has_sent = False
        self._peer = peer
        self._http = h11.Connection(h11.CLIENT)
        self._status = 0
        self._out = b""
        self._wants_write = True
        self._is_connected = False
        self._socket: socket.socket | ssl.SSLSocket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fault = self._socket.connect_ex(where)

    def fileno(self) -> int:
        """The descriptor, for epoll."""
        return self._socket.fileno()

    @property
    def wants(self) -> int:
        """What to wait for."""
        return select.EPOLLIN | select.EPOLLOUT if self._wants_write else select.EPOLLIN

    @property
    def is_idle(self) -> bool:
        """Whether it takes the next request."""
        return self.is_open and self._http.our_state is h11.IDLE

    def ask(self, path: str, body: bytes, token: str) -> None:
        """Send a request, as soon as that is possible; once it is idle, or before it is open."""
        headers = [
            ("Host", self._peer.title),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        if token:
            headers.append(("Authorization", token))
        send = self._http.send
        head = send(h11.Request(method="POST", target=path, headers=headers))
        self._out += b"".join(part or b"" for part in (head, send(h11.Data(data=body)), send(h11.EndOfMessage())))
        self._wants_write = True
        self.has_sent = False

    def withdraw(self) -> None:
        """Take back a request of which no byte has left; it is idle then, or as soon as it is open."""
        if self._out and not self.has_sent:
            self._http = h11.Connection(h11.CLIENT)
            self._out = b""
            self._wants_write = not self.is_open

    def turn(self) -> list[Piece]:
        """Do all that is possible now.

        Returns:
            What has come of an answer.

        Raises:
            Broken: the connection was lost.
        """
        try:
            if not self.is_open:
                self._open()
            if self.is_open:
                self._write()
                return self._read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            self._wants_write = isinstance(wait, ssl.SSLWantWriteError)
        except ssl.SSLCertVerificationError as fault:
            raise Broken(f"its certificate is not to be trusted: {fault.verify_message}") from fault
        except ssl.SSLError as fault:
            raise Broken(f"TLS failed: {fault.reason or fault}") from fault
        except OSError as fault:
            raise Broken(fault.strerror or str(fault)) from fault
        except h11.RemoteProtocolError as fault:
            raise Broken(f"it does not speak HTTP there ({fault})") from fault
        return []

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _open(self) -> None:
        if not self._is_connected:
            if self._fault == errno.EINPROGRESS:
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if not poll.poll(0):
                    return
                self._fault = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if self._fault:
                raise OSError(self._fault, os.strerror(self._fault))
            self._is_connected = True
            if self._peer.tls is not None:
                self._socket = self._peer.tls.wrap_socket(
                    self._socket, server_hostname=self._peer.name, do_handshake_on_connect=False
                )
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.do_handshake()
        self.is_open = True

    def _write(self) -> None:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
            while self._out:
                self.has_sent = True
                self._out = self._out[self._socket.send(self._out) :]
        self._wants_write = bool(self._out)

    def _read(self) -> list[Piece]:
        pieces: list[Piece] = []
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            while True:
                data = self._socket.recv(READ_BYTES)
                self._http.receive_data(data)
                pieces += self._pieces()
                if not data:
                    if pieces and pieces[-1].is_end:
                        return pieces  # whoever asks next finds it closed
                    raise Broken("it closed the connection")
        return pieces

    def _pieces(self) -> list[Piece]:
        pieces = []
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
            elif isinstance(event, h11.Data):
                pieces.append(Piece(self._status, bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                pieces.append(Piece(self._status, b"", is_end=True))
                if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
                    self._http.start_next_cycle()
            elif not isinstance(event, h11.InformationalResponse):
                return pieces
