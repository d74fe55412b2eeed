"""What etcd says of groups, for those who wait for it."""

from typing import Any

from shardmq.cmd.hosts.rows import state_of
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import Listed, Seen
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, WISHES, Broker
from shardmq.replication.planning.cluster import Cluster
from shardmq.runtime.clock import boottime


class Watch:
    """Hears of all that etcd has of a broker, on the host that this thread is on. A context manager.

    Args:
        join: URL of etcd.
    """

    def __init__(self, join: str) -> None:
        self._register = BackgroundRegister(parse(join), "watch")
        self._values: dict[str, dict[str, Any]] = {kind.folder: {} for kind in (HOSTS, GROUPS, WISHES)}
        self._broker: Broker | None = None
        self._register.list(BROKER, 60.0)
        for kind in (HOSTS, GROUPS, WISHES):
            self._register.watch(kind)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self._register.close()

    @property
    def groups(self) -> dict[str, Group]:
        """As they were heard of last."""
        self._hear()
        return self._values[GROUPS.folder]

    def faults(self, since: float) -> dict[str, str]:
        """What is amiss with each group; empty when nothing is.

        Args:
            since: what was heard before, by `boottime`, does not count.
        """
        self._hear()
        if self._broker is None or self._register.confirmed < since:
            return {"etcd": "not heard from"}
        cluster = Cluster(self._broker, *(self._values[kind.folder] for kind in (HOSTS, GROUPS, WISHES)))
        return {name: state for name in self.groups if (state := state_of(cluster, name)) != "whole"}

    @staticmethod
    def now() -> float:
        return boottime()

    def _hear(self) -> None:
        for news in self._register.take():
            if isinstance(news, Listed):
                self._broker = next((entry.value for entry in news.entries), None)
            elif isinstance(news, Seen):
                known = self._values[news.kind.folder]
                for entry in news.entries:
                    known.pop(entry.name, None)
                    if entry.value is not None:
                        known[entry.name] = entry.value
