"""A proxy in front of a member that loses what a test wants lost."""

import contextlib
import selectors
import socket
import threading
from typing import Self


class CuttingProxy:
    """Passes bytes on, until it is told to lose some; runs inside a `with` block.

    Args:
        port: of the member, on loopback.

    Attributes:
        port: of the proxy.
        loses: "answers" to cut a connection when a change is answered, "requests" to cut it when one is asked for,
            before the member has it, "time" to keep what is asked for until `release`; "" to pass all on.
        cuts: how often it did.
    """

    def __init__(self, port: int) -> None:
        self.loses = ""
        self.cuts = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._asked: set[socket.socket] = set()
        self._held: list[tuple[socket.socket, bytes]] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._wake.send(b"\0")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._wake.close()
        self._selector.close()

    def release(self) -> None:
        """Pass on what was kept, though nobody waits for its answer any more."""
        for member, data in self._held:
            member.sendall(data)

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._selector.get_map():
                    self._pass_on(key.fileobj, *key.data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            member = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ, (member, True))
        self._selector.register(member, selectors.EVENT_READ, (client, False))

    def _pass_on(self, source: socket.socket, other: socket.socket, is_asking: bool) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(1 << 16)
        if is_asking and b"/v3/kv/txn" in data:
            self._asked.add(other)
            is_lost = self.loses == "requests"
            if self.loses == "time":
                self._held.append((other, data))
                return
        else:
            is_lost = self.loses == "answers" and source in self._asked
        self.cuts += is_lost
        if data and not is_lost:
            with contextlib.suppress(OSError):
                other.sendall(data)
                return
        if any(other is member for member, _ in self._held):
            self._selector.unregister(source)
            source.close()
            return
        for end in (source, other):
            self._asked.discard(end)
            if end.fileno() >= 0:
                self._selector.unregister(end)
                end.close()
