"""Addresses of names, looked up beside the loop: the system's resolver blocks, for half a minute if it has to."""

import os
import socket
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final

Address = tuple[int, tuple[Any, ...]]
"""Family, and what a socket of that connects to."""

Resolved = Callable[[list[Address] | OSError], None]

_STREAM: Final = socket.SOCK_STREAM


class Resolver:
    """Looks names up, each on a thread of its own, which ends with it.

    Attributes:
        reader: readable when something was found; call `deliver` then.
    """

    def __init__(self) -> None:
        self.reader = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._found: SimpleQueue[tuple[Resolved, list[Address] | OSError]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False

    def ask(self, host: str, port: int, done: Resolved) -> None:
        """Look a name up. `done` is called by `deliver`, or at once for what is an address already."""
        try:
            done(_addresses(host, port, socket.AI_NUMERICHOST))
        except socket.gaierror:
            threading.Thread(target=self._look_up, args=(host, port, done), name=f"resolve-{host}", daemon=True).start()

    def deliver(self) -> None:
        """Call back for all that was found."""
        try:
            os.eventfd_read(self.reader)
        except BlockingIOError:
            return
        while True:
            try:
                done, found = self._found.get_nowait()
            except Empty:
                return
            done(found)

    def close(self) -> None:
        """Forget what is being looked up."""
        with self._lock:
            self._is_closed = True
            os.close(self.reader)

    def _look_up(self, host: str, port: int, done: Resolved) -> None:
        found: list[Address] | OSError
        try:
            found = _addresses(host, port, 0)
        except OSError as fault:
            found = fault
        with self._lock:
            if not self._is_closed:
                self._found.put((done, found))
                os.eventfd_write(self.reader, 1)


def _addresses(host: str, port: int, flags: int) -> list[Address]:
    return [(family, where) for family, _, _, _, where in socket.getaddrinfo(host, port, type=_STREAM, flags=flags)]
