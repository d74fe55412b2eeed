"""TLS in programs with threads: a socket that one thread reads while others write, without ever waiting."""

import socket
import ssl
import threading
from typing import Final

from shardmq.client.url import Address

NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})
"""What OpenSSL calls bytes that are no TLS: the greeting of a port without it. Its versions differ."""


def context_for(address: Address, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What to speak TLS with to an address: the program's context, else the system's authorities; None without TLS."""
    if not address.tls:
        return None
    return tls if tls is not None else ssl.create_default_context()


def why(fault: OSError | None) -> str:
    """Why a connection could not be made, in words that say what to do where it is TLS."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted ({fault.verify_message}); hand in a context with tls=…"
    if isinstance(fault, ssl.SSLError) and fault.reason in NO_TLS:
        return "it speaks no TLS there; name its port for TLS, or write shardmq:// for none"
    if fault is None:
        return "its name has no address"
    return fault.strerror or str(fault) or "no answer in time"


def hung_up(peer: str, address: Address, is_open: bool) -> str:
    """The sentence for a broker that closed the connection without a word.

    Args:
        peer: what it is called.
        address: which it was connected to by.
        is_open: whether the connection was opened before; otherwise it may be TLS that the two do not agree on.
    """
    said = f"the broker at {peer} closed the connection"
    if is_open:
        return said
    if address.tls:
        return f"{said} before it was open; it may want a certificate of this program's: hand in a context with tls=…"
    return f"{said} before it was open; if that is its port for TLS, write shardmqs://"


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
