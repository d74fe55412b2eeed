"""How much memory this process takes, and how much it may take before an alarm is raised."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Final

MEMORY_SHARE: Final = 0.6
"""Share of the machine's memory for all processes of the broker; RabbitMQ's default watermark (4.x)."""

MEMORY_BYTES_MIN: Final = 256 << 20
"""Every process may take as much: a start and a busy second need some of it."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@lru_cache(maxsize=1)
def _statm() -> int:
    """The file, opened once: a gateway whose clients have taken every file descriptor still measures its memory."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def rss_bytes() -> int:
    """Resident memory of this process, in bytes."""
    return int(os.pread(_statm(), 128, 0).split()[1]) * _PAGE_BYTES


def machine_bytes() -> int:
    """Memory that this process could have, in bytes: the machine's, or the limit of its control group."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    for file in _CGROUP_LIMITS:
        if file.exists() and (text := file.read_text().strip()).isdigit():
            total = min(total, int(text))
    return total


def memory_default(processes: int = 1) -> int:
    """The memory watermark of each of so many processes, in bytes."""
    return max(MEMORY_BYTES_MIN, int(machine_bytes() * MEMORY_SHARE) // processes)
