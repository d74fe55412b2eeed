"""Waiting for links and file descriptors, for processes without an event loop."""

import math
import os
import select
import time
from collections.abc import Callable, Iterable

import zmq

from shardmq.bus.curve import NO_KEYS, Context, CurveKeys
from shardmq.bus.transport.transport import Dealer, Router


def context(security: CurveKeys = NO_KEYS) -> Context:
    """Make the ZeroMQ context of a process's links. One I/O thread carries gigabytes a second.

    Args:
        security: of its links over TCP; without it, TCP addresses are refused.
    """
    made = Context()
    made.security = security
    return made


class Poller:
    """Sleeps until one of several sources has something to read.

    Args:
        sources: links' sockets and file descriptors.
    """

    def __init__(self, sources: "Iterable[Dealer | Router | int]") -> None:
        self._sources = list(sources)
        self._set_out()

    def add(self, source: "Dealer | Router | int") -> None:
        """Wait for one more source from now on."""
        self._sources.append(source)
        self._set_out()

    def _set_out(self, *more: "Dealer | Router | int") -> None:
        """Wait for the sources, and for more, from now on."""
        self._poll = _poll_of([*self._sources, *more])

    def _watch(self, until: float) -> bool:
        """Wait without sleeping until a monotonic time at most; returns whether something came.

        Other processes that want the processor get it between two looks.
        """
        while not self._poll(0):
            if time.monotonic() >= until:
                return False
            os.sched_yield()
        return True

    def wait(self, seconds: float, awake_until: float = 0.0) -> bool:
        """Wait for so many seconds at most, awake until a monotonic time; returns whether something came."""
        if awake_until:
            now = time.monotonic()
            until = min(now + seconds, awake_until)
            if now < until and self._watch(until):
                return True
        milliseconds = math.ceil(max(0.0, seconds) * 1000)  # rounded down, the last one would be spent polling
        return bool(self._poll(milliseconds))


def _poll_of(sources: list[Dealer | Router | int]) -> Callable[[int], object]:
    """What waits for so many milliseconds, and returns whether something came."""
    if len(sources) == 1 and not isinstance(sources[0], int):
        return sources[0].poll  # it remembers what it has found
    sockets = [None if isinstance(source, int) else source.zmq_socket for source in sources]
    if any(sockets):
        poller = zmq.Poller()
        for source, socket in zip(sources, sockets, strict=True):
            poller.register(socket or source, zmq.POLLIN)
        return poller.poll
    polled = select.poll()
    for source in sources:
        polled.register(source, select.POLLIN)
    return polled.poll
