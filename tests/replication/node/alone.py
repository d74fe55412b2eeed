"""A group that has one replica, for stores that are a replica's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from shardmq.replication.core.group import Group
from shardmq.replication.node.node import ReplicaNode
from shardmq.replication.node.store import ReplicaStore
from shardmq.storage.engine import Layout
from tests.replication.node.network import MemoryLinks, Network
from tests.replication.node.register import Etcd, MemoryRegister


@contextmanager
def leading(folder: Path, layout: Layout) -> Iterator[ReplicaNode]:
    """A replica that leads, as long as the block runs. What its owner commits on `engine` is a record each."""
    dice, now = Random(1), 1000.0
    etcd = Etcd(dice, Group("i1", 0, "", ("a",), ("a",)), ("a",))
    store = ReplicaStore.open(folder, layout)
    links, register = MemoryLinks(Network(dice), "a", store.engine), MemoryRegister(etcd, "a")
    node = ReplicaNode("a", "shard-0", store, links, register, lambda: now)
    try:
        while not node.takes_proposals:
            now += 0.01
            etcd.now = now
            assert now < 1010.0, "it does not lead"
            node.turn(now)
        yield node
    finally:
        links.close()
        register.close()
        store.close()
