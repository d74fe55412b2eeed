"""What is preloaded into hosts does what it says: unsynced writes are lost, and clocks run at another rate."""

import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.docs.document import ROOT
from tests.faults.power.disk import all_of_it, nothing_more
from tests.hosts.faults.builds import Build, upgrades
from tests.hosts.faults.clocks import Clock
from tests.hosts.faults.preloading import library
from tests.hosts.faults.schedule import GROUPS, GROWTHS, KINDS, Fault, rounds
from tests.hosts.faults.unsynced import Disk, lose_unsynced
from tests.running import without

WRITER = """
import os, signal, sys
os.chdir(sys.argv[1])
one = os.open("one", os.O_RDWR | os.O_CREAT)
os.pwrite(one, b"synced" * 1000, 0)
os.fdatasync(one)
os.pwrite(one, b"UNSYNCED" * 100, 600)
os.ftruncate(one, 5000)
direct = os.open("one", os.O_WRONLY | os.O_DSYNC)
os.pwrite(direct, b"direct", 4096)
with open("two", "wb") as two:
    two.write(b"whole")
fresh = os.open("two", os.O_RDONLY)
os.fsync(fresh)
with open("three", "wb") as three:
    three.write(b"never synced")
os.kill(os.getpid(), signal.SIGKILL)
"""

CLOCKS = """
import threading, time
def now():
    return [time.clock_gettime(clock) for clock in (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME, time.CLOCK_BOOTTIME)]
began = now()
time.sleep(0.2)
threading.Event().wait(0.2)
print(*(after - before for before, after in zip(began, now())), flush=True)
"""


def preloaded(name: str, folder: Path) -> str:
    try:
        return str(library(name, folder))
    except Absent as reason:
        without(reason)


def test_what_was_not_synced_is_lost_and_what_was_is_there(tmp_path: Path) -> None:
    library_path = preloaded("unsynced", tmp_path)
    root, logs = tmp_path / "root", tmp_path / "logs"
    synced = bytearray(b"synced" * 1000)
    synced[4096:4102] = b"direct"
    for luck in (nothing_more, all_of_it):
        for folder in (root, logs):
            folder.mkdir()
        variables = {"LD_PRELOAD": library_path, "UNSYNCED_ROOT": str(root), "UNSYNCED_LOG": str(logs)}
        subprocess.run([sys.executable, "-c", WRITER, str(root)], env={**os.environ, **variables}, check=False)
        written = {file.name: file.read_bytes() for file in root.iterdir()}
        assert len(written["one"]) == 5000
        lose_unsynced(root, logs, luck, 1)
        left = {file.name: file.read_bytes() for file in root.iterdir()}
        assert left == written if luck is all_of_it else left == {"one": bytes(synced), "two": b"whole", "three": b""}
        assert not list(logs.iterdir())
        for file in root.iterdir():
            file.unlink()
        for folder in (root, logs):
            folder.rmdir()


SYNCER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"written", 0)
print("written", flush=True)
os.fdatasync(file)
print("synced", flush=True)
"""


def test_no_sync_ends_while_the_disk_stalls(tmp_path: Path) -> None:
    root, logs, disk = tmp_path / "root", tmp_path / "logs", Disk(tmp_path / "disk")
    for folder in (root, logs):
        folder.mkdir()
    variables = {
        "LD_PRELOAD": preloaded("unsynced", tmp_path),
        "UNSYNCED_ROOT": str(root),
        "UNSYNCED_LOG": str(logs),
        "UNSYNCED_STALL": str(disk.file),
    }
    disk.stall()
    command = [sys.executable, "-c", SYNCER, str(root / "file")]
    with subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE) as syncer:
        assert syncer.stdout is not None
        assert syncer.stdout.readline() == b"written\n"
        with pytest.raises(subprocess.TimeoutExpired):
            syncer.wait(0.3)
        disk.go_on()
        assert syncer.stdout.readline() == b"synced\n"
    assert syncer.returncode == 0


@pytest.mark.parametrize("rate", [0.5, 2.0])
def test_clocks_run_at_another_rate_and_waits_with_them(tmp_path: Path, rate: float) -> None:
    clock = Clock(tmp_path / "clock")
    clock.run(rate)
    variables = {"LD_PRELOAD": preloaded("clocks", tmp_path), "CLOCK_RATE": str(clock.file)}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CLOCKS], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    took = time.monotonic() - began
    clock.close()
    for seconds in map(float, done.stdout.split()):
        assert seconds + 0.001 >= 0.4
        assert seconds <= took * rate + 0.001, "they run by the rate"


def test_a_seed_says_all_and_every_kind_is_drawn() -> None:
    one, other = rounds(7), rounds(7)
    drawn = [fault for _ in range(400) for fault in next(one)]
    assert drawn == [fault for _ in range(400) for fault in next(other)]
    assert {fault.kind for fault in drawn} == {*KINDS}
    assert [fault.kind for fault in drawn].count("shard add") == len(GROWTHS)
    before, first, rest = [[*part] for part in split_at(drawn, "shard add")]
    assert {fault.group for fault in before} <= {*GROUPS}
    assert {fault.group for fault in first} - {*GROUPS} == {"shard-2"}
    assert {fault.group for fault in rest} == {*GROUPS, "shard-2", "shard-3"}


def split_at(faults: list[Fault], kind: str) -> list[list[Fault]]:
    """What comes before, between and after those of a kind."""
    parts: list[list[Fault]] = [[]]
    for fault in faults:
        if fault.kind == kind:
            parts.append([])
        else:
            parts[-1].append(fault)
    return parts


def test_later_versions_find_their_own_code_and_go_there_and_back_and_on_to_the_next_format(tmp_path: Path) -> None:
    seen = []
    here = Build(None)
    for build in islice(upgrades(tmp_path), 4):
        told = """if True:
            import shardmq.shards, shardmq.version, shardmq.storage.versions as versions
            from shardmq.storage.lmdb_environment import _VERSIONS
            print(shardmq.version.VERSION, versions.VERSION, max(_VERSIONS.values()), shardmq.shards.__file__)"""
        done = subprocess.run(
            [sys.executable, "-P", "-c", told],
            env=os.environ | build.variables,
            capture_output=True,
            text=True,
            check=True,
        )
        version, *formats, file = done.stdout.split()
        assert version == build.version
        assert formats == [str(build.format)] * 2
        assert Path(file).is_relative_to(build.folder or ROOT)
        seen.append((version == here.version, build.format - here.format))
    assert seen == [(False, 0), (True, 0), (False, 1), (False, 1)]
