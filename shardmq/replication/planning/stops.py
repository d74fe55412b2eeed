"""Whether a host may stop: others lead, and every group is whole without it."""

from shardmq.replication.planning.cluster import Cluster


def reasons_to_stay(cluster: Cluster, name: str) -> list[str]:
    """Why a host is still needed; nothing where it may stop.

    A replica on another host that is stopping, too, does not count: it is about to be away. Where all hosts stop, the
    whole broker does, and none of them waits for another one.

    Args:
        cluster: what etcd says.
        name: of the host.
    """
    hosts = cluster.hosts
    if all(host.is_stopping for host in hosts.values()):
        return []
    reasons = []
    for group_name, group in cluster.groups.items():
        others = {*group.replicas} - {name}
        if name not in group.replicas or not (others or cluster.replicas_wanted > 1):
            continue
        stopping = sorted(other for other in others if other in hosts and hosts[other].is_stopping)
        behind = sorted(others - {*group.in_sync} - {*stopping})
        if not others:
            reasons.append(f"{group_name} has no other replica")
        if behind:
            reasons.append(f"{group_name} is not in sync on {', '.join(behind)}")
        if stopping:
            reasons.append(f"{group_name} is on {', '.join(stopping)}, which is stopping, too")
        if group.primary == name and not (behind or stopping or not others):
            reasons.append(f"{group_name} is led by it")
    return reasons
