"""The power fails, at any moment: what was confirmed is there, once and in order, transactions are whole.

What the broker writes and syncs is recorded (power/recorder.c); a disk is made of it as of a moment, without what was
not synced, or with any part of it; a broker starts on that disk, and what it has is compared with what clients saw.

`make test` runs a short form, `make faults` more points (SHARDMQ_FAULT_POINTS).
"""

import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import PublishRefused, ShardmqError

from .mutants import NUMBERED, POWER, UNSYNCED, Mutant
from .power.disk import LUCKS, Disk, Guards
from .power.history import History, Verdict
from .power.recording import Recording
from .power.traffic import HOMES, KEPT, declare, drain, running
from .saboteur import until

POINTS = int(os.environ.get("SHARDMQ_FAULT_POINTS", "5"))
SEED = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
IS_LONG = "SHARDMQ_FAULT_POINTS" in os.environ
ATTEMPTS = 12
"""Moments at which a broker without a guard may fail; some need luck."""

SHARDS = 2
TRAFFIC_SECONDS = 0.7
EVERYTHING = Guards()


@dataclass
class Recorded:
    """A broker's life, as its disk and its clients have seen it."""

    disk: Disk
    history: History
    began: int
    ended: int

    def confirms(self) -> list[int]:
        """When messages were confirmed."""
        return sorted({sent.confirmed_at for sent in self.history.sent.values() if sent.confirmed_at is not None})

    def half_ways(self) -> list[int]:
        """When one shard had followed the decision of a transaction, and another had not.

        From the decision to its answer a shard writes twice: the messages in their queues, and that it is done.
        """
        moments = []
        for each in self.history.transactions.values():
            if each.asked_at is not None and each.committed_at is not None:
                writes = self.disk.synced_writes(each.asked_at, each.committed_at)
                shards = [times for folder, times in writes.items() if folder.startswith("shard-") and len(times) > 2]
                if len(shards) == SHARDS:
                    moments.append(min(times[-2] for times in shards) + 1)
        return moments


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Traffic on a broker from its first start on, of which processes are killed: two in the middle of a commit."""
    kills = (("shard-0", True), ("coordinator", False), ("shard-1", True))
    return record(tmp_path_factory.mktemp("power"), kills, {})


def record(
    folder: Path, kills: Sequence[tuple[str, bool]], variables: Mapping[str, str], only_transactions: bool = False
) -> Recorded:
    """Traffic on a new broker, while processes are killed: (which, whether in the middle of a commit)."""
    recording = Recording(folder / "log", folder / "data")
    history = History()
    began = time.monotonic_ns()
    broker = Broker(folder / "data", shards=SHARDS, variables={**recording.variables(), **variables})
    try:
        broker.start()
        declare(broker.url)
        with running(broker.url, history, only_transactions):
            time.sleep(TRAFFIC_SECONDS)
            for victim, unsynced in kills:
                known = len(broker.notices)
                recording.kill(broker.pids[victim], unsynced)
                broker.wait_for("ready", victim, after=known)
                time.sleep(TRAFFIC_SECONDS)
        ended = time.monotonic_ns()
    finally:
        broker.close()
        print(broker.last_words())
    return Recorded(Disk(recording.events(), folder / "data"), history, began, ended)


def after_power_loss(recorded: Recorded, moment: int, luck: str, folder: Path, guards: Guards = EVERYTHING) -> Verdict:
    """Start a broker on what is left of the disk, and look at all it has."""
    data = folder / f"data-{moment}-{random.randrange(2**32)}"
    recorded.disk.fail(moment, LUCKS[luck], SEED, data, guards)
    if not (data / "coordinator" / "data.mdb").exists():
        assert not any(sent.confirmed_at and sent.confirmed_at <= moment for sent in recorded.history.sent.values())
    broker = Broker(data, shards=len(list(data.glob("shard-*"))) or SHARDS)
    try:
        broker.start()
        declare(broker.url)
        found, left = drain(broker.url)
        return recorded.history.check(moment, found, HOMES, left)
    finally:
        broker.close()
        print(broker.last_words())


def moments(recorded: Recorded, count: int) -> Iterator[tuple[int, str]]:
    """When the power fails, and with which luck: mostly just behind a confirm, when most is at stake."""
    dice = random.Random(SEED)
    confirms = recorded.confirms()
    lucks = list(LUCKS)
    for number in range(count):
        moment = dice.choice(confirms)
        if number % 5 == 3:
            moment = dice.choice(recorded.half_ways())
        elif number % 5 == 4:
            moment = dice.randrange(recorded.began, recorded.ended)
        yield moment, lucks[number % len(lucks)]


@pytest.mark.faults
def test_nothing_confirmed_is_lost_when_the_power_fails(recorded: Recorded, tmp_path: Path) -> None:
    for moment, luck in moments(recorded, POINTS):
        verdict = after_power_loss(recorded, moment, luck, tmp_path)
        print(f"seed {SEED}, {(moment - recorded.began) / 1e9:.3f} s, {luck}: {verdict}")
        assert verdict.is_clean, f"seed {SEED}, moment {moment}, {luck}: {verdict}"


def publish(channel: shardmq.Channel, history: History) -> bool:
    """Publish one message; returns whether it was confirmed. It is refused while its shard is away."""
    ids = history.send("publisher", [KEPT])
    try:
        channel.basic_publish("", KEPT, ids[0].encode())
    except PublishRefused:
        return False
    history.confirm(ids)
    return True


def killed_within_a_commit(folder: Path, variables: Mapping[str, str]) -> Recorded:
    """A shard is killed in its LMDB commit, with the page that makes it valid in the page cache only; the next one
    confirms one more message, and has not yet had reason to sync what it found.
    """
    recording = Recording(folder / "log", folder / "data")
    history = History()
    began = time.monotonic_ns()
    broker = Broker(folder / "data", shards=1, variables={**recording.variables(), **variables})
    try:
        broker.start()
        declare(broker.url)
        with shardmq.connect(broker.url, timeout=20) as connection, connection.channel() as channel:
            known = len(broker.notices)
            for number in range(51):
                if number == 50:
                    recording.kill(broker.pids["shard-0"], unsynced=True)
                    broker.wait_for("ready", "shard-0", after=known)
                until(lambda: publish(channel, history), "a message is confirmed")
        ended = time.monotonic_ns()
    finally:
        broker.close()
        print(broker.last_words())
    return Recorded(Disk(recording.events(), folder / "data"), history, began, ended)


@pytest.mark.faults
def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_built_upon(tmp_path: Path) -> None:
    recorded = killed_within_a_commit(tmp_path, {})
    verdict = after_power_loss(recorded, recorded.ended, "nothing more", tmp_path / "after")
    assert verdict.confirmed == 51
    assert verdict.is_clean, verdict


@pytest.mark.faults
@pytest.mark.parametrize(
    "guards",
    [Guards(sync=False), Guards(synchronous_writes=False), Guards(folders=False)],
    ids=["LMDB's syncs", "synchronous writes of the redo log", "syncs of folders"],
)
def test_the_harness_notices_when_a_sync_is_left_out(recorded: Recorded, tmp_path: Path, guards: Guards) -> None:
    moment = recorded.confirms()[-1]
    try:
        verdict = after_power_loss(recorded, moment, "nothing more", tmp_path, guards)
    except (ShardmqError, AssertionError) as fault:  # refused, or everything is gone
        print(f"not even started: {str(fault)[:300]}")
        return
    print(verdict)
    assert not verdict.is_clean


@pytest.mark.parametrize("mutant", [*POWER, UNSYNCED, NUMBERED], ids=lambda mutant: mutant.guard)
def test_every_guard_is_where_its_control_removes_it(mutant: Mutant) -> None:
    assert mutant.applied()


@pytest.mark.faults
@pytest.mark.skipif(not IS_LONG, reason="make faults")
def test_the_harness_notices_when_what_was_found_is_not_synced(tmp_path: Path) -> None:
    recorded = killed_within_a_commit(tmp_path, UNSYNCED.variables(tmp_path / "code"))
    try:
        verdict = after_power_loss(recorded, recorded.ended, "nothing more", tmp_path / "after")
    except ShardmqError as fault:  # what is missing has shown at the start
        assert "is damaged: commits" in str(fault)
        return
    print(verdict)
    assert verdict.lost


@pytest.mark.faults
@pytest.mark.skipif(not IS_LONG, reason="make faults")
@pytest.mark.parametrize("mutant", POWER, ids=lambda mutant: mutant.guard)
def test_the_harness_notices_when_a_guard_is_removed(mutant: Mutant, tmp_path: Path) -> None:
    is_torn = mutant.breaks == ("torn",)
    recorded = record(tmp_path, (), mutant.variables(tmp_path / "code"), only_transactions=is_torn)
    dice = random.Random(SEED)
    found: list[str] = []
    for _ in range(ATTEMPTS):
        moment = dice.choice(recorded.half_ways() if is_torn else recorded.confirms())
        try:
            verdict = after_power_loss(recorded, moment, "nothing more", tmp_path)
        except ShardmqError as fault:
            found.append(f"refused: {str(fault)[:200]}")
            break
        print(verdict)
        found += [promise for promise in mutant.breaks if getattr(verdict, promise)]
        if found:
            break
    assert found, f"without its guard ('{mutant.guard}') all promises seem to be kept"
    print(f"without '{mutant.guard}': {found}")
