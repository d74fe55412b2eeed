"""Waiting for links and file descriptors, for processes without an event loop."""

import math
from collections.abc import Iterable

import zmq


def context() -> "zmq.Context[zmq.Socket[bytes]]":
    """The ZeroMQ context a process makes its links with; one I/O thread carries gigabytes a second."""
    return zmq.Context()


class Waiter:
    """Sleeps until one of a fixed set has something to read.

    Args:
        sources: links' sockets and file descriptors.
    """

    def __init__(self, sources: "Iterable[zmq.Socket[bytes] | int]") -> None:
        self._poller = zmq.Poller()
        for source in sources:
            self._poller.register(source, zmq.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Whether something came within that time."""
        milliseconds = math.ceil(max(0.0, seconds) * 1000)  # rounded down, the last one would be spent polling
        return bool(self._poller.poll(milliseconds))
