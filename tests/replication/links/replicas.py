"""Replicas that do nothing but talk."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shardmq.bus.curve import CurveKeys
from shardmq.bus.poller import Poller, context
from shardmq.replication.core.events import LinkLost, Received
from shardmq.replication.core.messages import Message
from shardmq.replication.links.peers import PeerLinks
from shardmq.shards.storage.schema import LAYOUT
from shardmq.storage.memory_engine import MemoryEngine

SECONDS = 20.0
INSECURE = CurveKeys(is_insecure=True)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


class Replica:
    """One replica, with a process's context of its own."""

    def __init__(self, host: str, address: str, group: str, security: CurveKeys, broker: str) -> None:
        self.host = host
        self.address = address
        self.context = context(security)
        self.engine = MemoryEngine(LAYOUT)
        self.links = PeerLinks(self.context, group, host, address, self.engine, broker)
        self.events: list[Received | LinkLost] = []
        self._poller = Poller(self.links.sources)
        self._generation = self.links.generation

    @property
    def heard(self) -> list[Message]:
        return [event.message for event in self.events if isinstance(event, Received)]

    @property
    def lost(self) -> list[str]:
        return [event.peer for event in self.events if isinstance(event, LinkLost)]

    def turn(self, seconds: float = 0.002) -> None:
        """What a loop does in a pass."""
        self.events += self.links.tick(time.monotonic())
        self.links.flush()
        if self._generation != self.links.generation:
            self._generation = self.links.generation
            self._poller = Poller(self.links.sources)
        if not self.links.more:
            self._poller.wait(seconds)
        self.events += self.links.receive()
        self.links.flush()

    def close(self) -> None:
        self.links.close()
        self.context.term()


class Group:
    """Replicas of one group, or of what should be one."""

    def __init__(self) -> None:
        self.replicas: dict[str, Replica] = {}

    def add(
        self,
        host: str,
        security: CurveKeys = INSECURE,
        group: str = "shard-0",
        broker: str = "f00d",
        address: str = "",
    ) -> Replica:
        replica = self.replicas[host] = Replica(host, address or free_address(), group, security, broker)
        return replica

    def introduce(self) -> None:
        """Tell all of them where all are."""
        for replica in self.replicas.values():
            replica.links.set_peers({host: other.address for host, other in self.replicas.items()})

    def until(self, holds: Callable[[], Any], *, but: str = "") -> None:
        """Turn all but one until something holds."""
        deadline = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < deadline, {host: each.events for host, each in self.replicas.items()}
            for host, replica in self.replicas.items():
                if host != but:
                    replica.turn()

    def say(self, sender: str, to: str, message: Message) -> None:
        """Say something once somebody is there to hear it, and wait until that is heard."""
        source, target = self.replicas[sender], self.replicas[to]
        self.until(lambda: to in source.links.connected)
        before = len(target.heard)
        source.links.send(to, message)
        self.until(lambda: len(target.heard) > before)
        assert target.heard[before:] == [message]

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.close()


@contextmanager
def group() -> Iterator[Group]:
    group = Group()
    try:
        yield group
    finally:
        group.close()
