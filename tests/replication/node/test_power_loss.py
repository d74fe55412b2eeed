"""The power of a follower's host fails at any moment: what it acknowledged is there, and its rows are its note's."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shardmq.bus.curve import create_pair, process_name
from shardmq.replication.core import catch_up
from shardmq.replication.core.group import Group
from shardmq.replication.core.note import Note
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS, WISHES, Host, Wish
from shardmq.replication.node.store import ReplicaStore
from shardmq.runtime.clock import boottime
from shardmq.shards.storage.schema import LAYOUT
from tests.faults.mutants import ROOT
from tests.faults.power.disk import LUCKS, Disk, Guards
from tests.faults.power.recording import Recording
from tests.hosts.members import Etcd
from tests.replication.digest import Digest, digest_of
from tests.replication.links.replicas import free_address
from tests.replication.node.test_sockets import GROUP, Running
from tests.replication.replicated import end_with_tests
from tests.replication.store.stores import Traffic, room, size_of

SEED = int(os.environ.get("SHARDMQ_FAULT_SEED", random.randrange(2**32)))
MOMENTS = int(os.environ.get("SHARDMQ_FAULT_POINTS", "3"))
JOINED, RECORDS, TERMS = 60, 160, 3
SECONDS = 60.0


class Pair:
    """A primary here and its follower in a process of its own, whose disk is recorded.

    Attributes:
        said: what the primary knew of the follower, and when: nanoseconds, the term that it had promised, the index up
            to which it had all, whether it held all.
    """

    def __init__(self, folder: Path, url: str, recording: Recording) -> None:
        self._folder = folder
        self._url = url
        self._recording = recording
        self._addresses = {host: free_address() for host in "ab"}
        self._register = BackgroundRegister(parse(url), "power")
        self._follower: subprocess.Popen[bytes] | None = None
        self._traffic = Traffic(SEED, 30_000)
        self.said: list[tuple[int, int, int, bool]] = []
        self._digests: dict[tuple[int, int], Digest] = {}
        for host, address in self._addresses.items():
            create_pair(folder / "keys", process_name(host, GROUP))
            self._register.put_host(host, Host("s", {f"{GROUP}/replica": address}))
        self._register.create(GROUPS, GROUP, Group("i1", 0, "", ("a",), ("a", "b")))
        self._primary = self._started()

    def _started(self) -> Running:
        made = Running("a", self._folder / "primary", self._folder / "keys", self._addresses["a"], self._url)
        made.node.on_leading = lambda _term, _is_sure: self._traffic.go_on(made.node.engine)
        return made

    def follow(self) -> None:
        """Start the follower."""
        command = [sys.executable, "-m", "tests.replication.node.test_power_loss"]
        given = [str(self._folder), self._addresses["b"], self._url]
        environment = {**os.environ, **self._recording.variables()}
        self._follower = subprocess.Popen([*command, *given], cwd=ROOT, env=environment)

    def until(self, holds: Callable[[], object]) -> None:
        """Go on until something holds; what the primary knows is noted."""
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, (self.group, self._primary.node.index, self._primary.node.released)
            self._primary.pass_(False)
            node = self._primary.node
            if "b" in self.group.in_sync and node.may_answer(boottime()):
                self.said.append((time.monotonic_ns(), self.group.term, node.released, True))

    @property
    def group(self) -> Group:
        """The group, as the primary knows it."""
        return self._primary.node.group or Group("", 0, "", (), ())

    def has_two(self) -> bool:
        """Whether there are two replicas that hold all."""
        return set(self.group.in_sync) == {"a", "b"}

    def commit(self, count: int) -> None:
        """Commit so many records, some of them ahead of the follower."""
        for _ in range(count):
            if not self._primary.node.takes_proposals:
                self._lead_again()  # on a busy machine the follower may have heard nothing for too long
            node = self._primary.node
            edits = self._traffic.commit()
            node.engine.apply(iter(edits), size_of(edits))
            self._digests[node.store.note.term, node.index] = digest_of(node.store.engine)
            self.until(lambda: self._primary.node.index - self._primary.node.released < 5)

    def digest(self, note: Note) -> Digest:
        """What the rows of a replica have to be: those of the last record that was committed here, as a record that
        begins a term has none."""
        ends = [first - 1 for _, first in note.history[1:]] + [note.index]
        terms = zip(note.history, ends, strict=True)
        found = [
            self._digests[place]
            for (term, first), end in terms
            for index in range(first, end + 1)
            if (place := (term, index)) in self._digests
        ]
        return found[-1]

    def hand_over(self) -> None:
        """Have the follower lead, and lead again, in a process as good as new."""
        self._wish("b")
        self._lead_again()

    def _lead_again(self) -> None:
        self._primary.close()
        self._primary = self._started()
        self.until(lambda: self.group.term and self.has_two())
        if self.group.primary == "b":
            self._wish("a")
        self.until(lambda: self.has_two() and self._primary.node.takes_publishes)

    def _wish(self, host: str) -> None:
        wish = Wish(self.group.term, host)
        self._register.change(WISHES, GROUP, lambda _: wish)
        self.until(lambda: self.group.term > wish.term and self.has_two())

    def run(self) -> None:
        """A join, and records; terms that are promised between them."""
        self.until(lambda: self._primary.node.takes_publishes)
        self.commit(JOINED)
        self.follow()
        self.until(self.has_two)
        for term in range(TERMS):
            if term:
                self.hand_over()
            self.commit(RECORDS // TERMS)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.kill()
            self._follower.wait()
        self._primary.close()
        self._register.close()


@pytest.mark.faults
def test_what_a_follower_acknowledged_outlives_its_hosts_power(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"SHARDMQ_FAULT_SEED={SEED}")
    monkeypatch.setattr(catch_up, "RANGE_BYTES", 50_000)
    dice = random.Random(SEED)
    with room() as folder:
        recording = Recording(folder / "log", folder / "data")
        began = time.monotonic_ns()
        with closing(Pair(folder, f"{etcd.url}/n{began}", recording)) as pair:
            pair.run()
        disk = Disk(recording.events(is_cut=True), folder / "data")
        said = pair.said
        writes = disk.synced_writes(began, said[-1][0])["b"]
        opened = complete = 0
        for number, moment in enumerate([said[-1][0], *(end + 1 for end in dice.sample(writes, MOMENTS))]):
            known = (0, 0, 0, False)
            _, promised, index, is_complete = max([each for each in said if each[0] <= moment], default=known)
            for luck, choice in LUCKS.items():
                target = folder / f"{number}-{luck}"
                disk.fail(moment, choice, SEED, target, Guards())
                with closing(ReplicaStore.open(target / "b", LAYOUT)) as store:
                    note = store.note
                    assert note.promised >= promised, luck
                    assert note.index >= index, luck
                    assert note.is_complete >= is_complete, luck
                    opened += 1
                    if note.is_complete:
                        complete += 1
                        assert digest_of(store.engine) == pair.digest(note), luck
        assert complete > 0, opened


def follow(folder: Path, address: str, url: str) -> None:
    """Be the follower, until this process is killed."""
    end_with_tests()
    running = Running("b", folder / "data", folder / "keys", address, url)
    while True:
        running.pass_(False)


if __name__ == "__main__":
    follow(Path(sys.argv[1]), *sys.argv[2:])
