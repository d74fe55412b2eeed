"""A proxy in front of a member that passes all on late."""

import contextlib
import heapq
import itertools
import selectors
import socket
import threading
import time
from typing import Self


class SlowProxy:
    """Passes bytes on after some time; runs inside a `with` block.

    Args:
        port: of the member, on loopback.
        seconds: by which what either side sends comes later.

    Attributes:
        port: of the proxy.
        accepted: how many connections were made to it.
    """

    def __init__(self, port: int, seconds: float) -> None:
        self.accepted = 0
        self._target = port
        self._seconds = seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._ends: list[socket.socket] = []
        self._held: list[tuple[float, int, socket.socket, bytes]] = []
        self._counter = itertools.count()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"\0")
        self._thread.join()
        for end in (self._listener, self._wake, self._woken, *self._ends):
            end.close()
        self._selector.close()

    def _run(self) -> None:
        while True:
            wait = self._held[0][0] - time.monotonic() if self._held else None
            for key, _ in self._selector.select(None if wait is None else max(0.0, wait)):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._take(key.fileobj, key.data)
            while self._held and self._held[0][0] <= time.monotonic():
                self._pass_on(*heapq.heappop(self._held)[2:])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self.accepted += 1
        member = socket.create_connection(("127.0.0.1", self._target))
        self._ends += [client, member]
        self._selector.register(client, selectors.EVENT_READ, member)
        self._selector.register(member, selectors.EVENT_READ, client)

    def _take(self, source: socket.socket, other: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(1 << 16)
        if not data:
            self._selector.unregister(source)
        heapq.heappush(self._held, (time.monotonic() + self._seconds, next(self._counter), other, data))

    def _pass_on(self, target: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):
            target.sendall(data) if data else target.shutdown(socket.SHUT_WR)
