"""A broker whose shards and coordinator have a follower each, in processes of their own; all are killed at any moment.

The followers take over: what clients were told of is there, once, in order, marked; and stores are the same again.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.coordinator.storage.store import Store as CoordinatorStore
from shardmq.errors import StoreRefused
from shardmq.replication.store.digest import Digest, digest_of
from shardmq.replication.store.follower import FollowerStore
from shardmq.shards.storage.schema import LAYOUT
from shardmq.shards.storage.store import Store as ShardStore
from shardmq.storage.engine import Layout
from tests.faults.mutants import ROOT, Mutant
from tests.faults.power.history import History
from tests.faults.power.traffic import HOMES, declare, drain, running
from tests.faults.saboteur import until

from .pair import FOLDER, WAITS

STORES = ("coordinator", "shard-0", "shard-1")
SEED = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
KILLS = 4
SECONDS = 0.25

PAIRED = (
    Mutant(
        "shards have a follower",
        "shards/storage/store.py",
        "            return cls(front(engine), shard, damage)\n",
        "            from tests.replication.store.pair import PairedEngine\n"
        "            return cls(PairedEngine(engine), shard, damage)\n",
        (),
    ),
    Mutant(
        "the coordinator has a follower",
        "shardmq/coordinator/storage/store.py",
        "            return cls(front(engine), boot_id)\n",
        "            from tests.replication.store.pair import PairedEngine\n"
        "            return cls(PairedEngine(engine), boot_id)\n",
        (),
    ),
)
"""What a broker's processes run, besides what they are."""


class Followers:
    """The followers' processes.

    Args:
        folder: of their stores and sockets.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        (folder / "stores").mkdir(exist_ok=True)
        for name in STORES:
            self.start(name)

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.replication.store.following"]
        place = str(self.folder / "stores" / name), str(self.folder / f"{name}.sock")
        process = subprocess.Popen([*command, *place], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.processes[name] = process
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


@contextmanager
def place() -> Iterator[Path]:
    """A folder whose name is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="smq") as name:
        yield Path(name)


def variables(folder: Path) -> dict[str, str]:
    code = folder / "code"
    found = PAIRED[0].variables(code)
    (code / PAIRED[1].file).write_text(PAIRED[1].applied())
    return {"PYTHONPATH": f"{found['PYTHONPATH']}{os.pathsep}{ROOT}", FOLDER: str(folder)}


def layout_of(name: str) -> Layout:
    return REGISTRY if name == "coordinator" else LAYOUT


def digest(folder: Path) -> Digest:
    with closing(FollowerStore.open(folder, layout_of(folder.name))) as store:
        return digest_of(store.engine)


@pytest.mark.faults
def test_followers_have_all_that_clients_were_told_of_wherever_processes_are_killed() -> None:
    dice, history = random.Random(SEED), History()
    print(f"SHARDMQ_FAULT_SEED={SEED}")
    with place() as folder, closing(Followers(folder)) as followers:
        environment = variables(folder)
        broker = Broker(folder / "data", shards=2, variables=environment)
        try:
            broker.start()
            declare(broker.url)
            with running(broker.url, history):
                for turn in range(KILLS):
                    time.sleep(dice.random() * SECONDS)
                    name = dice.choice(STORES) if turn % 2 else STORES[1 + turn % 4 // 2]
                    if turn % 2:
                        followers.kill(name)
                        followers.start(name)
                    else:
                        broker.kill_and_wait(name)
                time.sleep(SECONDS)
                followers.kill("shard-0")
                until(lambda: said(folder, "shard-0")[-1] == WAITS, "a commit waits for its follower")
                broker.kill_everything()
                moment = time.monotonic_ns()
        finally:
            broker.close()
        followers.close()
        check_takeover(folder, environment, history, moment)


def said(folder: Path, name: str) -> list[str]:
    """What a primary noted of its follower."""
    return (folder / f"{name}.log").read_text().split("\n")[:-1]


def check_backup(folder: Path, url: str) -> None:
    """A backup of replicas is restored as a broker on one machine."""
    for arguments in (["backup", folder / "backup", "--url", url], ["restore", folder / "backup", folder / "restored"]):
        subprocess.run([sys.executable, "-m", "shardmq", *map(str, arguments)], cwd=ROOT, check=True)
    ShardStore.open(folder / "restored" / "shard-1", 1).close()
    CoordinatorStore.open(folder / "restored" / "coordinator", "boot").close()


def check_takeover(folder: Path, environment: dict[str, str], history: History, moment: int) -> None:
    """The followers' stores are the broker's from here on; those before follow them."""
    for name in STORES:
        shutil.move(folder / "data" / name, folder / f"before-{name}")
        shutil.move(folder / "stores" / name, folder / "data" / name)
        (folder / f"before-{name}").rename(folder / "stores" / name)
        print(name, said(folder, name))
    with closing(Followers(folder)):
        broker = Broker(folder / "data", shards=2, variables=environment)
        try:
            broker.start()
            declare(broker.url)
            found, left = drain(broker.url)
            check_backup(folder, broker.url)
        finally:
            broker.close()
    verdict = history.check(moment, found, HOMES, left)
    print(verdict)
    assert verdict.confirmed > 50
    assert verdict.is_clean, verdict
    for name in STORES:
        assert said(folder, name)[-1] in ("rejoin 0", "rejoin 1"), name  # with 1, it had what nobody was told of
        assert digest(folder / "data" / name) == digest(folder / "stores" / name)
    with pytest.raises(StoreRefused, match="is a replica's"):
        ShardStore.open(folder / "data" / "shard-1", 1)
