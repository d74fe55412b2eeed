"""The accepted end of a connection, for peers that a test lets say what it wants."""

import socket
import struct
from collections.abc import Callable
from typing import Any

from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from shardmq.protocol.native.operations.codec import FROM_CLIENT, decode, encode
from shardmq.protocol.native.operations.connection import (
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Heartbeat,
    Ok,
)
from shardmq.protocol.native.operations.fields import Operation

PATIENCE_SECONDS = 60.0


class Conversation:
    """The accepted end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE_SECONDS)
        self._reader = FrameReader()
        self._read: list[Operation] = []

    def next(self, kind: type[Operation] | None = None) -> Any:
        """The next operation but heartbeats, which must be of that kind."""
        while not self._read:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the client hung up")
            operations = [decode(number, payload, FROM_CLIENT) for number, payload in self._reader.feed(data)]
            self._read += [operation for operation in operations if not isinstance(operation, Heartbeat)]
        operation = self._read.pop(0)
        assert kind is None or isinstance(operation, kind), operation
        return operation

    def send(self, *operations: Operation) -> None:
        """Say something."""
        self.socket.sendall(b"".join(map(encode, operations)))

    def answer(self, request: Any, result: Any = None) -> None:
        """Carry out a request."""
        self.send(Ok(request.request, request.channel, result))

    def confirm(self, publish: BasicPublish) -> None:
        """Confirm a publish."""
        self.send(BasicConfirm(publish.channel, [(publish.request, publish.request)]))

    def open(self, channels: int = 1, heartbeat: int = 60) -> None:
        """Let the client in, and open its first channels."""
        opening = self.next(ConnectionOpen)
        self.send(Ok(opening.request, 0, {"product": "peer", "heartbeat": heartbeat}))
        for _ in range(channels):
            opening = self.next(ChannelOpen)
            self.send(Ok(opening.request, opening.channel))

    def reset(self) -> None:
        """Close the socket with a reset in place of its end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def read_to_end(self) -> None:
        """Read until the client says goodbye or hangs up."""
        try:
            while not isinstance(self.next(), ConnectionClose):
                pass
        except (EOFError, ConnectionResetError):
            return


Script = Callable[[Conversation], None]
