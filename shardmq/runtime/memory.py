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


MMAP_BYTES: Final = 256 << 10
"""Blocks from this size on go back to the kernel as soon as they are free; see `return_large_blocks`."""

KEPT_BLOCK_BYTES: Final = 16 << 20
KEPT_BYTES: Final = 64 << 20
"""The largest block that is kept, and how much that is free may lie behind all that is not; see `keep_freed_blocks`."""

_M_MMAP_THRESHOLD: Final = -3
_M_TRIM_THRESHOLD: Final = -1


@lru_cache(maxsize=1)
def _statm() -> int:
    """The file, opened once: a gateway whose clients have taken every file descriptor still measures its memory."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def rss_bytes() -> int:
    """Resident memory of this process, in bytes."""
    return int(os.pread(_statm(), 128, 0).split()[1]) * _PAGE_BYTES


def return_large_blocks() -> None:
    """Have large blocks go back to the kernel when they are free, however many come and go.

    The C library keeps blocks of the size of those it has seen freed, of up to 32 MB: one answer of 10 MB stays in
    memory for good. Others than glibc have no such call and no such habit.
    """
    _adjust({_M_MMAP_THRESHOLD: MMAP_BYTES})


def keep_freed_blocks() -> None:
    """Have blocks of up to 16 MiB stay in this process when they are free: the next ones come soon.

    A replica sends and gets envelopes of megabytes, hundreds a second. Where each one's memory is the kernel's again in
    between, every page of it is cleared and mapped anew.
    """
    _adjust({_M_MMAP_THRESHOLD: KEPT_BLOCK_BYTES, _M_TRIM_THRESHOLD: KEPT_BYTES})


def _adjust(parameters: dict[int, int]) -> None:
    """Set parameters of glibc's allocator (mallopt(3)); other C libraries have none."""
    import ctypes

    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is not None:
        for parameter, value in parameters.items():
            adjust(parameter, value)


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
