"""Clocks of hosts that run at another rate."""

import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

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
