"""An AMQP 0-9-1 client that says what it likes and sees every answer."""

import socket
import ssl
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp.events import (
    BODY,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
)
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.protocol.amqp.methods.connection import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from shardmq.protocol.amqp.methods.fields import Method

SECONDS: Final = 60.0
"""How long an answer is waited for, on a machine that is ten times slower."""

CAPABILITIES: Final = {
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
NO_PROPERTIES: Final = b"\x00\x00"
_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")

Kind = TypeVar("Kind", bound=Method)


class HungUp(Exception):
    """The broker closed the socket."""


@dataclass(frozen=True)
class Said:
    """A method the broker sent, with its content if it has one."""

    channel: int
    method: Method
    properties: bytes = b""
    body: bytes = b""


class RawClient:
    """A socket, and the frames on it. Opens the connection and channel 1 unless told otherwise.

    Args:
        port: of the broker.
        vhost: to open.
        capabilities: of the client.
        channels: how many to open.
        is_open: whether to go through the handshake at all.
        heartbeat: interval agreed on, in seconds; 0 for none.
        channel_max: channels agreed on.
        context: for TLS.
        receive_buffer: of the socket, in bytes; 0 for what the system gives.
    """

    def __init__(
        self,
        port: int,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        capabilities: dict[str, Any] = CAPABILITIES,
        channels: int = 1,
        is_open: bool = True,
        heartbeat: int = 0,
        channel_max: int = 2047,
        context: ssl.SSLContext | None = None,
        receive_buffer: int = 0,
    ) -> None:
        plain = socket.socket()
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.settimeout(SECONDS)
        plain.connect(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as clients do: small frames, one after the other
        self.socket = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        self.frame_max = 131_072
        self._received = b""
        self._started: dict[int, tuple[Method, bytes | None, int, bytes]] = {}
        if not is_open:
            return
        self.greet()
        self.login(f"\0{user}\0{password}".encode(), capabilities=capabilities)
        self.tune(channel_max=channel_max, heartbeat=heartbeat)
        self.send(0, ConnectionOpen(vhost))
        self.expect(ConnectionOpenOk)
        for number in range(1, channels + 1):
            self.ask(ChannelOpen(), ChannelOpenOk, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def greet(self) -> ConnectionStart:
        """Say the protocol's header; returns the broker's first word."""
        self.socket.sendall(PROTOCOL_HEADER)
        return self.expect(ConnectionStart)

    def login(
        self,
        response: bytes = b"\0guest\0guest",
        mechanism: str = "PLAIN",
        capabilities: dict[str, Any] = CAPABILITIES,
        **properties: Any,
    ) -> None:
        """Say who it is; whether that is believed shows next."""
        said = {"capabilities": capabilities, **properties}
        self.send(0, ConnectionStartOk(said, mechanism, response, "en_US"))

    def tune(self, channel_max: int = 2047, frame_max: int = 131_072, heartbeat: int = 0) -> ConnectionTune:
        """Agree on limits; returns those offered."""
        offered = self.expect(ConnectionTune)
        self.frame_max = frame_max
        self.send(0, ConnectionTuneOk(channel_max, frame_max, heartbeat))
        return offered

    def hang_up(self) -> None:
        """Close the connection as one should; whatever comes before the answer is passed."""
        self.send(0, ConnectionClose(200, "", 0, 0))
        while not isinstance(self.hear().method, ConnectionCloseOk):
            pass
        self.expect_end()
        self.socket.close()

    def reset(self) -> None:
        """Hang up without a goodbye: the broker sees RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, channel: int, *sent: Method) -> None:
        """Say these, one after the other."""
        self.socket.sendall(b"".join([sending.method_frame(channel, method) for method in sent]))

    def publish(
        self, method: BasicPublish, *bodies: bytes, channel: int = 1, properties: bytes = NO_PROPERTIES
    ) -> None:
        """Publish these by the same method."""
        frames = [
            sending.method_frame(channel, method) + sending.content_frames(channel, properties, body, self.frame_max)
            for body in bodies
        ]
        self.socket.sendall(b"".join(frames))

    def ask(self, method: Method, kind: type[Kind], channel: int = 1) -> Kind:
        """Say this, and expect that."""
        self.send(channel, method)
        return self.expect(kind)

    def expect(self, kind: type[Kind]) -> Kind:
        """The next method, which is one of that kind."""
        method = self.hear().method
        assert isinstance(method, kind), f"expected {kind.__name__}, got {method}"
        return method

    def end(self) -> tuple[str, int, str, tuple[int, int]]:
        """How a channel or the connection is closed: which of them, code, text, ids; whatever came before is passed."""
        while True:
            method = self.hear().method
            if isinstance(method, ChannelClose | ConnectionClose):
                ended = "channel" if isinstance(method, ChannelClose) else "connection"
                return ended, method.reply_code, method.reply_text, (method.class_id, method.method_id)

    def expect_close(self, code: ReplyCode, text: str | None = None, method: type[Method] | None = None) -> str:
        """The next is that the broker closes the connection; that is answered, and it hangs up. Returns the text.

        Args:
            code: it gives.
            text: the same; None for any.
            method: the method it is about; None for any.
        """
        closed = self.expect(ConnectionClose)
        self._check(closed, code, text, method)
        self.send(0, ConnectionCloseOk())
        self.expect_end()
        return closed.reply_text

    def expect_channel_close(
        self, code: ReplyCode, text: str | None = None, method: type[Method] | None = None, channel: int = 1
    ) -> str:
        """The same for a channel."""
        closed = self.expect(ChannelClose)
        self._check(closed, code, text, method)
        self.send(channel, ChannelCloseOk())
        return closed.reply_text

    def _check(
        self, closed: ConnectionClose | ChannelClose, code: ReplyCode, text: str | None, method: type[Method] | None
    ) -> None:
        assert closed.reply_code == code, closed
        assert closed.reply_text.startswith(f"{code.name} - "), closed
        assert text is None or closed.reply_text == f"{code.name} - {text}", closed
        assert method is None or (closed.class_id, closed.method_id) == method.id, closed

    def expect_end(self) -> None:
        """The broker has hung up, and had nothing more to say."""
        assert self.rest() == b""

    def rest(self) -> bytes:
        """All bytes until the broker hangs up."""
        rest, self._received = self._received, b""
        while data := self.socket.recv(1 << 16):
            rest += data
        return rest

    def hear(self) -> Said:
        """The next method with all its content; heartbeats are passed.

        Raises:
            HungUp: there is none.
        """
        while True:
            kind, channel, payload = self.frame()
            if kind == HEARTBEAT:
                continue
            said = self._take(kind, channel, payload)
            if said is not None:
                return said

    def frame(self) -> tuple[int, int, bytes]:
        """The next frame: kind, channel, payload."""
        kind, channel, size = _FRAME.unpack(self._read(_FRAME.size))
        payload = self._read(size)
        assert self._read(1)[0] == END
        return kind, channel, payload

    def _take(self, kind: int, channel: int, payload: bytes) -> Said | None:
        if kind == METHOD:
            assert channel not in self._started, f"a method inside the content on channel {channel}"
            method = methods.decode(payload, channel)
            if method.id not in _WITH_CONTENT:
                return Said(channel, method)
            self._started[channel] = method, None, 0, b""
            return None
        method, properties, size, body = self._started.pop(channel)
        if kind == HEADER:
            assert properties is None
            _, _, size = _CONTENT.unpack_from(payload)
            properties = payload[_CONTENT.size :]
        else:
            assert kind == BODY
            body += payload
        if len(body) == size and properties is not None:
            return Said(channel, method, properties, body)
        self._started[channel] = method, properties, size, body
        return None

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            data = self.socket.recv(1 << 16)
            if not data:
                raise HungUp
            self._received += data
        read, self._received = self._received[:size], self._received[size:]
        return read


_WITH_CONTENT: Final = {(60, 50), (60, 60), (60, 71)}
