"""A socket that was accepted and has not said yet which protocol it speaks: its first byte tells.

'A' (of "AMQP")   AMQP 0-9-1
anything else     the native protocol, whose frames begin with the upper byte of a small number
"""

import asyncio
import time
from typing import TYPE_CHECKING, Final, cast

from shardmq.gateway.amqp.connection import AmqpConnection
from shardmq.gateway.native.connection import NativeConnection
from shardmq.gateway.session.connection import READ_BUFFER, ClientConnection, set_socket_options
from shardmq.limits import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from shardmq.gateway.server import Server

AMQP: Final = ord("A")


class ProtocolDetector(asyncio.BufferedProtocol):
    """See the module.

    Args:
        server: that has accepted it.
    """

    __slots__ = ("_accepted_at", "_server", "_transport")

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._accepted_at = time.monotonic()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_socket_options(transport)
        self._server.accepted(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        self._server.entered(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        return READ_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._server.entered(self)
        kind: type[ClientConnection] = AmqpConnection if READ_BUFFER[0] == AMQP else NativeConnection
        connection = kind(self._server)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        connection.buffer_updated(nbytes)

    def abort_if_silent(self, now: float) -> None:
        """Called about once a second: enforces the handshake's time."""
        if now - self._accepted_at > HANDSHAKE_SECONDS:
            self.abort()

    def abort(self) -> None:
        """Hang up."""
        self._transport.abort()
