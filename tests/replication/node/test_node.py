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
