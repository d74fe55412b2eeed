"""A version with another format of stores comes to three hosts, one after the other, while clients publish."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run.invocation import command
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG
from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.errors import StoreRefused
from shardmq.shards.storage.schema import LAYOUT as SHARD
from shardmq.storage.lmdb_environment import check_file
from shardmq.storage.versions import VERSION
from tests.hosts.deployed import DeployedBroker, DeployedEtcd
from tests.hosts.faults.builds import Build, later
from tests.hosts.hosts import NAMES, Hosts
from tests.hosts.publishing import check, goes_on, publishing
from tests.running import without

NEXT, NEXT_BUT_ONE = 16, 18
"""Formats of stores as the next ones could be; 17 is one wrong bit away from 15."""

MARKED: Final = f"has format version %d; this shardmq reads {VERSION} and older; use the one that wrote it"
"""What a version of before says of a store."""


@pytest.fixture(scope="module")
def broker() -> Iterator[DeployedBroker]:
    """A broker that runs, in the older version."""
    try:
        with Hosts(DeployedEtcd) as hosts, DeployedBroker(hosts, "broker").running() as broker:
            yield broker
    except Absent as reason:
        without(reason)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The version with the next format."""
    return later(tmp_path_factory.mktemp("newer"), 1, NEXT)


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The version with the format after that one."""
    return later(tmp_path_factory.mktemp("newest"), 2, NEXT_BUT_ONE)


def upgrade(broker: DeployedBroker, name: str, build: Build) -> None:
    """Have a host run another version, as the page says: its unit stops, which waits until it may, and starts."""
    broker.stop(name)
    broker.variables[name] = build.variables
    broker.start(name)
    broker.wait_for(broker.is_whole, f"all groups are whole, {name} included")


def order(broker: DeployedBroker, *words: str) -> None:
    """Have an operator's command done."""
    done = broker.on(NAMES[0], *command(*words))
    assert done.returncode == 0, done.stderr


def transfer(broker: DeployedBroker, group: str, name: str) -> None:
    """Have a host lead a group."""
    if broker.group(group)["primary"] != name:
        order(broker, "shard", "transfer", group, name)
        broker.wait_for(lambda: broker.group(group)["primary"] == name, f"{name} leads {group}")


def formats(broker: DeployedBroker) -> list[int]:
    """The newest format that each host writes."""
    return [row["format"] for row in broker.told("host", "list")]


def replicas(broker: DeployedBroker) -> set[tuple[str, str]]:
    """Host and group of each replica."""
    return {(host, row["shard"]) for row in broker.told("shard", "list") for host in row["replicas"]}


def have_risen(broker: DeployedBroker, format: int) -> bool:
    """Whether all replicas have said that their stores have risen to a format."""
    said = "".join(up.output.read_text() for up in broker.ups.values())
    risen = {*re.findall(rf"(\w+)\.([\w-]+): the store has format {format} after", said)}
    return risen >= replicas(broker)


def refuse(broker: DeployedBroker, name: str, build: Build, format: int) -> None:
    """Start a version on a host that writes no stores of the broker's format: it ends, and says why."""
    broker.variables[name] = build.variables
    broker.launch(name)
    broker.wait_for(lambda: broker.ups[name].has_ended, f"{name} refuses to start")
    said = broker.ups[name].output.read_text()
    assert f"the broker's stores have format {format}, and this shardmq writes {build.format} at most; install" in said
    assert broker.ups[name].exit_code == EXIT_CONFIG


def formats_when_killed(broker: DeployedBroker) -> set[int]:
    """Kill all hosts; returns the formats of their replicas' stores."""
    found = set()
    places = replicas(broker)
    for name in NAMES:
        broker.kill(name)
    for host, group in places:
        layout = REGISTRY if group == "coordinator" else SHARD
        try:
            found.add(check_file(broker.data_dir(host) / group / "data.mdb", layout.format, layout.databases))
        except StoreRefused as refusal:
            found |= {number for number in (NEXT, NEXT_BUT_ONE) if MARKED % number in refusal.text}
    return found


def test_a_host_that_is_upgraded_alone_is_in_sync_and_leads_and_goes_back_with_its_stores(
    broker: DeployedBroker, newer: Build
) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    first = broker.group("shard-0")["in_sync"][0]
    upgrade(broker, first, newer)
    assert sorted(formats(broker)) == [VERSION, VERSION, NEXT]
    transfer(broker, "shard-0", first)
    goes_on(broker, publisher)

    upgrade(broker, first, Build(None))
    goes_on(broker, publisher)
    check(broker, publisher)


def test_stores_have_the_newer_format_once_the_last_host_writes_it_and_nobody_stands_still(
    broker: DeployedBroker, newer: Build
) -> None:
    publisher = publishing(broker)
    for name in NAMES:
        assert not any(f"has format {NEXT}" in up.output.read_text() for up in broker.ups.values())
        upgrade(broker, name, newer)
        goes_on(broker, publisher)
    assert formats(broker) == [NEXT] * 3
    broker.wait_for(lambda: have_risen(broker, NEXT), "all stores have risen")
    check(broker, publisher)

    assert formats_when_killed(broker) == {NEXT}
    refuse(broker, NAMES[0], Build(None), NEXT)
    broker.variables[NAMES[0]] = newer.variables
    broker.start(*NAMES)


def test_a_host_that_was_away_and_removed_when_stores_rose_comes_back_when_it_is_upgraded(
    broker: DeployedBroker, newer: Build, newest: Build
) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    *others, gone = NAMES
    broker.kill(gone)
    order(broker, "host", "drain", gone, "--wait", "60")
    for name in others:
        upgrade(broker, name, newest)
        goes_on(broker, publisher)
    assert formats(broker) == [NEXT_BUT_ONE, NEXT_BUT_ONE, NEXT]
    assert not have_risen(broker, NEXT_BUT_ONE), "it may come back"
    order(broker, "host", "remove", gone)
    broker.wait_for(lambda: have_risen(broker, NEXT_BUT_ONE), "the stores of the others rise")

    refuse(broker, gone, newer, NEXT_BUT_ONE)
    broker.variables[gone] = newest.variables
    broker.start(gone)
    broker.wait_for(lambda: broker.told("host", "list")[-1]["in_sync"], "it has replicas again")
    goes_on(broker, publisher)
    check(broker, publisher)
    broker.wait_for(lambda: have_risen(broker, NEXT_BUT_ONE), "all stores have risen")
    assert formats_when_killed(broker) == {NEXT_BUT_ONE}
