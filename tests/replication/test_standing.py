"""How hosts and groups are, from what etcd has and what primaries tell: what is wrong is said once, with its reason."""

from typing import Any

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import Broker, Host
from shardmq.replication.planning.cluster import Cluster
from shardmq.replication.standing import standing

NAMES = ("a", "b", "c")


def follower(host: str, state: str, **known: Any) -> dict[str, Any]:
    fields = ("records", "bytes", "seconds", "silent_seconds", "joined_percent")
    return {"host": host, "state": state, **dict.fromkeys(fields), **known}


def seen(
    group: Group, *followers: dict[str, Any], hosts: dict[str, Host] | None = None, gone: str = "", fault: str = ""
) -> dict[str, Any]:
    """How a broker is, of which the coordinator, the primary and all gateways answer but those of a host."""
    hosts = hosts or {name: Host("s", {"gateway": f"10.0.0.{place}:5672"}) for place, name in enumerate(NAMES)}
    rows: list[dict[str, Any]] = [
        {"process": f"{name}.gateway-0", "role": "gateway", "host": name, "etcd_fault": fault}
        for name in hosts
        if name != gone
    ]
    rows.append({"process": "coordinator", "role": "coordinator", "host": "a", "followers": [], "etcd_fault": ""})
    told = list(followers)
    rows.append({"process": f"{group.primary}.shard-0", "role": "shard", "host": group.primary, "followers": told})
    found = standing(Cluster(Broker("b0b0", 1, 2), hosts, {"shard-0": group}), rows)
    assert not [row for row in rows if "followers" in row or "etcd_fault" in row], "it is told once"
    return found


def titles(found: dict[str, Any]) -> dict[str, str]:
    return {row["rule"]: row["title"] for row in found["findings"]}


def test_a_whole_broker_has_no_findings() -> None:
    found = seen(Group("f00d", 3, "a", ("a", "b"), ("a", "b")), follower("b", "in sync", records=0, seconds=0.0))
    assert found["findings"] == []
    assert {row["host"]: (row["state"], row["leads"], row["replicas"]) for row in found["hosts"]} == {
        "a": ("up", 1, 1),
        "b": ("up", 0, 1),
        "c": ("up", 0, 0),
    }
    (group,) = found["groups"]
    assert (group["state"], group["term"], group["primary"], group["in_sync"]) == ("whole", 3, "a", ["a", "b"])
    assert [row["host"] for row in group["followers"]] == ["b"]


def test_a_group_that_is_alone_says_which_host_is_away() -> None:
    found = seen(Group("f00d", 3, "a", ("a",), ("a", "b")), follower("b", "away", silent_seconds=12.0), gone="b")
    assert titles(found) == {
        "host-away": "host b is away",
        "replicas-alone": "shard-0 is alone on a: host b is away",
    }
    assert "12 s ago" in found["findings"][0]["evidence"]


def test_with_too_few_in_sync_publishes_are_said_to_be_refused() -> None:
    group = Group("f00d", 3, "a", ("a",), ("a", "b"), min_in_sync=2)
    found = seen(group, follower("b", "joining", joined_percent=43))
    assert titles(found) == {
        "replicas-too-few": "shard-0 refuses publishes: 1 of at least 2 replicas are in sync",
        "replica-incomplete": "the replica of shard-0 on b is incomplete and joins: 43 %",
    }
    assert found["findings"][0]["evidence"] == "The replica on b is joining, 43 %."
    assert found["findings"][1]["numbers"] == {"joined_percent": 43}


def test_a_complete_follower_that_is_far_behind_is_found() -> None:
    group = Group("f00d", 3, "a", ("a", "c"), ("a", "b", "c"))
    late = follower("b", "catching up", records=12_345, bytes=9, seconds=6.0)
    found = seen(group, late, follower("c", "in sync", records=3, seconds=0.0))
    assert titles(found) == {"replica-behind": "the replica of shard-0 on b is 6 s behind"}
    assert found["findings"][0]["name"] == "shard-0/b"


def test_a_host_that_was_stopped_is_not_away_and_one_that_drains_is_there() -> None:
    hosts = {"a": Host("s"), "b": Host("s", is_stopping=True), "c": Host("s", is_draining=True)}
    group = Group("f00d", 3, "a", ("a",), ("a", "b"))
    found = seen(group, follower("b", "away"), hosts=hosts, gone="b")
    assert {row["host"]: row["state"] for row in found["hosts"]} == {"a": "up", "b": "stopped", "c": "draining"}
    assert titles(found) == {"replicas-alone": "shard-0 is alone on a: host b is stopped"}


def test_who_does_not_reach_etcd_is_named() -> None:
    fault = "etcd at 10.0.0.11 does not answer"
    found = seen(Group("f00d", 3, "a", ("a", "b"), ("a", "b")), follower("b", "in sync"), fault=fault)
    (finding,) = found["findings"]
    assert finding["rule"] == "etcd-away"
    assert finding["evidence"] == f"a.gateway-0, b.gateway-0, c.gateway-0: {fault}"


def test_without_the_coordinator_nobody_is_called_away_whom_no_primary_misses() -> None:
    hosts = {name: Host("s") for name in NAMES}
    cluster = Cluster(Broker("b0b0", 1, 2), hosts, {"shard-0": Group("f00d", 3, "a", ("a",), ("a", "b"))})
    shard = {"process": "a.shard-0", "role": "shard", "host": "a", "followers": [follower("b", "away")]}
    found = standing(cluster, [shard])
    assert {row["host"]: row["state"] for row in found["hosts"]} == {"a": "up", "b": "away", "c": "unknown"}


def test_hosts_that_hold_back_the_format_of_stores_are_named() -> None:
    hosts = {"a": Host("s", format=16), "b": Host("s", format=16), "c": Host("s")}
    found = seen(Group("f00d", 3, "a", ("a", "b"), ("a", "b")), follower("b", "in sync"), hosts=hosts)
    assert titles(found) == {"format-held": "stores stay in format 15: hosts of an earlier version are c"}
    assert found["findings"][0]["evidence"] == "Others write format 16. Until all do, everything goes on as before."
    assert [row["format"] for row in found["hosts"]] == [16, 16, 15]
