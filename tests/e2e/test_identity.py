"""Stores that do not belong where they are: the broker refuses to start, says why, and nothing is delivered or lost."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG
from tests.conftest import StartBroker

NAMES = [f"q{number}" for number in range(6)]
"""On both shards."""


class Home:
    """Data directories of two brokers, and older copies of one of them. Never started: tests start copies."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.older = folder / "older"
        self.strange = folder / "strange"


def fill(folder: Path, names: list[str]) -> None:
    with Broker(folder, shards=2) as broker, shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name, durable=True)
            channel.basic_publish("", name, f"of {name}".encode())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    fill(home.data, NAMES[:-1])
    shutil.copytree(home.data, home.older)
    fill(home.data, NAMES[-1:])
    fill(home.strange, NAMES)
    return home


Change = Callable[[Home, Path], None]


def data_is_missing(_: Home, data: Path) -> None:
    (data / "shard-1" / "data.mdb").unlink()


def redo_is_missing(_: Home, data: Path) -> None:
    (data / "shard-1" / "redo").unlink()


def coordinators_data_is_missing(_: Home, data: Path) -> None:
    (data / "coordinator" / "data.mdb").unlink()


def folder_is_missing(_: Home, data: Path) -> None:
    shutil.rmtree(data / "shard-1")


def folders_are_swapped(_: Home, data: Path) -> None:
    (data / "shard-0").rename(data / "aside")
    (data / "shard-1").rename(data / "shard-0")
    (data / "aside").rename(data / "shard-1")


def shard_is_anothers(home: Home, data: Path) -> None:
    put(home.strange, data, "shard-1")


def shard_is_older(home: Home, data: Path) -> None:
    put(home.older, data, "shard-1")


def coordinator_is_missing(_: Home, data: Path) -> None:
    shutil.rmtree(data / "coordinator")


def coordinator_is_older(home: Home, data: Path) -> None:
    put(home.older, data, "coordinator")


def coordinator_is_anothers(home: Home, data: Path) -> None:
    put(home.strange, data, "coordinator")


def put(home: Path, data: Path, name: str) -> None:
    shutil.rmtree(data / name)
    shutil.copytree(home / name, data / name)


SITUATIONS: list[tuple[Change, str, tuple[str, ...]]] = [
    (data_is_missing, "shard-1", ("shard-1/data.mdb is missing, but redo and lock.mdb of the same store are there",)),
    (redo_is_missing, "shard-1", ("shard-1/redo is missing",)),
    (
        coordinators_data_is_missing,
        "coordinator",
        ("coordinator/data.mdb is missing, but redo and lock.mdb of the same",),
    ),
    (folder_is_missing, "shard-1", ("shard 1 has", "queues registered, but its store is new", "store adopt")),
    (folders_are_swapped, "", ("is the store of shard", "two folders were swapped")),
    (shard_is_anothers, "shard-1", ("expected shard 1 of broker", "its store belongs to broker")),
    (shard_is_older, "shard-1", ("shard 1's store is older than the coordinator's", "store adopt")),
    (coordinator_is_missing, "coordinator", ("the coordinator's store is new", "store adopt")),
    (coordinator_is_older, "coordinator", ("the coordinator's store is older than shard", "store adopt")),
    (coordinator_is_anothers, "shard-", ("expected shard", "its store belongs to broker")),
]


@pytest.mark.parametrize(("change", "process", "texts"), SITUATIONS, ids=lambda value: getattr(value, "__name__", None))
def test_a_store_that_does_not_belong_there_is_refused(
    home: Home, start_broker: StartBroker, tmp_path: Path, change: Change, process: str, texts: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(home.data, data)
    change(home, data)
    broker = start_broker(shards=2, data_dir=data, launch_only=True)
    assert broker.wait() == EXIT_CONFIG
    events = [notice.event for notice in broker.notices]
    assert "up" not in events
    assert "exited" not in events, "nothing is started again"
    refused = next(notice for notice in broker.notices if notice.event == "refused")
    assert (refused.process or "").startswith(process)
    said = broker.log.read_text()
    assert "Traceback" not in said
    for text in texts:
        assert text in said


def check_everything_is_there(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        for name in NAMES:
            message = channel.basic_get(name)
            assert message is not None
            assert (message.body, message.redelivered) == (f"of {name}".encode(), False)
            assert channel.basic_get(name) is None


def test_what_was_refused_goes_on_with_everything_when_it_is_put_right(
    home: Home, start_broker: StartBroker, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(home.data, data)
    shutil.copytree(data / "coordinator", tmp_path / "coordinator")
    folders_are_swapped(home, data)
    coordinator_is_older(home, data)
    assert start_broker(shards=2, data_dir=data, launch_only=True).wait() == EXIT_CONFIG
    folders_are_swapped(home, data)
    assert start_broker(shards=2, data_dir=data, launch_only=True).wait() == EXIT_CONFIG
    put(tmp_path, data, "coordinator")
    check_everything_is_there(start_broker(shards=2, data_dir=data))


def test_stores_of_before_learn_whose_they_are(home: Home, start_broker: StartBroker, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(home.data, data)
    forget(data / "coordinator", b"broker", b"generation", b"members")
    for shard in ("shard-0", "shard-1"):
        forget(data / shard, b"identity")
    shutil.copytree(data / "shard-0", tmp_path / "shard-0")
    broker = start_broker(shards=2, data_dir=data)
    check_everything_is_there(broker)
    broker.stop()
    shutil.rmtree(data / "shard-0")
    broker = start_broker(shards=2, data_dir=data, launch_only=True)
    assert broker.wait() == EXIT_CONFIG
    assert "queues registered, but its store is new" in broker.log.read_text()


@pytest.mark.parametrize("change", [folder_is_missing, folders_are_swapped])
def test_stores_of_before_are_refused_where_they_do_not_belong(
    home: Home, start_broker: StartBroker, tmp_path: Path, change: Change
) -> None:
    data = tmp_path / "data"
    shutil.copytree(home.data, data)
    forget(data / "coordinator", b"broker", b"generation", b"members")
    for shard in ("shard-0", "shard-1"):
        forget(data / shard, b"identity")
    change(home, data)
    assert start_broker(shards=2, data_dir=data, launch_only=True).wait() == EXIT_CONFIG


def forget(folder: Path, *keys: bytes) -> None:
    """A store that was made before stores knew of themselves."""
    with lmdb.open(str(folder), max_dbs=64, map_size=1 << 30) as env:
        state = env.open_db(b"state")
        with env.begin(write=True, db=state) as transaction:
            for key in keys:
                assert transaction.delete(key)


def test_a_data_directory_that_was_put_back_whole_gives_no_id_that_was_given_before(
    home: Home, start_broker: StartBroker, tmp_path: Path
) -> None:
    ids: list[int] = []
    for life in range(2):
        data = tmp_path / f"life-{life}"
        shutil.copytree(home.data, data)
        broker = start_broker(shards=2, data_dir=data)
        with shardmq.connect(broker.url) as connection:
            for name in ("new", "newer"):
                connection.channel().queue_declare(name, durable=True)
            ids += [table["id"] for table in connection.status()["queues"] if table["name"] in ("new", "newer")]
        broker.stop()
    assert len(ids) == len(set(ids)) == 4
    assert max(ids) < 2**53


@pytest.fixture
def start_role(tmp_path: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts processes of a broker alone, each told where the supervisor would be."""
    started: list[subprocess.Popen[bytes]] = []

    def start(log: str, *words: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / log).open("wb") as stream:
            process = subprocess.Popen(command(*words), env=environment(), stderr=stream)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def test_roles_alone_refuse_one_another_over_the_bus(
    home: Home, start_role: Callable[..., "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """Another broker's shard ends; the coordinator waits for the right one."""
    os.chmod(tmp_path, 0o700)
    for name, source in (("a", home.data), ("b", home.strange)):
        shutil.copytree(source, tmp_path / name)
    addresses = [f"ipc://{tmp_path}/s{number}" for number in range(2)]
    shards = [word for address in addresses for word in ("--shard", address)]
    coordinator = start_role(
        "coordinator.log", "coordinator", "--data-dir", str(tmp_path / "a"), "--listen", f"ipc://{tmp_path}/c", *shards
    )
    for number, name, code in ((0, "a", None), (1, "b", EXIT_CONFIG)):
        words = ("--index", str(number), "--data-dir", str(tmp_path / name), "--listen", addresses[number])
        shard = start_role(f"shard-{number}.log", "shard", *words)
        if code is not None:
            assert shard.wait(30) == code
        else:
            kept = shard
    assert "expected shard 1 of broker" in (tmp_path / "shard-1.log").read_text()
    assert (coordinator.poll(), kept.poll()) == (None, None)
