"""How a process is: the part of its status that all processes share."""

import os
import time
from typing import Any, Final

import psutil

from shardmq.version import VERSION

_BORN: Final = time.monotonic()


def vitals(name: str, role: str) -> dict[str, Any]:
    """Name, role, pid, resident bytes, processor seconds, age in seconds and version of this process."""
    process = psutil.Process()
    times = process.cpu_times()
    return {
        "process": name,
        "role": role,
        "pid": os.getpid(),
        "rss_bytes": process.memory_info().rss,
        "cpu_seconds": round(times.user + times.system, 2),
        "uptime_seconds": round(time.monotonic() - _BORN, 1),
        "version": VERSION,
    }
