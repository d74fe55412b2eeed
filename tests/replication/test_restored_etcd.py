"""etcd is restored from a snapshot, with all hosts stopped: terms that it has forgotten are led again."""

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


def test_replicas_that_wrote_under_two_primaries_of_one_term_hold_the_same_in_the_end(folder: Path) -> None:
    """What the forgotten primary confirmed is lost, as the documents say; it is not mixed with what came later."""
    with closing(Cluster(folder, 5)) as cluster:
        cluster.run(0.3)
        cluster.settle()
        snapshot = next(group for group in cluster.etcd.changes if group.term == 1)
        assert (snapshot.primary, snapshot.in_sync) == ("a", ("a",))
        cluster.kill("a")
        cluster.is_busy = True
        cluster.run(4)
        assert cluster.terms[1:] == [(2, cluster.etcd.group.primary)]
        forgotten = [index for term, index in cluster.answered if term == 2]
        assert len(forgotten) > 100

        for host in ("b", "c"):
            cluster.kill(host)
        cluster.etcd.restore(snapshot)
        before = cluster.written
        cluster.written = {place: edits for place, edits in before.items() if place[0] < 2}
        cluster.start("a")
        cluster.run(4)
        assert cluster.terms[2:] == [(2, "a")], "the term is led a second time"
        assert cluster.note("a").history == ((1, 1), (2, forgotten[0] - 1))

        since, cluster.written = cluster.written, before
        for host in ("b", "c"):
            cluster.start(host)
        cluster.written = since
        cluster.settle()
        cluster.answered = [(term, index) for term, index in cluster.answered if index not in forgotten]
        cluster.check()
