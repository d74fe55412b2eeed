"""The format of replicas' stores rises when etcd says so: while clients publish, and whoever hears of it late."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shardmq.errors import StoreRefused
from shardmq.replication.node import format
from shardmq.storage import lmdb_environment
from shardmq.storage.versions import VERSION
from tests.replication.node.cluster import Cluster
from tests.replication.store.stores import room

NEXT = 16
"""As the next format could be."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with room() as made:
        yield made


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """This shardmq writes the next format, too."""
    monkeypatch.setattr(format, "VERSION", NEXT)
    monkeypatch.setitem(lmdb_environment._VERSIONS, b"%d" % NEXT, NEXT)


def formats(cluster: Cluster) -> set[int]:
    return {process.engine.version for process in cluster.processes.values()}


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("seed", range(3))
def test_stores_rise_and_those_that_were_killed_before_they_heard_of_it_rise_when_they_start(
    folder: Path, seed: int
) -> None:
    with closing(Cluster(folder, seed)) as cluster:
        cluster.run(2)
        assert formats(cluster) == {VERSION}
        answered = len(cluster.answered)
        late, other = cluster.dice.sample(cluster.hosts, 2)
        cluster.etcd.late[late] = 1.0
        cluster.network.cut |= {(source, late) for source in cluster.hosts}
        cluster.etcd.have_format(NEXT)
        cluster.run(0.5)
        assert formats(cluster) == {VERSION, NEXT}
        cluster.kill(late)
        cluster.network.heal()
        cluster.run(0.5)
        cluster.start(late)
        cluster.run(5)
        cluster.kill(other)
        cluster.start(other)
        assert cluster.processes[other].engine.version == NEXT, "it is on its disk"
        cluster.settle()
        cluster.check()
        assert formats(cluster) == {cluster.primary().node.engine.version} == {NEXT}
        assert len(cluster.answered) > answered


@pytest.mark.usefixtures("next_version")
@pytest.mark.parametrize("seed", range(3))
def test_a_store_rises_before_it_has_rows_of_others_that_have_risen_though_its_host_does_not_reach_etcd(
    folder: Path, seed: int
) -> None:
    with closing(Cluster(folder, seed)) as cluster:
        cluster.run(2)
        primary = cluster.primary()
        for host in {*cluster.hosts} - {primary.host}:
            cluster.etcd.late[host] = 1000.0
        cluster.etcd.have_format(NEXT)
        while primary.engine.version == VERSION:
            cluster.step()
        first = primary.node.index + 1
        cluster.run(0.5)
        for host, process in cluster.processes.items():
            assert process.node.index > first, f"{host} has what was written since"
        assert formats(cluster) == {NEXT}
        cluster.settle()
        cluster.check()


@pytest.mark.usefixtures("next_version")
def test_no_store_goes_back(folder: Path) -> None:
    with closing(Cluster(folder, 7)) as cluster:
        cluster.etcd.have_format(NEXT)
        cluster.run(2)
        cluster.etcd.have_format(VERSION)
        cluster.run(2)
        assert formats(cluster) == {NEXT}


def test_a_replica_whose_shardmq_does_not_write_the_format_ends_and_says_why(folder: Path) -> None:
    with closing(Cluster(folder, 8)) as cluster:
        cluster.run(1)
        cluster.etcd.have_format(NEXT)
        with pytest.raises(StoreRefused, match=f"stores have format {NEXT}, and this shardmq writes {VERSION} at most"):
            cluster.run(1)
        assert formats(cluster) == {VERSION}
