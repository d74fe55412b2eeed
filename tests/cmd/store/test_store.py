"""`shardmq store adopt`: a coordinator's store that is lost, older, or registers a shard that is lost."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.conftest import StartBroker

NAMES = [f"q{number}" for number in range(6)]
"""On both shards."""


def fill(folder: Path, names: list[str], exchange: str) -> None:
    with Broker(folder, shards=2) as broker, shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "fanout", durable=True)
        for name in names:
            channel.queue_declare(name, durable=True, arguments={"x-max-length": 1000})
            channel.queue_bind(name, exchange, "")
            channel.basic_publish("", name, f"of {name}".encode())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never started: tests start copies. `older` beside it is an older copy."""
    folder = tmp_path_factory.mktemp("home")
    fill(folder / "data", NAMES[:-1], "first")
    shutil.copytree(folder / "data", folder / "older")
    fill(folder / "data", NAMES[-1:], "second")
    return folder / "data"


def adopt(data: Path, *options: str) -> dict[str, Any]:
    words = command("store", "adopt", str(data), "--json", *options)
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def content(broker: Broker) -> dict[str, list[bytes]]:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        found: dict[str, list[bytes]] = {}
        for name in NAMES:
            found[name] = []
            while (message := channel.basic_get(name, auto_ack=True)) is not None:
                found[name].append(message.body)
        return found


def test_a_lost_coordinator_is_rebuilt_with_all_queues_and_messages(
    data: Path, start_broker: StartBroker, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shutil.rmtree(copy / "coordinator")
    planned = adopt(copy)
    assert not (copy / "coordinator").exists(), "a dry run changes nothing"
    assert (planned["kept"], planned["applied"], len(planned["queues"])) == (False, False, len(NAMES))
    done = adopt(copy, "--apply")
    assert (done["applied"], done["vhosts"], done["empty"], done["gone"]) == (True, ["/"], [], [])
    broker = start_broker(shards=2, data_dir=copy)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        tables = {table["name"]: table for table in connection.status()["queues"]}
        channel.queue_declare(NAMES[0], durable=True, arguments={"x-max-length": 1000})
        channel.queue_declare("new", durable=True)
        channel.basic_publish("", "new", b"of new")
        tables_after = {table["name"]: table for table in connection.status()["queues"]}
        assert max(table["id"] for table in tables.values()) < tables_after["new"]["id"]
    assert content(broker) == {name: [f"of {name}".encode()] for name in NAMES}


def test_an_older_coordinators_exchanges_bindings_and_users_are_kept(
    data: Path, start_broker: StartBroker, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shutil.rmtree(copy / "coordinator")
    shutil.copytree(data.parent / "older" / "coordinator", copy / "coordinator")
    done = adopt(copy, "--apply")
    assert (done["kept"], len(done["queues"]), done["empty"]) == (True, len(NAMES), [])
    assert (Path(done["moved_to"]) / "data.mdb").exists(), "nothing is deleted"
    broker = start_broker(shards=2, data_dir=copy)
    with shardmq.connect(broker.url) as connection:
        connection.channel().basic_publish("first", "", b"again")
    assert content(broker) == {
        name: [f"of {name}".encode(), *([b"again"] if name in NAMES[:-1] else [])] for name in NAMES
    }


def test_a_lost_shard_is_given_up_and_its_queues_are_there_again_empty(
    data: Path, start_broker: StartBroker, tmp_path: Path
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shutil.rmtree(copy / "shard-1")
    done = adopt(copy, "--apply")
    lost = {name for _, name, shard in done["empty"] if shard == 1}
    assert lost
    assert len(lost) + len(done["queues"]) == len(NAMES)
    broker = start_broker(shards=2, data_dir=copy)
    assert content(broker) == {name: [] if name in lost else [f"of {name}".encode()] for name in NAMES}
    with shardmq.connect(broker.url) as connection:
        connection.channel().basic_publish("first", "", b"again")
    found = content(broker)
    assert {name: found[name] for name in NAMES[:-1]} == {name: [b"again"] for name in NAMES[:-1]}


def test_people_are_told_what_would_be_done_and_then_what_was_done(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    shutil.rmtree(copy / "shard-1")
    words = command("store", "adopt", str(copy))
    planned, done = (
        subprocess.run([*words, *options], env=environment(), capture_output=True, text=True, check=True).stdout
        for options in ((), ("--apply",))
    )
    first, took, lost, kept, end = planned.splitlines()
    assert first.startswith("Read 1 shard of broker ")
    assert re.fullmatch(r"Would take \d+ durable queues? from the shards, with all messages", took)
    assert re.match(r"Would take \d+ durable queues? from the old store, empty, as no shard has them: 'q\d'", lost)
    assert kept == "Would keep exchanges, bindings, users, permissions and transactions of the old store"
    assert end == "Nothing was changed; --apply does it."
    *did, rebuilt = done.replace("Took", "Would take").replace("Kept", "Would keep").splitlines()
    assert did == [first, took, lost, kept]
    assert rebuilt.startswith(f"Rebuilt the coordinator's store; the old one is in {copy}/coordinator-until-")


def test_shards_of_different_brokers_are_not_put_together(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    fill(tmp_path / "other", NAMES[:1], "other")
    shutil.rmtree(copy / "shard-0")
    shutil.copytree(tmp_path / "other" / "shard-0", copy / "shard-0")
    done = subprocess.run(command("store", "adopt", str(copy)), env=environment(), capture_output=True, check=False)
    assert done.returncode == 78
    assert b"the shards belong to different brokers" in done.stderr
