"""Processor time by role: of a broker's processes, and of the clients that this process has started."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CLIENT: Final = "client"
ROLES: Final = ("gateway", "shard", "coordinator", CLIENT)

Seconds = dict[str, float]
"""Processor time by role."""


def used_by(broker: Mapping[str, int]) -> Seconds:
    """Processor time so far.

    Args:
        broker: its process ids by name, as "shard-0". All else that descends from this process is a client.
    """
    found: Seconds = dict.fromkeys(ROLES, 0.0)
    roles = {pid: name.partition("-")[0] for name, pid in broker.items()}
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        # What ended children took is theirs who waited for them.
        own, of_children = (sum(map(int, fields[at : at + 2])) for at in (11, 13))
        seconds[pid] = (own if pid in roles else own + of_children) / os.sysconf("SC_CLK_TCK")
    for pid, used in seconds.items():
        if pid in roles:
            found[roles[pid]] += used
        elif _is_below(pid, os.getpid(), parents):
            found[CLIENT] += used
    return found


def between(before: Seconds, after: Seconds) -> Seconds:
    """What was used from one moment to another."""
    return {role: after[role] - before[role] for role in before}


def resident_bytes(pid: int) -> int:
    """The memory that a process takes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_of_roles(broker: Mapping[str, int]) -> dict[str, int]:
    """The memory that a role's process takes, the greatest where there are several.

    Args:
        broker: its process ids by name, as "shard-0".
    """
    found: dict[str, int] = {}
    for name, pid in broker.items():
        role = name.partition("-")[0]
        found[role] = max(found.get(role, 0), resident_bytes(pid))
    return found


def _is_below(pid: int, top: int, parents: Mapping[int, int]) -> bool:
    while pid > 1:
        if pid == top:
            return True
        pid = parents.get(pid, 0)
    return False
