"""`shardmq backup` while traffic runs, and what `shardmq restore` makes of it."""

import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.conftest import StartBroker
from tests.running import backed_up

QUEUES = [f"q{number}" for number in range(4)]
"""On both shards."""
EACH = 4
"""Messages of a transaction, one for each queue."""


def call(*words: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command(*words), env=environment(), capture_output=True, check=False)


@dataclass
class Traffic:
    """What programs did, with the time at which it was certain (confirmed), or tried (acks)."""

    url: str
    confirmed: dict[str, float] = field(default_factory=dict)
    acked: dict[str, float] = field(default_factory=dict)
    committed: dict[str, float] = field(default_factory=dict)
    ending: threading.Event = field(default_factory=threading.Event)
    faults: list[BaseException] = field(default_factory=list)

    def run(self) -> list[threading.Thread]:
        threads = [
            threading.Thread(target=self._guard, args=(part,))
            for part in (self.publish, self.consume, self.declare, self.transact)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _guard(self, part: object) -> None:
        try:
            assert callable(part)
            with shardmq.connect(self.url) as connection:
                part(connection.channel())
        except BaseException as fault:
            self.faults.append(fault)
            raise

    def publish(self, channel: shardmq.Channel) -> None:
        number = 0
        while not self.ending.is_set():
            name = f"m{number}"
            channel.basic_publish("", QUEUES[number % len(QUEUES)], name.encode())
            self.confirmed[name] = time.time()
            number += 1

    def consume(self, channel: shardmq.Channel) -> None:
        while not self.ending.is_set():
            message = channel.basic_get(QUEUES[0])
            if message is not None and not message.redelivered:
                self.acked[message.body.decode()] = time.time()
                message.ack()

    def declare(self, channel: shardmq.Channel) -> None:
        number = 0
        while not self.ending.is_set():
            channel.queue_declare(f"passing-{number}", durable=True)
            if number:
                channel.queue_delete(f"passing-{number - 1}")
            number += 1

    def transact(self, channel: shardmq.Channel) -> None:
        number = 0
        while not self.ending.is_set():
            name = f"t{number}"
            with channel.transaction(name) as transaction:
                for queue in QUEUES:
                    transaction.publish("", queue, name.encode())
            self.committed[name] = time.time()
            number += 1


@pytest.fixture
def broker(start_broker: StartBroker) -> Broker:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url) as connection:
        for queue in QUEUES:
            connection.channel().queue_declare(queue, durable=True)
    return broker


def content(url: str) -> dict[str, Counter[str]]:
    """What is in the queues, by queue; taken out by that."""
    found: dict[str, Counter[str]] = {}
    with shardmq.connect(url) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            found[queue] = Counter()
            while (message := channel.basic_get(queue, auto_ack=True)) is not None:
                found[queue][message.body.decode()] += 1
    return found


def test_what_was_confirmed_before_a_backup_is_in_it_once_and_transactions_are_whole(
    broker: Broker, start_broker: StartBroker, tmp_path: Path
) -> None:
    traffic = Traffic(broker.url)
    threads = traffic.run()
    time.sleep(0.1)
    deadline = time.monotonic() + 60
    while len(traffic.confirmed) < 50 or len(traffic.committed) < 5 or len(traffic.acked) < 5:
        assert time.monotonic() < deadline
        assert not traffic.faults
        time.sleep(0.01)
    began = time.time()
    backed_up(broker.url, tmp_path / "copy", "--json", "--rate", "5MB")
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_bytes())
    after = len(traffic.confirmed)
    while len(traffic.confirmed) < after + 10:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    traffic.ending.set()
    for thread in threads:
        thread.join(60)
    assert not traffic.faults
    with shardmq.connect(broker.url) as connection:
        ids = {table["id"] for table in connection.status()["queues"]}
    broker.stop()

    done = call("restore", str(tmp_path / "copy"), str(tmp_path / "restored"))
    assert done.returncode == 0, done.stderr
    restored = start_broker(shards=2, data_dir=tmp_path / "restored")
    with shardmq.connect(restored.url) as connection:
        tables = {table["name"]: table for table in connection.status()["queues"]}
        assert set(QUEUES) <= set(tables)
        connection.channel().queue_declare("after", durable=True)
        new = next(table["id"] for table in connection.status()["queues"] if table["name"] == "after")
        assert new not in ids
        assert new > max(ids)
        passing = [name for name in tables if name.startswith("passing-")]
        for name in passing:
            assert connection.channel().basic_get(name) is None
    found = content(restored.url)
    assert all(count == 1 for counts in found.values() for count in counts.values()), "nothing twice"
    there = set().union(*found.values())
    for name, at in traffic.confirmed.items():
        if at < began and name not in traffic.acked:
            assert name in there, f"{name} was confirmed {began - at:.3f} s before the backup began"
    for name, at in traffic.acked.items():
        if at < began - 1:
            assert name not in found[QUEUES[0]], f"{name} was acked {began - at:.3f} s before the backup began"
    for name in {name for counts in found.values() for name in counts if name.startswith("t")}:
        places = [queue for queue in QUEUES if name in found[queue]]
        assert set(places) >= set(QUEUES[1:]), f"{name} is in {places} alone"
    for name, at in traffic.committed.items():
        if at < began:
            assert all(name in found[queue] for queue in QUEUES[1:]), name
    assert manifest["settled_at"] >= began


def test_a_backup_that_is_not_whole_is_not_restored(broker: Broker, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    backed_up(broker.url, copy)
    again = call("backup", str(copy), "--url", broker.url)
    assert again.returncode == 1
    assert b"is not empty" in again.stderr
    full = call("restore", str(copy), str(copy))
    assert (full.returncode, b"is not empty" in full.stderr) == (78, True)

    shutil.copytree(copy, tmp_path / "half")
    (tmp_path / "half" / "manifest.json").unlink()
    half = call("restore", str(tmp_path / "half"), str(tmp_path / "data-1"))
    assert (half.returncode, b"was not finished" in half.stderr) == (78, True)

    file = copy / "shard-1" / "data.mdb"
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    refused = call("restore", str(copy), str(tmp_path / "data-2"))
    assert (refused.returncode, b"is not what was backed up" in refused.stderr) == (78, True)
    assert not (tmp_path / "data-2").exists()


def test_a_backup_is_restored_into_the_folder_one_is_in(
    broker: Broker, tmp_path: Path, start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up(broker.url, tmp_path / "copy")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    done = call("restore", "../copy", ".")
    assert done.returncode == 0, done.stderr
    assert f"--data-dir {here} --shards 2`, after `cd {here}`, as it is a new folder" in done.stdout.decode()
    monkeypatch.chdir(tmp_path)
    start_broker(shards=2, data_dir=here)


def test_a_backup_is_restored_into_a_volume(broker: Broker, tmp_path: Path, start_broker: StartBroker) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    shell = ("unshare", "--mount", "sh", "-ec")
    if subprocess.run((*shell, 'mount -t tmpfs none "$0"', str(volume)), check=False).returncode:
        pytest.skip("mounts are not allowed here")
    backed_up(broker.url, tmp_path / "copy")
    restore = 'volume=$1; shift; mount -t tmpfs none "$volume"; mkdir "$volume/lost+found"; "$@"; cp -a "$volume" "$0"'
    words = *shell, restore, str(outside), str(volume), *command("restore", str(tmp_path / "copy"), str(volume))
    done = subprocess.run(words, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {entry.name for entry in outside.iterdir()} == {"coordinator", "shard-0", "shard-1", "lost+found"}
    start_broker(shards=2, data_dir=outside)


def test_only_administrators_take_backups(broker: Broker, tmp_path: Path) -> None:
    with shardmq.connect(broker.url) as connection:
        connection.user_put("somebody", "secret")
        connection.permission_put("somebody", "/", ".*", ".*", ".*")
    url = broker.url.replace("guest:guest", "somebody:secret")
    refused = call("backup", str(tmp_path / "copy"), "--url", url)
    assert refused.returncode == 1
    assert b"administrator" in refused.stderr
    assert not (tmp_path / "copy").exists()


def test_stores_of_a_restored_broker_and_of_the_one_it_was_are_not_mixed_up(
    broker: Broker, start_broker: StartBroker, tmp_path: Path
) -> None:
    backed_up(broker.url, tmp_path / "copy")
    broker.stop()
    data = tmp_path / "restored"
    assert call("restore", str(tmp_path / "copy"), str(data)).returncode == 0
    shutil.rmtree(data / "shard-0")
    shutil.copytree(broker.data_dir / "shard-0", data / "shard-0")
    mixed = start_broker(shards=2, data_dir=data, launch_only=True)
    assert mixed.wait() == 78
    assert "its store belongs to broker" in mixed.log.read_text()
