"""How a group is, in a few words."""

from shardmq.replication.planning.cluster import NO_WISH, Cluster


def state_of(cluster: Cluster, name: str) -> str:
    """How a group is, in a few words: what is wrong first, then what is under way."""
    group, wish = cluster.groups[name], cluster.wishes.get(name, NO_WISH)
    joining = sorted({*group.replicas} - {*group.in_sync})
    words = []
    if not group.primary:
        words.append("never led")
    if len(group.in_sync) < group.min_in_sync:
        words.append("refuses publishes")
    elif len(group.in_sync) == 1 and cluster.broker.replicas > 1:
        words.append("alone")
    if joining:
        words.append(f"not in sync: {', '.join(joining)}")
    if cluster.is_moving(name):
        words.append(f"moving from {wish.source} to {wish.target}")
    if cluster.is_open(name):
        words.append(f"handing over to {wish.primary}")
    if not words and len(group.replicas) < cluster.broker.replicas:
        words.append(f"{len(group.replicas)} of {cluster.broker.replicas} replicas")
    return "; ".join(words) or "whole"
