"""TLS in programs with threads: a socket that one thread reads while others write, without ever waiting."""

import socket
import ssl
import threading

from shardmq.client.url import Address


def context_for(address: Address, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What to speak TLS with to an address: the program's context, else the system's authorities; None without TLS."""
    if not address.tls:
        return None
    return tls if tls is not None else ssl.create_default_context()


class TlsSocket:
    """As a non-blocking socket, once its handshake is over.

    OpenSSL's objects are not safe from several threads: one lock. What it has decrypted and not handed out shows in no
    poll, so a read takes all there is.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """For poll."""
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
        """Whether something is decrypted and not read, that no poll tells of."""
        with self._lock:
            return self._socket.pending() > 0

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._socket.close()


Stream = socket.socket | TlsSocket
