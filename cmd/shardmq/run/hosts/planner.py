"""Carries out what is planned for replicas and leaders, on the host that leads the coordinator.

Every host could: each step is a compare-and-swap, and two that plan at once only cost time. So it is enough that one
does nearly always, and while nobody leads the coordinator, as before its first election, all do.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardmq.cmd.run.hosts.membership import Membership
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.values import FORMAT, GROUPS, WISHES, Kind
from shardmq.replication.planning.cluster import COORDINATOR, FIRST_FORMAT, Cluster
from shardmq.replication.planning.plan import plan
from shardmq.replication.planning.steps import FormatStep, GroupStep, Step, WishStep

STEP_SECONDS: Final = 5.0
"""For one step; what could not be done is planned anew."""

PAUSE_SECONDS: Final = 1.0
"""Before that."""

CALM_SECONDS: Final = 5.0
"""Without a change of any group, before leaders are evened out: who has just handed over, or come back, is ready by
then."""

_KINDS: Final[dict[type[Step], Kind[Any]]] = {GroupStep: GROUPS, WishStep: WISHES, FormatStep: FORMAT}
"""What each step changes."""

_log = logging.getLogger(__name__)


class Planner:
    """Takes the steps that are planned, as long as it runs.

    Args:
        membership: of this host.
        name: of this host.
    """

    def __init__(self, membership: Membership, name: str) -> None:
        self._membership = membership
        self._name = name
        self._news = asyncio.Event()
        self._groups: Mapping[str, Group] = {}
        self._changed_at = 0.0

    def look(self) -> None:
        """Plan again: something in etcd has changed."""
        self._news.set()

    async def run(self) -> None:
        """Plan whenever something has changed."""
        while True:
            await self._news.wait()
            self._news.clear()
            cluster = self._membership.cluster
            if cluster is None or not self._is_to_plan(cluster):
                continue
            steps = plan(cluster, lambda: secrets.token_hex(8), self._is_calm(cluster))
            for step in steps:
                _log.info("%s", step.reason)
            if not await self._take_all(steps):
                await asyncio.sleep(PAUSE_SECONDS)
                self._news.set()

    def _is_calm(self, cluster: Cluster) -> bool:
        """Whether no group has changed for a while; where one has, it is looked at again after that."""
        loop = asyncio.get_running_loop()
        if cluster.groups != self._groups:
            self._groups = cluster.groups
            self._changed_at = loop.time()
            loop.call_later(CALM_SECONDS + 0.1, self.look)
        return loop.time() - self._changed_at >= CALM_SECONDS

    def _is_to_plan(self, cluster: Cluster) -> bool:
        group = cluster.groups.get(COORDINATOR)
        return group is None or group.primary in ("", self._name)

    async def _take_all(self, steps: Sequence[Step]) -> bool:
        """Take steps, whose keys differ; returns whether none needs to be planned anew.

        New groups are made in the plan's order, and none behind one that another host has made: hosts that plan at once
        would spread the rest otherwise where they know of different ones.
        """
        new = [step for step in steps if isinstance(step, GroupStep) and step.before is None]
        for step in new:
            if not await self._take(step):
                return False
        return all(await asyncio.gather(*(self._take(step) for step in steps if step not in new)))

    async def _take(self, step: Step) -> bool:
        """Take a step, if its key is as it was when it was planned; returns whether it need not be planned anew."""
        try:
            stored = await self._membership.change(
                _KINDS[type(step)], step.name, lambda there: _swapped(there, step), STEP_SECONDS
            )
        except EtcdError as fault:
            _log.warning("%s was not done: %s", step.reason, fault)
            return False
        return stored.changed


def _swapped(there: Any, step: Step) -> Any:
    """What a key is to have after a step; None where it is not as it was. Without a format it has the first one."""
    is_as_before = there == step.before or (there is None and step.before == FIRST_FORMAT)
    return step.after if is_as_before else None
