"""How many cores this process may use."""

import os
from pathlib import Path
from typing import Final

_QUOTA_FILE: Final = Path("/sys/fs/cgroup/cpu.max")
_OLD_QUOTA_FILES: Final = (
    Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
    Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


def core_count() -> int:
    """Cores that this process may use, at least 1: those it is bound to, or the time that its control group allows."""
    bound = len(os.sched_getaffinity(0))
    words: list[str] = []
    if _QUOTA_FILE.exists():
        words = _QUOTA_FILE.read_text().split()
    elif all(file.exists() for file in _OLD_QUOTA_FILES):
        words = [file.read_text().strip() for file in _OLD_QUOTA_FILES]
    allowed = cores_of_quota(words)
    return bound if allowed is None else min(bound, allowed)


def cores_of_quota(words: list[str]) -> int | None:
    """Whole cores in a control group's quota of time, at least 1; None where it has none.

    Args:
        words: quota and period in microseconds, as in `cpu.max`; "max" or "-1" stands for no quota.
    """
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return None
    quota_us, period_us = map(int, words)
    return max(1, quota_us // period_us)
