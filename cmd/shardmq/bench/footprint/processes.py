"""Memory of a broker's processes, as the kernel counts it (proc(5))."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from shardmq.cmd.bench.compare.record import facts
from shardmq.cmd.bench.scaling.usage import resident_bytes

SETTLE_SECONDS: Final = 20.0
LOOK_SECONDS: Final = 0.2

CALM_BYTES: Final = 1 << 20
"""A process whose memory changes by less between two looks has given back what it had to give."""

CALM_LOOKS: Final = 10
"""Looks after each other at which all processes are calm; a shard gives pages back a second after it has read them."""

FORGET_PEAK: Final = "5"
"""What, written to `clear_refs`, has the kernel count a process's greatest memory from now on."""


def settle(pids: Mapping[str, int]) -> dict[str, int]:
    """Wait until processes neither take memory nor give it back; returns what each takes, in bytes.

    Args:
        pids: process ids by name, as "shard-0".
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    calm, found = 0, resident(pids)
    while calm < CALM_LOOKS and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        before, found = found, resident(pids)
        calm = calm + 1 if all(abs(found[name] - before[name]) < CALM_BYTES for name in pids) else 0
    return found


def resident(pids: Mapping[str, int]) -> dict[str, int]:
    """What each process takes, in bytes, by name."""
    return {name: resident_bytes(pid) for name, pid in pids.items()}


def taken_by(work: Callable[[], None], pids: Mapping[str, int]) -> dict[str, int]:
    """The most that the processes of a role took above what they took before, in bytes, by role.

    Args:
        work: what is done meanwhile.
        pids: process ids by name, as "shard-0"; of several of a role the greatest counts.
    """
    before = settle(pids)
    for pid in pids.values():
        Path(f"/proc/{pid}/clear_refs").write_text(FORGET_PEAK)
    work()
    found: dict[str, int] = {}
    for name, pid in pids.items():
        role = name.partition("-")[0]
        peak = int(facts(f"/proc/{pid}/status")["VmHWM"].split()[0]) << 10
        found[role] = max(found.get(role, 0), peak - before[name])
    return found
