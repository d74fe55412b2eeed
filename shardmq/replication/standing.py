"""How the hosts and groups of a broker are, and what is wrong with them: from etcd, and from what primaries tell.

etcd ─► Cluster ──┐
                  ├─► standing ─► hosts, groups, findings: the status, the page, metrics and checks
rows of processes ┘
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from shardmq.replication.node.followers import AWAY, CATCHING_UP, IN_SYNC, JOINING
from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.planning.formats import holding_back
from shardmq.replication.planning.states import state_of

Row = dict[str, Any]

TOLD: Final = ("followers", "etcd_fault")
"""What primaries and gateways tell of replicas and etcd, in their rows."""

BEHIND_SECONDS: Final = 5.0
"""A complete follower that is so far behind cannot keep up, or has just come back. In sync it would be evicted."""


def standing(cluster: Cluster, processes: Iterable[Row]) -> Row:
    """Sum up a broker on several hosts.

    Args:
        cluster: as etcd has it.
        processes: rows of those that answered, with the `place` of each. What they tell of replicas is taken out.

    Returns:
        `hosts`, `groups` and `findings`: a row for each.
    """
    told, heard = {}, set()
    faults: Row = {}
    has_coordinator = False
    for row in processes:
        heard.add(row["host"])
        has_coordinator |= row["role"] == "coordinator"
        name = row["process"]
        told[name.rpartition(".")[2]] = row.pop("followers", None)
        if fault := row.pop("etcd_fault", ""):
            faults[name] = fault
    groups = [_group_row(cluster, name, told.get(name)) for name in _in_order(cluster.groups)]
    followers = [each for row in groups for each in row["followers"]]
    heard |= {each["host"] for each in followers if each["state"] in (IN_SYNC, JOINING, CATCHING_UP)}
    missed = {each["host"] for each in followers if each["state"] == AWAY}
    known = {*cluster.hosts} if has_coordinator else heard | missed
    hosts = [_host_row(cluster, name, name in heard, name in known) for name in sorted(cluster.hosts)]
    return {"hosts": hosts, "groups": groups, "findings": _findings(cluster, hosts, groups, faults)}


def _in_order(groups: Iterable[str]) -> list[str]:
    """The coordinator, then the shards by number."""
    return sorted(groups, key=lambda name: (name.startswith("shard-"), len(name), name))


def _host_row(cluster: Cluster, name: str, is_heard: bool, is_known: bool) -> Row:
    host = cluster.hosts[name]
    replicas = cluster.loads()[name]
    if is_heard:
        state = "draining" if host.is_draining else "stopping" if host.is_stopping else "up"
    elif host.is_stopping:
        state = "stopped"
    else:
        state = "away" if is_known else "unknown"
    return {
        "host": name,
        "state": state,
        "is_draining": host.is_draining,
        "leads": sum([group.primary == name for group in cluster.groups.values()]),
        "replicas": replicas,
        "in_sync": replicas - cluster.joins()[name],
        "labels": host.labels,
        "gateway": host.addresses.get("gateway", ""),
        "management": host.addresses.get("management", ""),
        "format": host.format,
    }


def _group_row(cluster: Cluster, name: str, told: list[Row] | None) -> Row:
    group = cluster.groups[name]
    followers = [each for each in told or _untold(cluster, name) if each["host"] != group.primary]
    return {
        "group": name,
        "term": group.term,
        "primary": group.primary,
        "in_sync": sorted(group.in_sync),
        "replicas": sorted(group.replicas),
        "min_in_sync": group.min_in_sync,
        "state": state_of(cluster, name),
        "followers": followers,
    }


def _untold(cluster: Cluster, name: str) -> list[Row]:
    """Followers of a primary that does not answer: nobody knows how they are."""
    nothing = dict.fromkeys(("records", "bytes", "seconds", "silent_seconds", "joined_percent"))
    return [{"host": host, "state": "unknown", **nothing} for host in sorted(cluster.groups[name].replicas)]


def _findings(cluster: Cluster, hosts: list[Row], groups: list[Row], faults: Mapping[str, str]) -> list[Row]:
    state = {row["host"]: row["state"] for row in hosts}
    found = [_host_away(row, groups) for row in hosts if row["state"] == "away"]
    for row in groups:
        found += _of_group(row, state, cluster.broker.replicas)
    if held_by := holding_back(cluster):
        found.append(_format_held(cluster, held_by))
    if faults:
        found.append(_etcd_away(faults))
    return found


def _finding(rule: str, name: str, title: str, evidence: str, **numbers: Any) -> Row:
    return {"rule": rule, "name": name, "title": title, "evidence": evidence, "numbers": numbers}


def _host_away(host: Row, groups: list[Row]) -> Row:
    name = host["host"]
    silent = [
        each["silent_seconds"]
        for row in groups
        for each in row["followers"]
        if each["host"] == name and each["silent_seconds"] is not None
    ]
    since = f" Its replicas were heard {min(silent):,.0f} s ago." if silent else ""
    evidence = f"Neither its gateways nor its replicas answer.{since} It has {host['replicas']} replicas."
    return _finding("host-away", name, f"host {name} is away", evidence, replicas=host["replicas"])


def _of_group(row: Row, state: Mapping[str, str], replicas: int) -> list[Row]:
    """What is wrong with a group.

    Args:
        row: of it.
        state: of hosts, by name.
        replicas: how many there are to be.
    """
    name, in_sync = row["group"], row["in_sync"]
    numbers = {"in_sync": len(in_sync), "replicas": len(row["replicas"])}
    if not row["primary"]:
        evidence = f"Its replicas are {', '.join(row['replicas'])}; none was elected yet."
        return [_finding("group-unled", name, f"{name} was never led", evidence, **numbers)]
    found: list[Row] = []
    others = _others(row, state)
    if len(in_sync) < row["min_in_sync"]:
        title = f"{name} refuses publishes: {len(in_sync)} of at least {row['min_in_sync']} replicas are in sync"
        found.append(_finding("replicas-too-few", name, title, _sentence(others), **numbers))
    elif len(in_sync) == 1 and replicas > 1:
        title = f"{name} is alone on {row['primary']}: {others}"
        evidence = "What is confirmed now is on one disk, and lost with it."
        found.append(_finding("replicas-alone", name, title, evidence, **numbers))
    found += [_incomplete(name, each) for each in row["followers"] if each["state"] == JOINING]
    found += [
        _behind(name, each)
        for each in row["followers"]
        if each["state"] == CATCHING_UP and (each["seconds"] or 0) >= BEHIND_SECONDS
    ]
    return found


def _others(row: Row, state: Mapping[str, str]) -> str:
    """What the replicas are about that are not in sync."""
    said = []
    for each in row["followers"]:
        host = each["host"]
        if host in row["in_sync"]:
            continue
        is_gone = state.get(host) in ("away", "stopped")
        said.append(f"host {host} is {state[host]}" if is_gone else f"the replica on {host} is {_word(each)}")
    return "; ".join(said) or "there is no other replica"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _word(follower: Row) -> str:
    percent = follower["joined_percent"]
    return str(follower["state"]) if percent is None else f"{follower['state']}, {percent} %"


def _incomplete(group: str, follower: Row) -> Row:
    host, percent = follower["host"], follower["joined_percent"]
    far = "" if percent is None else f": {percent} %"
    return _finding(
        "replica-incomplete",
        f"{group}/{host}",
        f"the replica of {group} on {host} is incomplete and joins{far}",
        "It takes the whole store anew, and cannot lead before it has all of it.",
        joined_percent=percent,
    )


def _behind(group: str, follower: Row) -> Row:
    host = follower["host"]
    return _finding(
        "replica-behind",
        f"{group}/{host}",
        f"the replica of {group} on {host} is {follower['seconds']:,.0f} s behind",
        f"{follower['records']:,} records are not on its disk yet; it is not in sync.",
        records=follower["records"],
        bytes=follower["bytes"],
        seconds=follower["seconds"],
    )


def _format_held(cluster: Cluster, held_by: list[str]) -> Row:
    names, format = " and ".join(held_by), cluster.format
    newest = max(host.format for host in cluster.hosts.values())
    return _finding(
        "format-held",
        ",".join(held_by),
        f"stores stay in format {format}: hosts of an earlier version are {names}",
        f"Others write format {newest}. Until all do, everything goes on as before.",
        hosts=held_by,
        format=format,
    )


def _etcd_away(faults: Mapping[str, str]) -> Row:
    names = sorted(faults)
    return _finding(
        "etcd-away",
        "etcd",
        "etcd is not reached: all goes on as it is, but nobody new is elected",
        f"{', '.join(names)}: {faults[names[0]]}",
        processes=names,
    )
