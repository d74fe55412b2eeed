"""What is known of primaries: it follows groups and hosts, and never goes back."""

from typing import Any

from shardmq.replication.core.group import Group
from shardmq.replication.directory import Primaries, Primary
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import Host

NAMES = ("a", "b", "c")


def group(term: int, primary: str, incarnation: str = "f00d") -> Group:
    return Group(incarnation, term, primary, NAMES, NAMES)


def host(port: int, **addresses: str) -> Host:
    return Host("s", {"shard-0": f"tcp://127.0.0.1:{port}", **addresses})


def known(*groups: tuple[Group | None, int], hosts: dict[str, Any] | None = None) -> Primaries:
    primaries = Primaries()
    given = {"a": host(1), "b": host(2)} if hosts is None else hosts
    primaries.hosts_seen([Entry(name, value, 1) for name, value in given.items()])
    primaries.groups_seen([Entry("shard-0", value, revision) for value, revision in groups])
    return primaries


def test_a_primary_is_at_its_hosts_address_for_the_group() -> None:
    assert known((group(3, "a"), 5)).of("shard-0") == Primary("shard-0", 3, "a", "tcp://127.0.0.1:1")


def test_a_group_that_nobody_leads_or_knows_has_no_address() -> None:
    assert known((group(0, ""), 5)).of("shard-0") == Primary("shard-0")
    assert known().of("shard-1") == Primary("shard-1")


def test_a_primary_whose_host_has_told_no_address_is_known_without_one() -> None:
    assert known((group(3, "c"), 5)).of("shard-0") == Primary("shard-0", 3, "c")
    assert known((group(3, "c"), 5), hosts={"c": Host("s")}).of("shard-0") == Primary("shard-0", 3, "c")


def test_an_older_revision_changes_nothing() -> None:
    assert known((group(4, "b"), 6), (group(5, "a"), 5)).of("shard-0").host == "b"


def test_an_older_term_changes_nothing_though_somebody_has_written_it_later() -> None:
    assert known((group(4, "b"), 6), (group(3, "a"), 7)).of("shard-0").host == "b"
    assert known((group(4, "b"), 6), (group(3, "a", "beef"), 7)).of("shard-0").host == "a"  # elected unclean


def test_a_key_that_is_gone_moves_nobody() -> None:
    primaries = known((group(4, "b"), 6), (None, 7))
    primaries.hosts_seen([Entry("b", None, 8)])
    assert primaries.of("shard-0") == Primary("shard-0", 4, "b", "tcp://127.0.0.1:2")


def test_a_host_that_comes_back_elsewhere_is_followed() -> None:
    primaries = known((group(4, "b"), 6))
    primaries.hosts_seen([Entry("b", host(9), 7), Entry("b", host(2), 3)])
    assert primaries.of("shard-0").address == "tcp://127.0.0.1:9"
