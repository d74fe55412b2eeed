"""How much memory this process takes, and how much it may: what gateways and shards raise their alarms by."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

MEMORY_SHARE: Final = 0.6
"""What the broker's processes may take of the machine's memory together; RabbitMQ's default watermark (4.x)."""

MEMORY_BYTES_MIN: Final = 256 << 20
"""What each may take at least: a start and a busy second need some of it."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@lru_cache(maxsize=1)
def _statm() -> int:
    """Opened once: a gateway whose clients have taken every file descriptor still looks after its memory."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(os.pread(_statm(), 128, 0).split()[1]) * _PAGE_BYTES


def machine_bytes() -> int:
    """Memory this process could have: the machine's, or what its control group is held to."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    for file in _CGROUP_LIMITS:
        if file.exists() and (text := file.read_text().strip()).isdigit():
            total = min(total, int(text))
    return total


def memory_default(processes: int = 1) -> int:
    """What each of so many processes may take."""
    return max(MEMORY_BYTES_MIN, int(machine_bytes() * MEMORY_SHARE) // processes)
