"""A client that says what it likes and sees every answer."""

import socket
import ssl
from types import TracebackType
from typing import Any, Protocol, Self

from shardmq.errors import ReplyCode
from shardmq.limits import HANDSHAKE_SECONDS
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.codec import FROM_SERVER, decode, encode
from shardmq.protocol.native.operations.connection import (
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.fields import Operation


class Listening(Protocol):
    """A broker, as far as its clients are concerned."""

    @property
    def port(self) -> int:
        """Where it listens."""


class Denied(Exception):
    """A request was refused, or the connection closed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class RawClient:
    """A socket, and the operations on it.

    Args:
        broker: to connect to.
        port: if not its first.
        context: for TLS.
    """

    def __init__(self, broker: Listening, port: int | None = None, context: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port or broker.port), timeout=HANDSHAKE_SECONDS + 10)
        self.socket = context.wrap_socket(plain, server_hostname="localhost") if context else plain
        self.reader = FrameReader()
        self.inbox: list[Operation] = []
        self.requests = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, *operations: Operation) -> None:
        self.socket.sendall(b"".join(encode(operation) for operation in operations))

    def receive(self) -> Operation | None:
        """The next operation, or None when the server has hung up."""
        while not self.inbox:
            data = self.socket.recv(65_536)
            if not data:
                return None
            self.inbox += [decode(kind, payload, FROM_SERVER) for kind, payload in self.reader.feed(data)]
        return self.inbox.pop(0)

    def open(
        self,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        client: dict[str, Any] | None = None,
        channel: int = 1,
    ) -> Self:
        """Open the connection and a channel.

        Raises:
            Denied: the server refuses and hangs up.
        """
        self.send(ConnectionOpen(1, 1, user, password, vhost, 0, client or {}))
        said = self.receive()
        if isinstance(said, ConnectionClose):
            assert self.receive() is None
            self.socket.close()
            raise Denied(said.code, said.text)
        assert isinstance(said, Ok), said
        self.ask(ChannelOpen, channel=channel)
        return self

    def ask(self, kind: Any, *fields: Any, channel: int = 1, **named: Any) -> Any:
        """A request's result; what comes before its answer stays in the inbox.

        Raises:
            Denied: it was refused.
        """
        self.requests += 1
        self.send(kind(self.requests, channel, *fields, **named))
        before: list[Operation] = []
        while True:
            said = self.receive()
            if isinstance(said, Ok) and said.request == self.requests:
                break
            if isinstance(said, Refused) and said.request == self.requests:
                self.inbox = before + self.inbox
                raise Denied(said.code, said.text)
            assert said is not None, f"hung up instead of answering {kind.__name__}"
            assert not isinstance(said, ConnectionClose), said
            before.append(said)
        self.inbox = before + self.inbox
        return said.result

    def closing(self) -> ConnectionClose:
        """What the server says before it hangs up."""
        said = self.receive()
        assert isinstance(said, ConnectionClose), said
        assert self.receive() is None
        return said

    def expect_close(self, code: ReplyCode) -> str:
        """The server says why and hangs up."""
        said = self.closing()
        assert said.code == code, said
        return said.text
