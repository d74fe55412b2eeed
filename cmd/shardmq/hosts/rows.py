"""Hosts and groups as rows of lists."""

from shardmq.cmd.terminal.rows import Row
from shardmq.replication.planning.cluster import NO_WISH, Cluster, group_names


def host_rows(cluster: Cluster) -> list[Row]:
    """The hosts of a broker, by name."""
    loads, joins = cluster.loads(), cluster.joins()
    rows: list[Row] = []
    for name, host in sorted(cluster.hosts.items()):
        led = sum(group.primary == name for group in cluster.groups.values())
        rows.append(
            {
                "host": name,
                "state": "draining" if host.is_draining else "stopping" if host.is_stopping else "member",
                "leads": led,
                "replicas": loads[name],
                "in_sync": loads[name] - joins[name],
                "gateway": host.addresses.get("gateway", ""),
                "management": host.addresses.get("management", ""),
                "labels": host.labels,
                "addresses": host.addresses,
                "session": host.session,
            }
        )
    return rows


def group_rows(cluster: Cluster) -> list[Row]:
    """The groups of a broker, the coordinator first: those that are yet to be made, too."""
    rows: list[Row] = []
    for name in group_names(cluster.broker):
        group = cluster.groups.get(name)
        row: Row = {"shard": name, "primary": "", "term": 0, "in_sync": [], "replicas": [], "state": "not made yet"}
        if group is not None:
            row |= {
                "primary": group.primary,
                "term": group.term,
                "in_sync": sorted(group.in_sync),
                "replicas": sorted(group.replicas),
                "state": state_of(cluster, name),
                "min_in_sync": group.min_in_sync,
                "incarnation": group.incarnation,
            }
        rows.append(row)
    return rows


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
