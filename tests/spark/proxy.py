"""A proxy between clients and a gateway that sees every frame, and can lose what it is told to lose."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum, auto
from types import TracebackType
from typing import Self

HEADER = struct.Struct(">II")


class Fate(Enum):
    """What becomes of a frame."""

    PASSES = auto()
    IS_LOST = auto()  # the connection is cut before the broker has it
    IS_NEVER_ANSWERED = auto()  # the broker has it, and the connection is cut when the answer comes


Judge = Callable[[int], Fate]
"""Asked with the type of each frame from a client, before it goes on."""


def passes(_kind: int) -> Fate:
    """Lose nothing."""
    return Fate.PASSES


class Proxy:
    """Listens on a port of its own.

    Args:
        port: of the gateway, on 127.0.0.1.
        listening_at: a port of its own; 0 for a free one.

    Attributes:
        judge: may be changed at any time.
        url: for clients.
    """

    def __init__(self, port: int, listening_at: int = 0) -> None:
        self.judge: Judge = passes
        self._gateway = port
        self._listener = socket.create_server(("127.0.0.1", listening_at))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.url = f"shardmq://guest:guest@127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                try:
                    gateway = socket.create_connection(("127.0.0.1", self._gateway))
                except OSError:  # it is being restarted
                    client.close()
                    continue
                self._sockets += [client, gateway]
                is_deaf = threading.Event()
                threading.Thread(target=self._forward, args=(client, gateway, is_deaf), daemon=True).start()
                threading.Thread(target=self._answer, args=(gateway, client, is_deaf), daemon=True).start()

    def _forward(self, client: socket.socket, gateway: socket.socket, is_deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while True:
                header = _exactly(client, HEADER.size)
                kind, length = HEADER.unpack(header)
                payload = _exactly(client, length)
                with self._lock:
                    fate = self.judge(kind)
                if fate is Fate.IS_LOST:
                    break
                if fate is Fate.IS_NEVER_ANSWERED:
                    is_deaf.set()
                gateway.sendall(header + payload)
        _hang_up(client, gateway)

    def _answer(self, gateway: socket.socket, client: socket.socket, is_deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := gateway.recv(1 << 16)) and not is_deaf.is_set():
                client.sendall(data)
        _hang_up(client, gateway)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise OSError("the client is gone")
        data += part
    return bytes(data)


def _hang_up(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
