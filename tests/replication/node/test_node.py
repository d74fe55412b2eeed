"""A group of three nodes on real stores, with a network and a register that fail."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.replication.node.cluster import Cluster
from tests.replication.store.stores import room


@pytest.fixture
def folder() -> Iterator[Path]:
    with room() as made:
        yield made


def test_a_new_group_begins_with_its_first_replica_and_the_others_join(folder: Path) -> None:
    with closing(Cluster(folder, 1)) as cluster:
        cluster.run(3)
        assert cluster.terms == [(1, "a")]
        assert set(cluster.etcd.group.in_sync) == {"a", "b", "c"}
        assert len(cluster.answered) > 100
        cluster.settle()
        cluster.check()


@pytest.mark.parametrize("seed", range(4))
def test_faults_at_any_step_lose_nothing_that_was_answered(folder: Path, seed: int) -> None:
    with closing(Cluster(folder, seed)) as cluster:
        cluster.run(2)
        for _ in range(10):
            fault(cluster)
            cluster.run(0.2 + 2.5 * cluster.dice.random())
        cluster.settle()
        cluster.check()


def fault(cluster: Cluster) -> None:
    """One of what happens to hosts."""
    dice = cluster.dice
    host, other = dice.sample(cluster.hosts, 2)
    cluster.odds = dice.choice((0.0, 0.0, 0.002, 0.02))
    for process in cluster.processes.values():
        process.engine.odds = cluster.odds
    match dice.randrange(8):
        case 0:
            cluster.kill(host)
            cluster.start(host)
        case 1:
            cluster.freeze(host, 3 * dice.random())
        case 2:
            cluster.network.cut.add((host, other))
        case 3:
            cluster.network.lose(host, other)
        case 4:
            cluster.network.slow[host, other] = 0.2 * dice.random()
        case 5:
            cluster.etcd.away_until = cluster.now + 3 * dice.random()
            cluster.etcd.losses = dice.random()
        case 6:
            cluster.network.heal()
        case 7:
            group = cluster.etcd.group
            if host not in group.in_sync:
                cluster.wipe(host)
                cluster.start(host)
