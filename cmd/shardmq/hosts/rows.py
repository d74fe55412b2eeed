"""Hosts and groups as rows of lists."""

from shardmq.cmd.terminal.rows import Row
from shardmq.replication.planning.cluster import Cluster, group_names
from shardmq.replication.planning.states import state_of


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
                "format": host.format,
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
                "cores": cluster.cores(name),
                "min_in_sync": group.min_in_sync,
                "incarnation": group.incarnation,
            }
        rows.append(row)
    return rows
