"""Clocks of hosts that run at another rate."""

import mmap
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shardmq.replication.core.timing import CAMPAIGN_SECONDS, LEASE_SECONDS

_RATE: Final = struct.Struct("=Qqqd")


class Clock:
    """The clocks of one host: those of the machine, until `run` says otherwise.

    Args:
        file: which its processes map.
        ahead_seconds: how much they are ahead of the machine's from the beginning.
    """

    def __init__(self, file: Path, ahead_seconds: float = 0.0) -> None:
        file.write_bytes(_RATE.pack(0, 0, int(ahead_seconds * 1e9), 1.0))
        descriptor = os.open(file, os.O_RDWR)
        self._shared = mmap.mmap(descriptor, _RATE.size)
        os.close(descriptor)
        self.file = file

    def run(self, rate: float) -> None:
        """Go on at a rate. What they are ahead by then, they stay ahead."""
        sequence, since, ahead, before = _RATE.unpack(self._shared[:])
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        ahead += int((now - since) * (before - 1.0)) if before != 1.0 else 0
        self._shared[:8] = struct.pack("=Q", sequence + 1)
        self._shared[8:] = _RATE.pack(0, now, ahead, rate)[8:]
        self._shared[:8] = struct.pack("=Q", sequence + 2)

    def close(self) -> None:
        self._shared.close()


class Rates:
    """The rates of several hosts' clocks, and when they were too uneven for leases.

    Args:
        clocks: by host.
    """

    def __init__(self, clocks: Mapping[str, Clock]) -> None:
        self._clocks = clocks
        self._rates = dict.fromkeys(clocks, 1.0)
        self._spans: list[tuple[float, float]] = []
        self._since: float | None = None

    def run(self, host: str, rate: float) -> None:
        """Have a host's clock go on at a rate."""
        began = _machine_time()
        self._clocks[host].run(rate)
        self._rates[host] = rate
        if max(self._rates.values()) * LEASE_SECONDS >= min(self._rates.values()) * CAMPAIGN_SECONDS:
            self._since = began if self._since is None else self._since
        elif self._since is not None:
            self._spans.append((self._since, _machine_time()))
            self._since = None

    @property
    def uneven(self) -> list[tuple[float, float]]:
        """When a primary's lease may have ended after another one's campaign: from and to, by the machine's clock."""
        under_way = [] if self._since is None else [(self._since, float("inf"))]
        return self._spans + under_way

    def close(self) -> None:
        for clock in self._clocks.values():
            clock.close()


def _machine_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
