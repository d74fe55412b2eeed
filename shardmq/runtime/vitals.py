"""The part of a status that all processes share."""

import os
import resource
import socket
import time
from typing import Any, Final

from shardmq.runtime.memory import rss_bytes
from shardmq.version import VERSION

_BORN: Final = time.monotonic()

_HOST: Final = socket.gethostname()


def vitals(name: str, role: str) -> dict[str, Any]:
    """Name, role, host, pid, resident bytes, processor seconds, age in seconds and version of this process."""
    times = os.times()
    return {
        "process": name,
        "role": role,
        "host": _HOST,
        "pid": os.getpid(),
        "rss_bytes": rss_bytes(),
        "cpu_seconds": round(times.user + times.system, 2),
        "uptime_seconds": round(time.monotonic() - _BORN, 1),
        "version": VERSION,
    }


def resources() -> dict[str, Any]:
    """What this process has of files, and may have: `open_fds` and `max_fds`."""
    return {"open_fds": len(os.listdir("/proc/self/fd")), "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0]}
