"""Who leads: nobody on hosts that stop or drain, and all others share the load.

A host has the load of the groups that it leads: what they take of the processor, and a bit for each. A group goes to
another host where that makes the two loads clearly more alike; and where a host leads two more groups than another one,
if the higher of two loads does not rise by that. So it comes to an end: each step makes the loads more alike, or leaves
them as they are and makes the numbers more alike.
"""

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final

from shardmq.replication.planning.cluster import Cluster, group_names
from shardmq.replication.planning.replicas import hand_over
from shardmq.replication.planning.steps import Step

GAIN_UNITS: Final = 0.5
GAIN_SHARE: Final = 0.1
"""Two loads have to differ by so much more than what goes over, so that a load that goes up and down a little moves
nothing: units of IDLE_CORES, and a share of both loads."""


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
    """Have one group led elsewhere, by load or by numbers; one at a time, when all is whole."""
    names = group_names(cluster.broker)
    if not all(cluster.is_settled(name) for name in names) or any(map(cluster.is_open, names)):
        return []
    found = by_load(cluster) or _by_numbers(cluster)
    return [hand_over(cluster, *found)] if found else []


def is_worth_it(giver: int, taker: int, weight: int) -> bool:
    """Whether a group is to go from one host to another by their loads.

    Args:
        giver: load of the host that leads it, in units of IDLE_CORES.
        taker: load of the other host.
        weight: of the group.
    """
    return giver - taker - weight >= GAIN_UNITS + GAIN_SHARE * (giver + taker)


def by_load(cluster: Cluster) -> tuple[str, str] | None:
    """The group that is to be led elsewhere by its load, and by whom: the one that makes two hosts most alike.

    One that has just come, and has much to do, stays until it was measured where it is.
    """
    weights, able = cluster.weights(), cluster.able_to_lead
    moves = [
        (abs(weights[group.primary] - weights[heir] - 2 * cluster.weight(name)), name, heir)
        for name, group in cluster.groups.items()
        if group.primary in able and not cluster.is_pinned(name) and not cluster.is_fresh(name)
        for heir in group.in_sync
        if heir in able and is_worth_it(weights[group.primary], weights[heir], cluster.weight(name))
    ]
    if not moves:
        return None
    _, name, heir = min(moves)
    return name, heir


def _by_numbers(cluster: Cluster) -> tuple[str, str] | None:
    """The group that is to be led elsewhere as a host leads two more than another one, and by whom.

    Two hosts need not share a group: then it goes over a third one. The last step of the way is taken first, so that no
    host leads more meanwhile than the one that leads the most.
    """
    leads, weights = cluster.leads(), cluster.weights()
    able = cluster.able_to_lead
    for most in sorted(able, key=lambda host: (-leads[host], host)):
        step = _last_step(cluster, most, {host for host in able if leads[host] <= leads[most] - 2}, weights)
        if step is not None:
            return step
    return None


def _last_step(cluster: Cluster, start: str, ends: set[str], weights: Mapping[str, int]) -> tuple[str, str] | None:
    """The last step of the shortest way of handing over, from a host to one of others: a group, and who gets it.

    It is looked for from its end: no step of it makes the higher one of two loads higher.
    """
    last: dict[str, tuple[str, str]] = {}
    after = Counter(weights)  # of the hosts on the way, without what they hand over
    queue = deque(sorted(ends))
    seen = {*ends}
    while queue:
        taker = queue.popleft()
        for name, group in sorted(cluster.groups.items(), key=lambda item: (cluster.weight(item[0]), item[0])):
            giver, weight = group.primary, cluster.weight(name)
            if giver in seen or taker not in group.in_sync or cluster.is_pinned(name) or cluster.is_fresh(name):
                continue
            if giver not in cluster.able_to_lead or weights[giver] - after[taker] < weight:
                continue
            last[giver] = last.get(taker, (name, taker))
            if giver == start:
                return last[giver]
            after[giver] -= weight
            seen.add(giver)
            queue.append(giver)
    return None
