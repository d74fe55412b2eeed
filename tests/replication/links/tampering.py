"""A network that changes bytes, or loses all of them."""

import contextlib
import selectors
import socket
import threading
from typing import Self


class TamperingProxy:
    """Passes bytes on, changes those that a test names, or loses all; runs inside a `with` block.

    Args:
        address: where it passes them on to, as `tcp://127.0.0.1:1`.

    Attributes:
        address: its own.
        swaps: bytes, and what they become, in what comes from callers.
        count: how often it has changed them.
        is_cut: whether all is lost that either side sends, while both believe to be connected.
    """

    def __init__(self, address: str) -> None:
        self._target = int(address.rpartition(":")[2])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.swaps: dict[bytes, bytes] = {}
        self.count = 0
        self.is_cut = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
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

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    caller, _ = self._listener.accept()
                    try:
                        listener = socket.create_connection(("127.0.0.1", self._target))
                    except OSError:  # who is called is gone
                        caller.close()
                        continue
                    self._selector.register(caller, selectors.EVENT_READ, (listener, True))
                    self._selector.register(listener, selectors.EVENT_READ, (caller, False))
                elif isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() >= 0:  # not closed just now
                    self._pass_on(key.fileobj, *key.data)

    def _pass_on(self, source: socket.socket, other: socket.socket, is_calling: bool) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = source.recv(1 << 20)
        for before, after in self.swaps.items() if is_calling else ():
            self.count += data.count(before)
            data = data.replace(before, after)
        if data and self.is_cut:
            return
        with contextlib.suppress(OSError):
            other.sendall(data)
            if data:
                return
        for end in (source, other):
            self._selector.unregister(end)
            end.close()
