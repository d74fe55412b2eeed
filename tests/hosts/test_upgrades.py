"""A version with another format of stores comes to three hosts: what the pages say of it, alone and all together."""

import re
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run.invocation import command
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG
from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.errors import StoreRefused
from shardmq.shards.storage.schema import LAYOUT as SHARD
from shardmq.storage.engine import VERSION
from shardmq.storage.lmdb_environment import check_file
from tests.hosts.deployed import DeployedBroker, DeployedEtcd
from tests.hosts.faults.builds import Build, later
from tests.hosts.hosts import CLIENT, NAMES, Hosts
from tests.hosts.publishing import check, end, goes_on, publishing
from tests.running import without

GROUPS: Final = ("coordinator", "shard-0", "shard-1")
NEXT, NEXT_BUT_ONE = 16, 18
"""Formats of stores as the next ones could be; 17 is one wrong bit away from 15."""

REFUSAL: Final = f"has format version %d; this shardmq reads {VERSION} and older; use the one that wrote it"


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


def install(broker: DeployedBroker, name: str, build: Build) -> None:
    """Have a host start in another version from now on."""
    broker.variables[name] = build.variables


def upgrade_alone(broker: DeployedBroker, name: str, build: Build) -> None:
    """Upgrade one host, and wait until it says what the pages quote, to each replica that it has a group with."""
    broker.stop(name)
    install(broker, name, build)
    broker.start(name)
    for group in GROUPS:
        replicas = broker.group(group)["replicas"]
        for other in {*replicas} - {name} if name in replicas else ():
            said = (
                f"{name}.{group} has a store of format {NEXT}, and {other}.{group} one of format {VERSION}; "
                "replicas copy rows as they are: update both hosts to the same version of shardmq"
            )
            broker.wait_for(lambda said=said: said in broker.ups[name].output.read_text(), f"{name} says: {said}")


def is_left_out(broker: DeployedBroker, name: str) -> bool:
    """Whether a host leads nothing, and is in sync in nothing."""
    groups = [broker.group(group) for group in GROUPS]
    return not any(name in (group["primary"], *group["in_sync"]) for group in groups)


def refuse(broker: DeployedBroker, *names: str) -> None:
    """Start the older version on hosts whose stores are newer: it ends, and says why."""
    for name in names:
        install(broker, name, Build(None))
        broker.launch(name)
    for name in names:
        broker.wait_for(lambda name=name: broker.ups[name].has_ended, f"{name} refuses to start")
        said = broker.ups[name].output.read_text()
        assert REFUSAL % NEXT in said
        assert f'"exit_code":{EXIT_CONFIG}' in said


def refusals(broker: DeployedBroker, name: str) -> set[str]:
    """Why the older version refuses the stores of a host that stands; "" for one that it does not."""
    found = set()
    for file in broker.data_dir(name).glob("*/data.mdb"):
        layout = REGISTRY if file.parent.name == "coordinator" else SHARD
        try:
            check_file(file, layout.format, layout.databases)
            found.add("")
        except StoreRefused as refusal:
            found.add(refusal.text.removeprefix(f"{file} "))
    return found


def test_a_host_upgraded_alone_is_left_out_and_goes_back_with_an_empty_directory_while_publishing_goes_on(
    broker: DeployedBroker, newer: Build
) -> None:
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    name = broker.group("shard-0")["primary"]
    upgrade_alone(broker, name, newer)
    goes_on(broker, publisher)
    assert is_left_out(broker, name)
    url = f"shardmq://app:secret@{broker.hosts[name].address}/"
    done = broker.on(CLIENT, *command("queue", "list", "--url", url))
    assert done.returncode == 0, f"its gateway serves: {done.stderr}"

    broker.stop(name)
    refuse(broker, name)
    goes_on(broker, publisher)
    assert is_left_out(broker, name)

    shutil.rmtree(broker.data_dir(name))
    broker.start(name)
    broker.wait_for(broker.is_whole, "the host has taken its replicas from the others")
    check(broker, publisher)


def test_all_stop_and_are_upgraded_and_nothing_confirmed_is_lost_and_the_older_version_refuses_their_stores(
    broker: DeployedBroker, newer: Build
) -> None:
    """One of them was upgraded before the others, and has missed what was published since."""
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    early = broker.group("shard-1")["primary"]
    upgrade_alone(broker, early, newer)
    goes_on(broker, publisher)
    end(broker, publisher)
    with ThreadPoolExecutor() as stopping:  # at the same time, as the page says
        list(stopping.map(broker.stop, NAMES))
    for name in NAMES:
        assert refusals(broker, name) == {REFUSAL % NEXT if name == early else ""}
        install(broker, name, newer)
    broker.start(*NAMES)
    broker.wait_for(broker.is_whole, "all groups are whole again")
    check(broker, publisher)

    for name in NAMES:
        broker.kill(name)
        assert refusals(broker, name) == {REFUSAL % NEXT}
    refuse(broker, *NAMES)


def test_hosts_that_are_upgraded_one_after_the_other_all_the_same_are_still_needed_and_lose_nothing(
    broker: DeployedBroker, newer: Build, newest: Build
) -> None:
    """Against the page: a shard stands still while the only host starts that is in sync."""
    for name in NAMES:
        install(broker, name, newer)
    broker.start(*NAMES)
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    for name in NAMES:
        if name == NAMES[0]:
            broker.stop(name)
        else:
            done = broker.on(name, *command("host", "hand-over", "--wait", "1"))
            assert re.search(rf"host '{name}' is still needed after 1 s: \S+ is not in sync on ", done.stderr), done
            broker.ups[name].signal(signal.SIGTERM)
            broker.wait_for(lambda name=name: broker.ups[name].has_ended, f"{name} stops")
        install(broker, name, newest)
        broker.start(name)
    broker.wait_for(broker.is_whole, "all groups are whole, in the newest version")
    goes_on(broker, publisher)
    check(broker, publisher)
    for name in NAMES:
        broker.kill(name)
        assert refusals(broker, name) == {REFUSAL % NEXT_BUT_ONE}
