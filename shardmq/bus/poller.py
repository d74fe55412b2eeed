"""Waiting for links and file descriptors, for processes without an event loop."""

import math
import os
import time
from collections.abc import Iterable

import zmq

from shardmq.bus.curve import NO_KEYS, Context, CurveKeys


def context(security: CurveKeys = NO_KEYS) -> Context:
    """Make the ZeroMQ context of a process's links. One I/O thread carries gigabytes a second.

    Args:
        security: of its links over TCP; without it, TCP addresses are refused.
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

    def watch(self, until: float) -> bool:
        """Wait without sleeping until a monotonic time at most; returns whether something came.

        Other processes that want the processor get it between two looks.
        """
        while not self._poller.poll(0):
            if time.monotonic() >= until:
                return False
            os.sched_yield()
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds at most; returns whether something came."""
        milliseconds = math.ceil(max(0.0, seconds) * 1000)  # rounded down, the last one would be spent polling
        return bool(self._poller.poll(milliseconds))
