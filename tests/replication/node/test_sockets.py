"""Three nodes with their real neighbours: sockets with keys, stores on disk, etcd."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardmq.bus.curve import CurveKeys, create_pair, process_name
from shardmq.bus.poller import Poller, context
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import GROUPS, WISHES, Host, Wish
from shardmq.replication.links.peers import PeerLinks
from shardmq.replication.node.node import ReplicaNode
from shardmq.replication.node.store import ReplicaStore
from shardmq.runtime.clock import boottime
from shardmq.shards.storage.schema import LAYOUT
from tests.hosts.members import Etcd
from tests.replication.digest import digest_of
from tests.replication.links.replicas import free_address
from tests.replication.store.stores import Traffic, room, size_of

GROUP = "shard-0"
SECONDS = 20.0


class Running:
    """A node on its own context, as a process has it."""

    def __init__(self, host: str, folder: Path, keys: Path, address: str, url: str) -> None:
        self.context = context(CurveKeys(keys, process_name(host, GROUP)))
        self.store = ReplicaStore.open(folder / host, LAYOUT)
        links = PeerLinks(self.context, GROUP, host, address, self.store.engine, "f00d")
        self.node = ReplicaNode(
            host, GROUP, self.store, links, BackgroundRegister(parse(url), f"{host}{time.time_ns()}")
        )
        self.node.on_leading = lambda _term, _is_sure: self.traffic.go_on(self.node.engine)
        self.node.on_deposed = lambda _: self.waiting.clear()
        self.traffic = Traffic(1)
        self.waiting: list[tuple[int, bytes]] = []
        self.answered: list[bytes] = []
        self._poller = Poller(self.node.sources)
        self._generation = self.node.generation

    def pass_(self, is_busy: bool) -> None:
        """What a loop does in a pass."""
        node = self.node
        if node.generation != self._generation:
            self._generation, self._poller = node.generation, Poller(node.sources)
        self._poller.wait(min(0.001, node.wait_seconds()))
        node.turn(boottime())
        if is_busy and node.takes_publishes and len(self.waiting) < 20:
            edits = self.traffic.commit()
            node.engine.apply(iter(edits), size_of(edits))
            self.waiting.append((node.index, self.traffic.there[-1] if self.traffic.there else b""))
        while self.waiting and self.waiting[0][0] <= node.released and node.may_answer(boottime()):
            self.answered.append(self.waiting.pop(0)[1])

    def close(self) -> None:
        self.node.close()
        self.context.term()


class Hosts:
    """The three of them, one after the other in one thread."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.addresses = {host: free_address() for host in "abc"}
        self.running: dict[str, Running] = {}
        self.register = BackgroundRegister(parse(url), f"t{time.time_ns()}")
        for host, address in self.addresses.items():
            create_pair(folder / "keys", process_name(host, GROUP))
            self.register.put_host(host, Host("s", {f"{GROUP}/replica": address}))
        self.register.create(GROUPS, GROUP, Group("i1", 0, "", ("a",), ("a", "b", "c")))
        for host in "abc":
            self.start(host)

    def start(self, host: str) -> None:
        self.running[host] = Running(host, self.folder, self.folder / "keys", self.addresses[host], self.url)

    def stop(self, host: str) -> None:
        self.running.pop(host).close()

    def until(self, holds: Callable[[], object], is_busy: bool = True) -> float:
        began = time.monotonic()
        while not holds():
            assert time.monotonic() - began < SECONDS, {
                h: (r.node.index, r.node.group) for h, r in self.running.items()
            }
            for running in self.running.values():
                running.pass_(is_busy)
        return time.monotonic() - began

    @property
    def leaders(self) -> list[str]:
        return [host for host, running in self.running.items() if running.node.may_answer(boottime())]

    def is_whole(self) -> bool:
        nodes = [running.node for running in self.running.values()]
        groups = [node.group for node in nodes]
        is_in_sync = all(group is not None and set(group.in_sync) == {*"abc"} for group in groups)
        return is_in_sync and len({node.index for node in nodes} | {node.released for node in nodes}) == 1

    def close(self) -> None:
        for host in list(self.running):
            self.stop(host)
        self.register.close()


@pytest.fixture
def hosts(etcd: Etcd) -> Iterator[Hosts]:
    with ExitStack() as stack:
        folder = stack.enter_context(room())
        hosts = Hosts(folder, f"{etcd.url}/n{time.time_ns()}")
        stack.callback(hosts.close)
        yield hosts


def test_a_group_forms_fails_over_and_hands_over_as_wished(hosts: Hosts) -> None:
    hosts.until(hosts.is_whole, is_busy=False)
    assert hosts.leaders == ["a"]
    a = hosts.running["a"]
    hosts.until(lambda: len(a.answered) > 100)
    hosts.stop("a")
    away = hosts.until(lambda: hosts.leaders)
    assert 0.5 < away < 4.0
    (second,) = hosts.leaders
    hosts.until(lambda: len(hosts.running[second].answered) > 100)
    hosts.start("a")
    hosts.until(hosts.is_whole, is_busy=False)
    group = hosts.running[second].node.group
    assert group is not None
    hosts.register.create(WISHES, GROUP, Wish(group.term, "a"))
    hosts.until(lambda: hosts.leaders == ["a"])
    hosts.until(hosts.is_whole, is_busy=False)
    assert len({digest_of(running.store.engine) for running in hosts.running.values()}) == 1
    assert hosts.running["a"].node.group_clock() == pytest.approx(time.time(), abs=5)
