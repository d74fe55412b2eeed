"""One TCP connection to a gateway, read and written by one thread that never waits for either alone."""

import select
import socket
import ssl
import time
from collections import deque
from typing import Any, Final

from shardmq.client.api.tls import hung_up
from shardmq.client.api.url import Address
from shardmq.client.sync.sockets import Stream, dial
from shardmq.errors import (
    AuthenticationFailed,
    ConnectionFault,
    ConnectionLost,
    ReplyCode,
    from_broker,
    reply_code,
    request_error,
)
from shardmq.limits import MESSAGE_BYTES_HIGHEST, MESSAGE_BYTES_MAX, frame_bytes_max
from shardmq.protocol.native.frames import FrameReader
from shardmq.spark.connection.protocol import PROTOCOL_VERSION, Buffer, Op, decode, encode
from shardmq.version import VERSION

CHANNEL: Final = 1
"""The number of the only channel."""

READ_BYTES: Final = 1 << 20
"""Bytes read at once: an answer to queue.read has about that size, confirms are small."""

PIECES_MAX: Final = 64
"""Pieces given to one sendmsg: IOV_MAX is 1024, and the socket's buffer is full long before."""

_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 90_000}
"""A machine that vanished is noticed after a minute and a half. The connection has no heartbeats, as Spark suspends
Python workers for as long as it likes, for instance between two batches."""

Heard = tuple[Op, list[Any]]


def _dialled(address: Address, seconds: float, stop: socket.socket) -> Stream:
    try:
        return dial(address, None, seconds, stop)
    except ConnectionLost as lost:
        if isinstance(lost.__cause__, ssl.SSLCertVerificationError):
            raise ConnectionLost(
                f"the certificate of the broker at {address} is not trusted ({lost.__cause__.verify_message}); "
                "name the file of its authority in SSL_CERT_FILE, for executors in spark.executorEnv.SSL_CERT_FILE"
            ) from lost.__cause__
        raise


class Link:
    """An open connection with one channel.

    Args:
        address: the gateway's.
        seconds: how long connecting and logging in may take.

    Attributes:
        early: operations received while the connection was opened, such as CONNECTION_BLOCKED.
        body_max: the largest body of a message that the broker takes.
        host: the name of the gateway's host, in a broker on several hosts; "" in others.
        broker: the broker's id; "" of a broker that does not tell it, as older ones do not.

    Raises:
        ConnectionLost: no broker answers at the address.
        AuthenticationFailed: user, password or virtual host were refused.
    """

    def __init__(self, address: Address, seconds: float) -> None:
        self.address = address
        self._out: deque[memoryview] = deque()
        self._frames = FrameReader(frame_bytes_max(MESSAGE_BYTES_HIGHEST))
        self.body_max = MESSAGE_BYTES_MAX
        self.host = self.broker = ""
        self._buffer = bytearray(READ_BYTES)
        self._is_open = False
        self.early: list[Heard] = []
        never, hangs_up = socket.socketpair()
        with never, hangs_up:
            self._stream = _dialled(address, seconds, never)
        try:
            self._keep_alive()
            self._open(seconds)
        except BaseException:
            self._stream.close()
            raise

    def send(self, *pieces: Buffer) -> None:
        """Queue a frame; `turn` sends it. The pieces must not change until then."""
        self._out.extend(memoryview(piece) for piece in pieces if len(piece))

    @property
    def unsent(self) -> int:
        """How many pieces of frames have not been sent yet."""
        return len(self._out)

    def turn(self, seconds: float) -> list[Heard]:
        """Send what the socket takes and read what has come, waiting `seconds` at most for either.

        Every turn does both: writing alone to a broker that is writing would wait for ever.

        Args:
            seconds: how long to wait where nothing can be sent or read.

        Returns:
            The operations received.

        Raises:
            ConnectionLost: the connection broke, or the broker is stopping.
            ConnectionFault: the broker closed the connection for a mistake of ours.
        """
        wanted = select.POLLIN | select.POLLOUT if self._out else select.POLLIN
        poll = select.poll()
        poll.register(self._stream.fileno(), wanted)
        if not isinstance(self._stream, socket.socket) and self._stream.pending():
            seconds = 0.0
        ready = poll.poll(max(seconds, 0.0) * 1000)
        try:
            if self._out and ready and ready[0][1] & select.POLLOUT:
                self._write()
            return self._read()
        except (ConnectionResetError, BrokenPipeError) as fault:  # it went with something of ours unread
            raise ConnectionLost(hung_up(str(self.address), self.address, self._is_open)) from fault
        except OSError as fault:
            raise ConnectionLost(f"the connection to the broker at {self.address} broke: {fault}") from fault

    def close(self) -> None:
        """Close the socket without saying goodbye."""
        self._stream.close()

    def _write(self) -> None:
        out = self._out
        while out:
            try:
                sent = self._send(out)
            except BlockingIOError:
                return
            while sent:
                piece = out[0]
                if sent < len(piece):
                    out[0] = piece[sent:]
                    return  # the socket is full
                sent -= len(piece)
                out.popleft()

    def _send(self, out: deque[memoryview]) -> int:
        if not isinstance(self._stream, socket.socket):
            return self._stream.send(out[0])
        if len(out) <= PIECES_MAX:
            return self._stream.sendmsg(out)
        return self._stream.sendmsg([out[index] for index in range(PIECES_MAX)])

    def _read(self) -> list[Heard]:
        try:
            size = self._stream.recv_into(self._buffer)
        except BlockingIOError:
            return []
        if not size:
            raise ConnectionLost(hung_up(str(self.address), self.address, self._is_open))
        view = memoryview(self._buffer)[:size]
        heard = [decode(kind, payload) for kind, payload in self._frames.feed(view)]
        for operation, values in heard:
            if operation is Op.CONNECTION_CLOSE:
                raise self._closed(*values)
        return heard

    def _closed(self, code: int, text: str) -> ConnectionFault:
        said = f"the broker at {self.address} closed the connection: {text}"
        if not self._is_open and code in (ReplyCode.ACCESS_REFUSED, ReplyCode.NOT_ALLOWED):
            return from_broker(AuthenticationFailed(said, reply_code(code)))
        if code == ReplyCode.CONNECTION_FORCED:
            return from_broker(ConnectionLost(said))
        return from_broker(ConnectionFault(said, reply_code(code)))

    def _keep_alive(self) -> None:
        with socket.socket(fileno=self._stream.fileno()) as sock:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _KEEPALIVE.items():
                    if hasattr(socket, name):
                        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            finally:
                sock.detach()

    def _open(self, seconds: float) -> None:
        address = self.address
        client = {"product": "shardmq.spark", "version": VERSION, "record_keys": True}
        self.send(
            encode(Op.CONNECTION_OPEN, 1, PROTOCOL_VERSION, address.user, address.password, address.vhost, 0, client)
        )
        server = self._await_ok(1, seconds)
        self.body_max = server.get("message_max", MESSAGE_BYTES_MAX)
        self.host = server.get("host", "")
        self.broker = server.get("broker", "")
        self.send(encode(Op.CHANNEL_OPEN, 2, CHANNEL))
        self._await_ok(2, seconds)
        self._is_open = True

    def _await_ok(self, request: int, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        is_answered = False
        result: Any = None
        while not is_answered and (left := deadline - time.monotonic()) > 0:
            for operation, values in self.turn(left):
                if operation is Op.OK and values[0] == request:
                    is_answered, result = True, values[2]
                elif operation is Op.REFUSED and values[0] == request:
                    raise request_error(values[2], values[3])
                else:
                    self.early.append((operation, values))
        if not is_answered:
            raise ConnectionLost(f"the broker at {self.address} did not open the connection within {seconds:.0f} s")
        return result
