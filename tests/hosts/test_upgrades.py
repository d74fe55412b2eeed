"""A version with another format of stores comes to three hosts: what the pages say of it, alone and all together."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run.invocation import command
from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.errors import StoreRefused
from shardmq.shards.storage.schema import LAYOUT as SHARD
from shardmq.storage.engine import VERSION
from shardmq.storage.lmdb_environment import check_file
from tests.hosts.deployed import DeployedBroker, DeployedEtcd
from tests.hosts.faults.operators import NEXT_FORMAT, next_format
from tests.hosts.hosts import CLIENT, NAMES, Hosts
from tests.hosts.publishing import check, end, goes_on, publishing
from tests.running import without

GROUPS: Final = ("coordinator", "shard-0", "shard-1")
REFUSAL: Final = f"has format version {NEXT_FORMAT}; this shardmq reads {VERSION} and older; use the one that wrote it"


@pytest.fixture(scope="module")
def broker() -> Iterator[DeployedBroker]:
    """A broker that runs, in the older version."""
    try:
        with Hosts(DeployedEtcd) as hosts:
            broker = DeployedBroker(hosts, "broker")
            try:
                broker.start(*NAMES)
                broker.make_user()
                yield broker
            finally:
                print(broker.last_words())
    except Absent as reason:
        without(reason)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The version with the next format."""
    return next_format(tmp_path_factory.mktemp("build"))


def install(broker: DeployedBroker, name: str, build: Path | None) -> None:
    """Have a host start in another version from now on; None for the older one."""
    broker.variables[name] = {} if build is None else {"PYTHONPATH": str(build)}


def upgrade_alone(broker: DeployedBroker, name: str, build: Path) -> None:
    """Upgrade one host, and wait until it says what the pages quote, to each replica that it has a group with."""
    broker.stop(name)
    install(broker, name, build)
    broker.start(name)
    for group in GROUPS:
        replicas = broker.group(group)["replicas"]
        for other in {*replicas} - {name} if name in replicas else ():
            said = (
                f"{name}.{group} has a store of format {NEXT_FORMAT}, and {other}.{group} one of format {VERSION}; "
                "replicas copy rows as they are: update both hosts to the same version of shardmq"
            )
            broker.wait_for(lambda said=said: said in broker.ups[name].output.read_text(), f"{name} says: {said}")


def is_left_out(broker: DeployedBroker, name: str) -> bool:
    """Whether a host leads nothing, and is in sync in nothing."""
    groups = [broker.group(group) for group in GROUPS]
    return not any(name in (group["primary"], *group["in_sync"]) for group in groups)


def refuses(broker: DeployedBroker, name: str) -> None:
    """Start the older version on a host whose stores are newer: it ends, and says why."""
    install(broker, name, None)
    broker.launch(name)
    broker.wait_for(lambda: broker.ups[name].has_ended, f"{name} refuses to start")
    assert REFUSAL in broker.ups[name].output.read_text()


def refused(folder: Path) -> set[str]:
    """Names of the stores of a host that the older version refuses for their format; the others it reads."""
    found = set()
    for file in folder.glob("*/data.mdb"):
        layout = REGISTRY if file.parent.name == "coordinator" else SHARD
        try:
            check_file(file, layout.format, layout.databases)
        except StoreRefused as refusal:
            assert REFUSAL in str(refusal)
            found.add(file.parent.name)
    return found


def test_a_host_upgraded_alone_is_left_out_and_goes_back_with_an_empty_directory_while_publishing_goes_on(
    broker: DeployedBroker, newer: Path
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
    refuses(broker, name)
    goes_on(broker, publisher)
    assert is_left_out(broker, name)

    shutil.rmtree(broker.data_dir(name))
    broker.start(name)
    broker.wait_for(broker.is_whole, "the host has taken its replicas from the others")
    check(broker, publisher)


def test_all_stop_and_are_upgraded_and_nothing_confirmed_is_lost_and_the_older_version_refuses_their_stores(
    broker: DeployedBroker, newer: Path
) -> None:
    """One of them was upgraded before the others, and has missed what was published since."""
    broker.wait_for(broker.is_whole, "all groups are whole")
    publisher = publishing(broker)
    early = broker.group("shard-1")["primary"]
    upgrade_alone(broker, early, newer)
    goes_on(broker, publisher)
    end(broker, publisher)
    with ThreadPoolExecutor() as stopping:
        list(stopping.map(broker.stop, NAMES))
    assert {name for name in NAMES if refused(broker.data_dir(name))} == {early}
    for name in NAMES:
        install(broker, name, newer)
    broker.start(*NAMES)
    broker.wait_for(broker.is_whole, "all groups are whole again")
    check(broker, publisher)

    with ThreadPoolExecutor() as stopping:
        list(stopping.map(broker.stop, NAMES))
    for name in NAMES:
        stores = {file.parent.name for file in broker.data_dir(name).glob("*/data.mdb")}
        assert stores == refused(broker.data_dir(name))
        refuses(broker, name)
