"""Carries out what is planned for replicas and leaders, on the host that leads the coordinator.

Every host could: each step is a compare-and-swap, and two that plan at once only cost time. So it is enough that one
does nearly always, and while nobody leads the coordinator, as before its first election, all do.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

from shardmq.cmd.run.hosts.membership import Membership
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.values import FORMAT, GROUPS, WISHES, StoreFormat, Wish
from shardmq.replication.planning.cluster import COORDINATOR, FIRST_FORMAT, Cluster
from shardmq.replication.planning.plan import plan
from shardmq.replication.planning.steps import FormatStep, GroupStep, Step

STEP_SECONDS: Final = 5.0
"""For one step; what could not be done is planned anew."""

PAUSE_SECONDS: Final = 1.0
"""Before that."""

CALM_SECONDS: Final = 5.0
"""Without a change of any group, before leaders are evened out: who has just handed over, or come back, is ready by
then."""

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
            if not all(await asyncio.gather(*map(self._take, steps))):
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

    async def _take(self, step: Step) -> bool:
        """Take a step, if its key is as it was when it was planned; returns whether it need not be planned anew."""
        try:
            if isinstance(step, GroupStep):
                stored = await self._membership.change(
                    GROUPS, step.name, lambda there: _swapped(there, step.before, step.after), STEP_SECONDS
                )
            elif isinstance(step, FormatStep):
                stored = await self._membership.change(
                    FORMAT, "", lambda there: _risen(there or FIRST_FORMAT, step.after), STEP_SECONDS
                )
            else:
                stored = await self._membership.change(
                    WISHES, step.name, lambda there: _swapped(there, step.before, step.after), STEP_SECONDS
                )
        except EtcdError as fault:
            _log.warning("%s was not done: %s", step.reason, fault)
            return False
        return stored.changed


def _swapped(there: Group | Wish | None, before: Group | Wish | None, after: Group | Wish) -> Group | Wish | None:
    return after if there == before else None


def _risen(there: StoreFormat, after: StoreFormat) -> StoreFormat | None:
    return after if there.version < after.version else None
