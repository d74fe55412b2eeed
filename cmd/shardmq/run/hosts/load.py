"""What the primaries on this host take of the processor, told to whoever plans who leads what.

It is measured from outside, as the kernel counts it for their processes. etcd is told of a primary's load once it was
measured for a whole minute, and then where it has become clearly another one: at most once a minute, however many
groups there are, and never while nothing changes.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shardmq.cmd.run.child import Child
from shardmq.cmd.run.hosts.membership import Membership
from shardmq.cmd.run.roster import COORDINATOR, SHARD
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.values import LOADS, Load, Loads
from shardmq.replication.planning.cluster import IDLE_CORES, Cluster

WINDOW_SECONDS: Final = 60.0
"""Over which loads are averages, so that a burst moves no shard; and between two messages to etcd."""

SAMPLES: Final = 12
"""In a window."""

CHANGE_SHARE: Final = 0.2
"""A load that differs from the one that was told by so much of it, and by IDLE_CORES, is told."""

TOLD_SECONDS: Final = 5.0
"""For etcd to take it."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_log = logging.getLogger(__name__)


class LoadMeter:
    """Measures the primaries on this host.

    Args:
        membership: of this host.
        name: of this host.
        children: its processes; they may become more.
    """

    def __init__(self, membership: Membership, name: str, children: Sequence[Child]) -> None:
        self._membership = membership
        self._name = name
        self._children = children
        self._window = WINDOW_SECONDS
        self._samples: dict[tuple[str, int, int], deque[tuple[float, float]]] = {}  # by group, term and process
        self._measured: dict[str, Load] = {}
        self._told: dict[str, Load] = {}
        self._tell_at = 0.0

    async def run(self) -> None:
        """Measure, and tell what has changed."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._window / SAMPLES)
            cluster = self._membership.cluster
            if cluster is None:
                continue
            self._measure(cluster, loop.time())
            if loop.time() >= self._tell_at and self._is_news():
                self._tell_at = loop.time() + self._window
                await self._tell()

    def _measure(self, cluster: Cluster, now: float) -> None:
        samples = {}
        for child in self._children:
            group = cluster.groups.get(child.name)
            if child.stage not in (COORDINATOR, SHARD) or group is None:
                continue
            if self._name not in group.replicas:
                self._measured.pop(child.name, None)
            if group.primary != self._name or not child.is_ready or (used := cpu_seconds(child.pid)) is None:
                continue
            key = child.name, group.term, child.pid
            known = samples[key] = self._samples.get(key, deque(maxlen=SAMPLES + 1))
            known.append((now, used))
            if len(known) > SAMPLES:
                began, before = known[0]
                self._measured[child.name] = Load(group.term, round((used - before) / (now - began), 3))
        self._samples = samples

    def _is_news(self) -> bool:
        if self._measured.keys() != self._told.keys():
            return True
        return any(is_clearly_other(self._told[name], load) for name, load in self._measured.items())

    async def _tell(self) -> None:
        """Tell etcd; what it does not take is told the next time."""
        loads = Loads(dict(self._measured))
        try:
            await self._membership.change(LOADS, self._name, lambda _: loads, TOLD_SECONDS)
        except EtcdError as fault:
            _log.info("the loads of this host were not told: %s", fault)
            return
        self._told = loads.groups


def is_clearly_other(told: Load, now: Load) -> bool:
    """Whether a load is so much another one than the one that was told that it is told again."""
    return told.term != now.term or abs(now.cores - told.cores) >= max(IDLE_CORES, CHANGE_SHARE * told.cores)


def cpu_seconds(pid: int) -> float | None:
    """What a process has taken of the processor so far, in seconds; None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) / _TICKS
