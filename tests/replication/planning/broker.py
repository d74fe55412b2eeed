"""A broker on several hosts as a model: what etcd has, which hosts run, and what primaries do by themselves."""

import itertools

import msgspec

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Broker, Host, Load, Loads, Wish
from shardmq.replication.planning.cluster import NO_WISH, Cluster, group_names
from shardmq.replication.planning.plan import plan
from shardmq.replication.planning.steps import FormatStep, GroupStep


class Model:
    """A broker.

    Attributes:
        away: hosts that were killed, and not started since.
        cores: what primaries take of the processor, by group.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.hosts: dict[str, Host] = {}
        self.groups: dict[str, Group] = {}
        self.wishes: dict[str, Wish] = {}
        self.away: set[str] = set()
        self.cores: dict[str, float] = {}
        self._ids = map(str, itertools.count(1))

    @property
    def cluster(self) -> Cluster:
        measured = {name: Load(self.groups[name].term, cores) for name, cores in self.cores.items()}
        loads = {"": Loads(measured)} if measured else {}
        return Cluster(self.broker, dict(self.hosts), dict(self.groups), dict(self.wishes), loads)

    def come(self, name: str) -> None:
        """Start a host, for the first time or again."""
        drains = name in self.hosts and self.hosts[name].is_draining
        self.hosts[name] = Host(next(self._ids), is_draining=drains)
        self.away.discard(name)

    def set_host(self, name: str, **fields: bool) -> None:
        self.hosts[name] = msgspec.structs.replace(self.hosts[name], **fields)

    def plan(self) -> int:
        """Take the steps that are planned; returns how many."""
        steps = plan(self.cluster, lambda: next(self._ids))
        assert len({(type(step), step.name) for step in steps}) == len(steps)
        for step in steps:
            if isinstance(step, GroupStep):
                assert self.groups.get(step.name) == step.before
                self.check(step.before, step.after)
                self.groups[step.name] = step.after
            elif isinstance(step, FormatStep):
                raise AssertionError("all hosts write one format")
            else:
                assert self.wishes.get(step.name) == step.before
                self.wishes[step.name] = step.after
        return len(steps)

    def plan_all(self) -> int:
        """Plan until there is nothing to be done but to wait for replicas; returns how many steps that took."""
        steps = 0
        while taken := self.plan():
            steps += taken
            assert steps < 1000, f"it plans for ever: {self.cluster}"
        return steps

    def check(self, before: Group | None, after: Group) -> None:
        """What no step may do to a group that somebody leads."""
        assert after.in_sync
        assert {*after.in_sync} <= {*after.replicas}
        assert not {*after.replicas} - {*self.hosts}
        if before is None or before.term == 0:
            return
        assert (before.incarnation, before.term, before.primary) == (after.incarnation, after.term, after.primary)
        assert after.primary in after.in_sync, "a primary is dropped"
        assert {*after.in_sync} <= {*before.in_sync}, "only a primary says who is in sync"
        if gone := {*before.in_sync} - {*after.in_sync}:
            assert len(after.in_sync) >= min(self.broker.replicas, len(self.cluster.usable)), f"{gone} leave too early"
            assert len(after.in_sync) >= after.min_in_sync

    def replicate(self) -> int:
        """Let groups elect, evict, grow and hand over as their replicas do; returns how many changed."""
        changed = 0
        for name, group in self.groups.items():
            after = self._replicated(name, group)
            changed += after != group
            self.groups[name] = after
        return changed

    def _replicated(self, name: str, group: Group) -> Group:
        living = [replica for replica in group.in_sync if replica not in self.away]
        if not group.primary or group.primary in self.away:
            return group.elected(living[0]) if living else group
        for member in group.in_sync:
            if member in self.away:
                return group.shrunk(member)
        for replica in group.replicas:
            if replica not in group.in_sync and replica not in self.away:
                return group.grown(replica)
        wish = self.wishes.get(name, NO_WISH)
        if wish.term == group.term and wish.primary in group.in_sync and wish.primary != group.primary:
            return group.transferred(wish.primary)
        return group

    def settle(self, rounds: int = 1000) -> None:
        """Plan and replicate until nothing changes."""
        for _ in range(rounds):
            planned = self.plan_all()
            if not planned + self.replicate():
                return
        raise AssertionError(f"it goes on for ever: {self.cluster}")

    def loads(self) -> list[int]:
        loads = self.cluster.loads()
        return [loads[name] for name in self.cluster.usable]

    def leads(self) -> list[int]:
        leads = self.cluster.leads()
        return [leads[name] for name in self.cluster.usable]

    @property
    def names(self) -> list[str]:
        return group_names(self.broker)
