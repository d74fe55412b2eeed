"""All steps that can be taken now."""

from collections.abc import Callable

from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.planning.formats import rise
from shardmq.replication.planning.leaders import balance, evacuations
from shardmq.replication.planning.replicas import departures, ended_moves, evening_out, learners, new_groups
from shardmq.replication.planning.steps import Step


def plan(cluster: Cluster, new_incarnation: Callable[[], str], is_calm: bool = True) -> list[Step]:
    """What to change in etcd, as far as it can be changed now: each key once at most.

    What is urgent comes first: hosts that stop are to lead nothing, and groups are to have their replicas. Only where
    there is nothing of that to do, and everybody is in sync, replicas and leaders are spread evenly.

    Args:
        cluster: what etcd says.
        new_incarnation: makes up an incarnation that was never used before.
        is_calm: whether no group has changed for a while. A replica that has just handed over starts again, and could
            not take over: leaders are evened out later.
    """
    urgent: list[Step] = [
        *rise(cluster),
        *new_groups(cluster, new_incarnation),
        *evacuations(cluster),
        *learners(cluster),
        *departures(cluster),
        *ended_moves(cluster),
    ]
    return _each_key_once(urgent) or evening_out(cluster) or (balance(cluster) if is_calm else [])


def _each_key_once(steps: list[Step]) -> list[Step]:
    firsts: dict[tuple[type, str], Step] = {}
    for step in steps:
        firsts.setdefault((type(step), step.name), step)
    return list(firsts.values())
