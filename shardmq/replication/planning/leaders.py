"""Who leads: nobody on hosts that stop or drain, and each host about as many groups as every other one."""

from collections import deque

from shardmq.replication.planning.cluster import Cluster, group_names
from shardmq.replication.planning.replicas import hand_over
from shardmq.replication.planning.steps import Step


def evacuations(cluster: Cluster) -> list[Step]:
    """Have groups led elsewhere whose primary is on a host that stops or drains."""
    able = cluster.able_to_lead
    leads = cluster.leads()
    steps: list[Step] = []
    for name, group in cluster.groups.items():
        leader = cluster.leader(name)
        if not group.primary or leader in able or leader not in cluster.hosts:
            continue
        heirs = [heir for heir in group.in_sync if heir in able and heir != group.primary]
        if heirs:
            heir = min(heirs, key=lambda heir: (leads[heir], heir))
            leads[heir] += 1
            steps.append(hand_over(cluster, name, heir))
    return steps


def balance(cluster: Cluster) -> list[Step]:
    """Have one group led elsewhere, where a host leads two more than another one; one at a time.

    Two hosts need not share a group: then it goes over a third one. The last step of the way is taken first, so that no
    host leads more meanwhile than the one that leads the most.
    """
    names = group_names(cluster.broker)
    if not all(cluster.is_settled(name) for name in names) or any(map(cluster.is_open, names)):
        return []
    leads = cluster.leads()
    able = cluster.able_to_lead
    for most in sorted(able, key=lambda host: (-leads[host], host)):
        way = _way(cluster, most, {host for host in able if leads[host] <= leads[most] - 2})
        if way:
            name, heir = way[-1]
            return [hand_over(cluster, name, heir)]
    return []


def _way(cluster: Cluster, start: str, ends: set[str]) -> list[tuple[str, str]]:
    """The shortest way of handing over, from a host to one of others: groups, and to whom each of them goes."""
    if not ends:
        return []
    able = cluster.able_to_lead
    ways: dict[str, list[tuple[str, str]]] = {start: []}
    queue = deque([start])
    while queue:
        host = queue.popleft()
        if host in ends:
            return ways[host]
        for name, group in sorted(cluster.groups.items()):
            if group.primary != host or cluster.is_pinned(name):
                continue
            for heir in group.in_sync:
                if heir not in ways and heir in able:
                    ways[heir] = [*ways[host], (name, heir)]
                    queue.append(heir)
    return []
