"""What an operator may wish of hosts and groups, checked against what etcd has: edits of values there."""

from collections.abc import Callable

import msgspec

from shardmq.errors import NotFound, PreconditionFailed
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Host, Wish
from shardmq.replication.planning.cluster import Cluster


def draining(cluster: Cluster, host: str, is_draining: bool = True) -> Callable[[Host | None], Host | None]:
    """Have everything that a host has move to others, or let it have replicas again.

    Raises:
        NotFound: there is no such host.
    """
    check_host(cluster, host)

    def edited(there: Host | None) -> Host | None:
        return None if there is None else msgspec.structs.replace(there, is_draining=is_draining)

    return edited


def transferring(cluster: Cluster, group: str, host: str) -> Callable[[Wish | None], Wish | None]:
    """Have a group led by another host, for as long as that can.

    Raises:
        NotFound: there is no such group or host.
        PreconditionFailed: the host is not in sync, or drains or stops, and so would hand over again at once.
    """
    there = found(cluster, group)
    check_host(cluster, host)
    if host not in there.in_sync:
        raise PreconditionFailed(f"{group} cannot be led by '{host}': in sync are {', '.join(sorted(there.in_sync))}")
    if leaving := _leaving(cluster, host):
        raise PreconditionFailed(f"{group} cannot be led by '{host}', which {leaving}")

    def edited(wish: Wish | None) -> Wish | None:
        return msgspec.structs.replace(wish or Wish(), term=there.term, primary=host, unclean="", is_pinned=True)

    return edited


def moving(cluster: Cluster, group: str, source: str, target: str) -> Callable[[Wish | None], Wish | None]:
    """Have a replica of a group on another host.

    Raises:
        NotFound: there is no such group or host.
        PreconditionFailed: the one host has no replica, or the other has one, drains or stops.
    """
    there = found(cluster, group)
    for host in (source, target):
        check_host(cluster, host)
    if source not in there.replicas or target in there.replicas:
        replicas = ", ".join(sorted(there.replicas))
        raise PreconditionFailed(f"{group} cannot move from '{source}' to '{target}': its replicas are on {replicas}")
    if leaving := _leaving(cluster, target):
        raise PreconditionFailed(f"{group} cannot move to '{target}', which {leaving}")

    def edited(wish: Wish | None) -> Wish | None:
        return msgspec.structs.replace(wish or Wish(), source=source, target=target)

    return edited


def _leaving(cluster: Cluster, host: str) -> str:
    """That a host is to have, or to lead, nothing, and how to end that; "" where it may."""
    if cluster.hosts[host].is_draining:
        return f"drains; `shardmq host drain --undo {host}` ends that"
    if cluster.hosts[host].is_stopping:
        return f"stops or has stopped; start it again, or `shardmq host hand-over --undo {host}` where it runs"
    return ""


def found(cluster: Cluster, group: str) -> Group:
    """Return a group.

    Raises:
        NotFound: there is none of that name.
    """
    if group not in cluster.groups:
        raise NotFound(f"there is no {group}; there are {', '.join(cluster.groups) or 'no groups yet'}")
    return cluster.groups[group]


def check_host(cluster: Cluster, host: str) -> None:
    """Refuse a host that there is not.

    Raises:
        NotFound: there is none of that name.
    """
    if host not in cluster.hosts:
        raise NotFound(f"there is no host '{host}'; the hosts are {', '.join(sorted(cluster.hosts)) or 'none'}")
