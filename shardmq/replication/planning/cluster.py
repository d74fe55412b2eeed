"""What etcd says of a broker: hosts, groups, wishes, and sums over them."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Broker, Host, Load, Loads, StoreFormat, Wish
from shardmq.storage.versions import REPLICAS_SINCE

COORDINATOR: Final = "coordinator"
"""The name of the coordinator's group."""

NO_WISH: Final = Wish()

FIRST_FORMAT: Final = StoreFormat(REPLICAS_SINCE)
"""Of stores while etcd says nothing of it."""

IDLE_CORES: Final = 0.05
"""What a primary counts for that has nothing to do, and the unit in which loads are compared: less is noise."""


def shard_group(index: int) -> str:
    """The name of a shard's group."""
    return f"shard-{index}"


def group_names(broker: Broker) -> list[str]:
    """The names of all groups that a broker has."""
    return [COORDINATOR, *(shard_group(index) for index in range(broker.shards))]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One broker on several hosts, as etcd has it.

    Attributes:
        broker: what it was created as.
        hosts: that have come, by name.
        groups: that there are, by name.
        wishes: by name of the group.
        measured: what each host has measured, by its name.
        format: of stores.
    """

    broker: Broker
    hosts: Mapping[str, Host]
    groups: Mapping[str, Group] = field(default_factory=dict)
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    measured: Mapping[str, Loads] = field(default_factory=dict)
    format: int = FIRST_FORMAT.version

    @property
    def usable(self) -> list[str]:
        """Hosts that may have replicas, by name."""
        return sorted(name for name, host in self.hosts.items() if not host.is_draining)

    @property
    def able_to_lead(self) -> list[str]:
        """Hosts that may lead groups, by name."""
        return [name for name in self.usable if not self.hosts[name].is_stopping]

    @property
    def awaits_hosts(self) -> bool:
        """Whether it is a new broker, and not all hosts are known that it is made for: some are still to come.

        What etcd says of groups may be heard before what it says of hosts: a broker is new until a group was led. Of
        an older one, hosts may have been removed.
        """
        is_new = not any(group.term for group in self.groups.values())
        return is_new and not {*self.broker.hosts} <= {*self.hosts}

    @property
    def replicas_wanted(self) -> int:
        """How many replicas each group is to have on the hosts that there are.

        A host that has replicas, and was not heard of yet, is one of them: what etcd says of groups may come before
        what it says of hosts.
        """
        unheard = {name for group in self.groups.values() for name in group.replicas} - {*self.hosts}
        return max(1, min(self.broker.replicas, len(self.usable) + len(unheard)))

    def loads(self) -> Counter[str]:
        """How many replicas each host has; every host is in it."""
        return self._counted([name for group in self.groups.values() for name in group.replicas])

    def leads(self) -> Counter[str]:
        """How many groups each host leads, or is to lead by an open wish; every host is in it."""
        return self._counted([self.leader(name) for name in self.groups])

    def cores(self, name: str) -> float | None:
        """What a group's primary took of the processor when that was measured last; None where it never was."""
        load = self._load(name)
        return None if load is None else load.cores

    def weight(self, name: str) -> int:
        """What a group counts for on the host that leads it, in units of IDLE_CORES: 1 and its load."""
        return 1 + math.floor((self.cores(name) or 0.0) / IDLE_CORES)

    def weights(self) -> Counter[str]:
        """What the groups that each host leads, or is to lead by an open wish, count for; every host is in it."""
        weights = self._counted([])
        for name in self.groups:
            weights[self.leader(name)] += self.weight(name)
        return weights

    def is_fresh(self, name: str) -> bool:
        """Whether a group that has much to do was not measured yet since its last election."""
        load = self._load(name)
        return load is not None and load.term < self.groups[name].term and self.weight(name) > 1

    def _load(self, name: str) -> Load | None:
        """What was measured of a group last, by whoever led it then."""
        found = [host.groups[name] for host in self.measured.values() if name in host.groups]
        return max(found, key=lambda load: load.term, default=None)

    def joins(self) -> Counter[str]:
        """How many replicas of each host are not in sync; every host is in it."""
        return self._counted([name for group in self.groups.values() for name in {*group.replicas} - {*group.in_sync}])

    def leader(self, name: str) -> str:
        """Who leads a group, or is to by an open wish; before its first election who will."""
        group = self.groups[name]
        wish = self.wishes.get(name, NO_WISH)
        return wish.primary if self.is_open(name) else group.primary or group.in_sync[0]

    def is_open(self, name: str) -> bool:
        """Whether a group's primary is still to hand over to another one."""
        group, wish = self.groups[name], self.wishes.get(name, NO_WISH)
        is_of_now = wish.term == group.term and not wish.unclean
        return is_of_now and wish.primary in group.in_sync and wish.primary != group.primary

    def is_pinned(self, name: str) -> bool:
        """Whether an operator has a group led by who leads it."""
        wish = self.wishes.get(name, NO_WISH)
        return wish.is_pinned and wish.primary == self.groups[name].primary

    def is_draining(self, host: str) -> bool:
        """Whether a host is to have no replicas; one that was not heard of yet may have them."""
        return host in self.hosts and self.hosts[host].is_draining

    def leaving(self, name: str) -> set[str]:
        """Replicas of a group that are to go: their hosts drain, or a move takes them away."""
        group = self.groups[name]
        gone = {replica for replica in group.replicas if self.is_draining(replica)}
        if self.is_moving(name):
            gone.add(self.wishes[name].source)
        return gone

    def is_moving(self, name: str) -> bool:
        """Whether another host is to be a replica of a group in place of one, and can be."""
        wish, usable = self.wishes.get(name, NO_WISH), self.usable
        others = [host for host in usable if host != wish.source]
        return (
            wish.source in self.groups[name].replicas and wish.target in others and len(others) >= self.replicas_wanted
        )

    def staying(self, name: str) -> list[str]:
        """Replicas of a group that are to stay."""
        leaving = self.leaving(name)
        return [replica for replica in self.groups[name].replicas if replica not in leaving]

    def is_settled(self, name: str) -> bool:
        """Whether a group has its replicas, and all are in sync."""
        group = self.groups.get(name)
        if group is None or not group.primary or self.leaving(name):
            return False
        return len(group.replicas) == len(group.in_sync) == self.replicas_wanted

    def _counted(self, names: list[str]) -> Counter[str]:
        counts = Counter(dict.fromkeys(self.hosts, 0))
        counts.update(names)
        return counts
