"""Waiting for links and file descriptors, for processes without an event loop."""

import math
import os
import time
from collections.abc import Iterable

import zmq

from shardmq.bus.curve import NO_KEYS, Context, CurveKeys


def context(security: CurveKeys = NO_KEYS) -> Context:
    """The ZeroMQ context a process makes its links with; one I/O thread carries gigabytes a second.

    Args:
        security: of its links over TCP; without it there can be none.
    """
    made = Context()
    made.security = security
    return made


class Poller:
    """Sleeps until one of a fixed set has something to read.

    Args:
        sources: links' sockets and file descriptors.
    """

    def __init__(self, sources: "Iterable[zmq.Socket[bytes] | int]") -> None:
        self._poller = zmq.Poller()
        for source in sources:
            self._poller.register(source, zmq.POLLIN)

    def watch(self, seconds: float) -> bool:
        """As `wait`, without sleeping: for what is a moment away. Waking up takes 50 µs and more in virtual machines.

        Everybody else who wants the processor gets it.
        """
        deadline = time.perf_counter() + seconds
        while not self._poller.poll(0):
            if time.perf_counter() > deadline:
                return False
            os.sched_yield()
        return True

    def wait(self, seconds: float) -> bool:
        """Whether something came within that time."""
        milliseconds = math.ceil(max(0.0, seconds) * 1000)  # rounded down, the last one would be spent polling
        return bool(self._poller.poll(milliseconds))
