"""When the format of a broker's stores rises: once all of its hosts have a version that writes the newer one.

Until then newer versions leave stores as they are, so that a host with an older one leads and is in sync like all
others, and a host that was upgraded may go back.
"""

from shardmq.replication.etcd.values import StoreFormat
from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.planning.steps import FormatStep


def newest_of_all(cluster: Cluster) -> int:
    """The newest format that all hosts write, those that are away included."""
    return min((host.format for host in cluster.hosts.values()), default=cluster.format)


def holding_back(cluster: Cluster) -> list[str]:
    """Hosts for whose sake stores stay in an older format than others write, by name."""
    hosts, format = cluster.hosts, cluster.format
    newest = max((host.format for host in hosts.values()), default=format)
    if newest <= format:
        return []
    return sorted(name for name, host in hosts.items() if host.format == newest_of_all(cluster) < newest)


def rise(cluster: Cluster) -> list[FormatStep]:
    """Have the format of stores be the newest that all hosts write. It never goes back.

    A new broker waits for the hosts that it was made for: one that is still to come may have an earlier version.
    """
    before, newest = cluster.format, newest_of_all(cluster)
    if newest <= before or cluster.awaits_hosts:
        return []
    reason = f"all hosts write stores of format {newest}: they are no longer of format {before}"
    return [FormatStep(StoreFormat(before), StoreFormat(newest), reason)]
