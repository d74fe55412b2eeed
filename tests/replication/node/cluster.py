"""Three hosts on a clock of their own, with a client that notes what it was answered.

The clock is the test's: a minute of elections, joins and faults takes a second or two. Stores are LMDB's, in memory.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from random import Random

from shardmq.errors import StoreUnwritable
from shardmq.replication.core.group import Group
from shardmq.replication.core.note import Note
from shardmq.replication.node.node import ReplicaNode
from shardmq.replication.node.store import ReplicaStore
from shardmq.replication.store.key_range import checked_value, shared_rows
from shardmq.shards.storage.schema import LAYOUT
from shardmq.storage.engine import Edit
from shardmq.storage.lmdb_engine import LmdbEngine
from tests.replication.digest import digest_of
from tests.replication.node.network import MemoryLinks, Network
from tests.replication.node.register import Etcd, MemoryRegister
from tests.replication.store.stores import Traffic, size_of

SPILLED_OUT = {number for number in range(len(LAYOUT.databases)) if LAYOUT.replicas and number in LAYOUT.replicas.local}


class Killed(Exception):
    """The process ends here, whatever it was about to do."""


class MortalEngine(LmdbEngine):
    """An engine whose process may be killed before or after a commit, or wait long for its disk.

    Attributes:
        wait: called for each commit; returns once the disk takes it.
    """

    wait: Callable[[], object] | None = None
    deadly: Random | None = None
    odds = 0.0
    is_broken = False

    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        if self.is_broken:
            raise StoreUnwritable(f"{self.file} cannot be written: the disk takes nothing")
        draw = 1.0 if self.deadly is None else self.deadly.random()
        if draw < self.odds:
            raise Killed
        if self.wait is not None:
            self.wait()
        super().apply(edits, size, touched)
        if draw > 1 - self.odds and self.deadly is not None:
            raise Killed


class Process:
    """A replica's process on a host: it serves while it leads, and ends when it is deposed."""

    def __init__(self, cluster: "Cluster", host: str) -> None:
        self.cluster = cluster
        self.host = host
        self.engine = MortalEngine(cluster.folder / host, LAYOUT, reserve_bytes=1 << 16, margin_bytes=0)
        self.engine.deadly, self.engine.odds = cluster.dice, cluster.odds
        self.engine.is_broken = host in cluster.broken
        self.engine.wait = lambda: cluster.flush(host)
        try:
            store = ReplicaStore.started(self.engine)
        except Killed:
            cluster.save(host)
            self.engine.close()
            raise
        self.links = MemoryLinks(cluster.network, host, self.engine)
        self.register = MemoryRegister(cluster.etcd, host)
        self.node = ReplicaNode(host, "shard-0", store, self.links, self.register, cluster.clock)
        self.node.on_leading = self._leading
        self.node.on_deposed = self._deposed
        self.node.on_resigning = self.answer
        self.traffic = Traffic(cluster.dice.randrange(1 << 30), cluster.bytes_max)
        self.is_over = False
        self.frozen_until = 0.0
        self.waiting: deque[tuple[int, int, list[Edit]]] = deque()

    def _leading(self, term: int, _: bool) -> None:
        assert self.node.leads == term
        self.cluster.terms.append((term, self.host))
        self.traffic.go_on(self.node.engine)

    def _deposed(self, _: int) -> None:
        self.is_over = True
        self.cluster.dropped += [index for _, index, _ in self.waiting if index <= self.node.released]
        self.waiting.clear()

    def serve(self) -> None:
        """Commit something, and answer what may be answered."""
        cluster, node = self.cluster, self.node
        node.turn(cluster.now)
        if self.is_over:
            return
        if node.takes_publishes and cluster.is_busy and cluster.dice.random() < cluster.rate:
            edits = self.traffic.commit()
            term = node.leads
            kept = [(number, key, None if value is None else bytes(value)) for number, key, value in edits]
            cluster.written.setdefault((term, node.index + 1), kept)
            node.engine.apply(iter(edits), size_of(edits))
            self.waiting.append((term, node.index, kept))
        self.answer()

    def answer(self) -> None:
        """Answer what may be answered."""
        cluster, node = self.cluster, self.node
        while self.waiting and self.waiting[0][1] <= node.released and node.may_answer(cluster.clock()):
            term, index, _ = self.waiting.popleft()
            cluster.answered.append((term, index))
            cluster.answered_at = cluster.now
            cluster.answers.setdefault(term, []).append(cluster.now)


class Cluster:
    """The hosts, what lies on their disks, and what the client knows.

    Attributes:
        broken: hosts whose disks take nothing, from the next start of a process on.
        odds: of being killed before a commit, and as many after it.
        rate: how many of the turns commit something.
        bytes_max: of a message, in processes that are started from now on.
        written: edits of each record, by term and index.
        answered: terms and indexes that a client was answered.
        answers: when a client was answered, by term.
        dropped: indexes that were released, and not answered when a term ended.
        terms: who led.
    """

    def __init__(self, folder: Path, seed: int, hosts: tuple[str, ...] = ("a", "b", "c"), **group: object) -> None:
        self.folder = folder
        self.dice = Random(seed)
        self.hosts = hosts
        self.now = 1000.0
        self.network = Network(self.dice)
        first = Group("i1", 0, "", hosts[:1], hosts, **group)  # type: ignore[arg-type]
        self.etcd = Etcd(self.dice, first, hosts)
        self.network.now = self.etcd.now = self.now
        self.odds = 0.0
        self.rate = 0.5
        self.bytes_max = 300
        self.is_busy = True
        self.broken: set[str] = set()
        self.written: dict[tuple[int, int], list[Edit]] = {}
        self.answered: list[tuple[int, int]] = []
        self.answered_at = self.now
        self.answers: dict[int, list[float]] = {}
        self.dropped: list[int] = []
        self._stalled_until: dict[str, float] = {}
        self._flushing: set[str] = set()
        self.terms: list[tuple[int, str]] = []
        self.processes: dict[str, Process] = {}
        for host in hosts:
            self.start(host)

    def clock(self) -> float:
        return self.now

    def start(self, host: str) -> None:
        for _ in range(10):
            try:
                self.processes[host] = Process(self, host)
            except Killed:
                self.restore(host)
            else:
                if self.note(host).is_complete:
                    self._check_rows(host)
                return

    def save(self, host: str) -> None:
        """Keep what is on a host's disk at this moment."""
        aside = self.folder / f"{host}.aside"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for file in ("data.mdb", "redo"):
            if (self.folder / host / file).exists():
                shutil.copy(self.folder / host / file, aside / file)

    def restore(self, host: str) -> None:
        shutil.rmtree(self.folder / host)
        (self.folder / f"{host}.aside").rename(self.folder / host)

    def kill(self, host: str) -> None:
        """What is on disk at this moment is left."""
        process = self.processes.pop(host)
        self.save(host)
        process.engine.odds = 0.0
        process.links.close()
        process.register.close()
        process.engine.close()
        self.restore(host)

    def wipe(self, host: str) -> None:
        """A host's disk is another one, which is empty."""
        self.kill(host)
        shutil.rmtree(self.folder / host)

    def fill(self, host: str, is_full: bool) -> None:
        """Leave a disk no room, or all it has."""
        self.processes[host].engine.space._margin_bytes = 1 << 50 if is_full else 0

    def freeze(self, host: str, seconds: float) -> None:
        self.processes[host].frozen_until = self.now + seconds

    def stall(self, host: str, seconds: float) -> None:
        """Have a disk take nothing for so long: the next commit on it waits."""
        self._stalled_until[host] = self.now + seconds

    def flush(self, host: str) -> None:
        """Return once a host's disk takes what is written to it; the other hosts go on meanwhile."""
        until = self._stalled_until.get(host, 0.0)
        self._flushing.add(host)
        while self.now < until:
            self.step()
        self._flushing.discard(host)

    def step(self) -> None:
        """One turn of each host that is up, in any order; those whose term ended start anew."""
        self.now += 0.001 + 0.008 * self.dice.random()
        self.network.now = self.etcd.now = self.now
        for host in self.dice.sample(self.hosts, len(self.hosts)):
            process = self.processes.get(host)
            if process is None or host in self._flushing or self.now < process.frozen_until:
                continue
            try:
                process.serve()
            except (Killed, StoreUnwritable):
                self.kill(host)
                self.start(host)
                continue
            if process.is_over:
                self.kill(host)
                self.start(host)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.step()

    def primary(self) -> Process:
        """Who leads, and may answer."""
        (found,) = [each for each in self.processes.values() if each.node.may_answer(self.now)]
        return found

    def settle(self, seconds: float = 20.0) -> None:
        """Until all replicas are in sync and hold the same; nothing new is taken in.

        Raises:
            AssertionError: they are not in time.
        """
        self.is_busy, self.odds = False, 0.0
        self.etcd.losses, self.etcd.away_until = 0.0, 0.0
        self.network.heal()
        for host in self.hosts:
            if host not in self.processes:
                self.start(host)
            self.processes[host].engine.odds = 0.0
        until = self.now + seconds
        while why := self._missing():
            assert self.now < until, why
            self.run(0.2)

    def _missing(self) -> str:
        group = self.etcd.group
        if set(group.in_sync) != set(group.replicas):
            return f"in sync are {group.in_sync} of {group.replicas}"
        places = {
            host: (self.processes[host].node.index, self.processes[host].node.released) for host in group.replicas
        }
        if any(index != released or index != places[group.primary][0] for index, released in places.values()):
            return f"records and releases: {places}"
        return "" if self.processes[group.primary].node.may_answer(self.now) else f"{group.primary} may not answer"

    def note(self, host: str) -> Note:
        return self.processes[host].node.store.note

    def check(self) -> None:
        """All replicas hold what the records of their history say; what was answered is among them."""
        group = self.etcd.group
        digests = {host: digest_of(self.processes[host].engine) for host in group.replicas}
        assert len(set(digests.values())) == 1, digests
        term_of = self._terms(group.primary)
        lost = [(term, index) for term, index in self.answered if term_of.get(index) != term]
        assert not lost, f"{len(lost)} records were answered, and are lost, such as {lost[:5]}"
        self._check_rows(group.primary)

    def _terms(self, host: str) -> dict[int, int]:
        """The terms of a replica's records, by index."""
        note = self.note(host)
        ends = [first - 1 for _, first in note.history[1:]] + [note.index]
        return {
            index: term
            for (term, first), end in zip(note.history, ends, strict=True)
            for index in range(first, end + 1)
        }

    def _check_rows(self, host: str) -> None:
        """A replica holds what the records of its note say."""
        rows: dict[tuple[int, bytes], bytes] = {}
        for place in sorted(self._terms(host).items()):
            for number, key, value in self.written.get(place[::-1], ()):
                if number in SPILLED_OUT:
                    continue
                if value is None:
                    rows.pop((number, key), None)
                else:
                    rows[number, key] = bytes(value)
        assert self.rows(host) == rows

    def rows(self, host: str) -> dict[tuple[int, bytes], bytes]:
        engine = self.processes[host].engine
        with closing(shared_rows(engine)) as found:
            return {(number, key): bytes(checked_value(engine, number, key, value)) for number, key, value in found}

    def close(self) -> None:
        for host in list(self.processes):
            self.kill(host)
