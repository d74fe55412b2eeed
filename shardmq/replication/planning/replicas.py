"""Which hosts have replicas of which groups: new groups, learners, replicas that leave, an even spread.

A replica leaves only when as many others as there are to be hold all that was released. So one is added first, becomes
in sync, and then another one goes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Wish
from shardmq.replication.planning.cluster import NO_WISH, Cluster, group_names
from shardmq.replication.planning.steps import GroupStep, Step, WishStep

JOINS_MAX: Final = 4
"""Replicas that one host copies at a time: more would take longer together, and all would be incomplete for longer."""


def new_groups(cluster: Cluster, new_incarnation: Callable[[], str]) -> list[Step]:
    """Make the groups that are missing, once the hosts have come that they are to be spread over.

    One replica is in sync from the beginning, and so the first primary; the others join it. A group that nobody ever
    led, and whose first primary drains, is made once more; not for a move, which that primary would carry out.
    """
    hosts = cluster.able_to_lead
    if not hosts or cluster.awaits_hosts:
        return []
    steps: list[Step] = []
    groups = {
        name: group for name, group in cluster.groups.items() if group.term or not cluster.is_draining(group.in_sync[0])
    }
    for name in group_names(cluster.broker):
        if name in groups:
            continue
        known = Cluster(cluster.broker, cluster.hosts, groups, cluster.wishes)
        replicas = _spread(known, hosts)
        group = Group(new_incarnation(), 0, "", replicas[:1], replicas, cluster.broker.min_in_sync)
        groups[name] = group
        steps.append(GroupStep(name, cluster.groups.get(name), group, f"{name} is made on {', '.join(replicas)}"))
    return steps


def _spread(cluster: Cluster, hosts: list[str]) -> tuple[str, ...]:
    """Replicas of a new group: the host that leads the fewest, and those with the fewest replicas."""
    leads, loads = cluster.leads(), cluster.loads()
    evicted = {name for group in cluster.groups.values() if group.term for name in {*group.replicas} - {*group.in_sync}}
    first = min(hosts, key=lambda name: (name in evicted, leads[name], loads[name], name))  # who is away cannot begin
    shared = Counter(
        name for group in cluster.groups.values() if first in group.replicas for name in group.replicas if name != first
    )
    others = sorted((name for name in hosts if name != first), key=lambda name: (loads[name], shared[name], name))
    return (first, *others[: cluster.broker.replicas - 1])


def learners(cluster: Cluster) -> list[Step]:
    """Add replicas where there are too few that stay, and the targets of moves."""
    loads, joins = cluster.loads(), cluster.joins()
    steps: list[Step] = []
    for name, group in cluster.groups.items():
        target = _missing(cluster, name, loads, joins)
        if target:
            loads[target] += 1
            joins[target] += 1
            after = group.with_replica(target)
            steps.append(GroupStep(name, group, after, f"{target} becomes a replica of {name}"))
    return steps


def _missing(cluster: Cluster, name: str, loads: Mapping[str, int], joins: Mapping[str, int]) -> str:
    """The host that is to become a replica of a group now; "" for none."""
    group, wish = cluster.groups[name], cluster.wishes.get(name, NO_WISH)
    if cluster.is_moving(name) and wish.target not in group.replicas:
        return wish.target
    if len(cluster.staying(name)) >= cluster.replicas_wanted:
        return ""
    hosts = [host for host in cluster.able_to_lead if host not in group.replicas and joins[host] < JOINS_MAX]
    return min(hosts, key=lambda host: (loads[host], host), default="")


def departures(cluster: Cluster) -> list[Step]:
    """Drop replicas that are to go, or are too many; one that leads is first asked to hand over."""
    loads, leads = cluster.loads(), cluster.leads()
    steps: list[Step] = []
    for name, group in cluster.groups.items():
        host = _leaver(cluster, name, loads)
        if not host:
            continue
        if host != group.primary and not (cluster.is_open(name) and cluster.leader(name) == host):
            loads[host] -= 1
            reason = f"{host} is no replica of {name} any more"
            steps.append(GroupStep(name, group, _without(group, host), reason))
        elif not cluster.is_open(name):
            heirs = [heir for heir in group.in_sync if heir != host and heir in cluster.able_to_lead]
            if heirs:
                heir = min(heirs, key=lambda heir: (leads[heir], heir))
                leads[heir] += 1
                steps.append(hand_over(cluster, name, heir))
    return steps


def _leaver(cluster: Cluster, name: str, loads: Mapping[str, int]) -> str:
    """The replica that may leave a group now; "" for none."""
    group, leaving = cluster.groups[name], cluster.leaving(name)
    staying = cluster.staying(name)
    pinned = cluster.wishes.get(name, NO_WISH).target
    candidates = [replica for replica in group.replicas if replica in leaving]
    if not candidates and len(staying) > cluster.replicas_wanted:
        candidates = [replica for replica in staying if replica != pinned and replica in group.in_sync]
    least = max(cluster.replicas_wanted, group.min_in_sync)
    candidates = [
        replica for replica in candidates if sum(host in group.in_sync for host in staying if host != replica) >= least
    ]
    return max(candidates, key=lambda replica: (loads[replica], replica != group.primary, replica), default="")


def _without(group: Group, host: str) -> Group:
    return (group.shrunk(host) if host in group.in_sync else group).without_replica(host)


def evening_out(cluster: Cluster) -> list[Step]:
    """Add a replica on the host with the fewest, for one to leave the host with the most; one at a time."""
    if not all(cluster.is_settled(name) for name in group_names(cluster.broker)):
        return []
    loads = cluster.loads()
    hosts = cluster.able_to_lead
    if len(hosts) < len(cluster.usable) or len(hosts) < 2:
        return []
    least = min(hosts, key=lambda host: (loads[host], host))
    most = max(hosts, key=lambda host: (loads[host], host))
    if loads[most] - loads[least] < 2:
        return []
    movable = [
        name
        for name, group in cluster.groups.items()
        if most in group.replicas
        and least not in group.replicas
        and most != cluster.wishes.get(name, NO_WISH).target
        and least != cluster.wishes.get(name, NO_WISH).source
    ]
    if not movable:
        return []
    name = min(movable, key=lambda name: (cluster.groups[name].primary == most, name))
    group = cluster.groups[name]
    reason = f"{least} becomes a replica of {name}: it has {loads[least]}, and {most} has {loads[most]}"
    return [GroupStep(name, group, group.with_replica(least), reason)]


def ended_moves(cluster: Cluster) -> list[Step]:
    """Forget the sources of moves that are over: they may have replicas again. The targets keep theirs."""
    return [
        WishStep(name, wish, msgspec.structs.replace(wish, source=""), f"{name} has moved from {wish.source}")
        for name, wish in cluster.wishes.items()
        if wish.source and name in cluster.groups and wish.source not in cluster.groups[name].replicas
    ]


def hand_over(cluster: Cluster, name: str, heir: str) -> WishStep:
    """Ask the primary of a group to hand over; a move of the group goes on."""
    group, wish = cluster.groups[name], cluster.wishes.get(name)
    after = msgspec.structs.replace(wish or Wish(), term=group.term, primary=heir, unclean="", is_pinned=False)
    return WishStep(name, wish, after, f"{group.primary} is to hand {name} over to {heir}")
