"""A primary whose disk stalls: its loop stands in the flush, and the others hear no beats."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.replication.node.cluster import Cluster
from tests.replication.store.stores import room

LED_SECONDS = 3.0


@pytest.fixture(params=range(3))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three replicas in sync, of which `a` leads, and a client that publishes."""
    with room() as folder, closing(Cluster(folder, request.param)) as cluster:
        cluster.run(4)
        assert (len(cluster.etcd.group.in_sync), cluster.terms) == (3, [(1, "a")])
        yield cluster


def stall(cluster: Cluster, seconds: float) -> float:
    """Stall the disk of the primary, and return when that was; the others have gone on since."""
    began = cluster.now
    cluster.stall("a", seconds)
    while cluster.now < began + seconds:
        cluster.step()
    return began


def test_a_primary_whose_disk_stalls_is_replaced_and_publishing_goes_on(cluster: Cluster) -> None:
    deposed = cluster.processes["a"]
    began = stall(cluster, 6)
    assert [host for _, host in cluster.terms] in (["a", "b"], ["a", "c"])
    assert cluster.answers[2][0] < began + LED_SECONDS
    assert cluster.answers[2][-1] > began + 5.9
    cluster.run(1)
    assert deposed.is_over
    assert cluster.answers[1][-1] < began + 0.1
    cluster.settle()
    cluster.check()


def test_who_wakes_up_in_a_stalled_flush_answers_nothing_though_all_have_it_and_nobody_told_it(
    cluster: Cluster,
) -> None:
    """Acknowledgements are there when it wakes up, and it has not heard of the other primary."""
    cluster.etcd.late["a"] = 60.0
    for host in "bc":
        cluster.network.slow[host, "a"] = 3.0  # later than the flush: what the next primary says; before: the rest
    began = stall(cluster, 4)
    woken = cluster.processes["a"]
    cluster.run(0.5)
    assert woken.node.leads == 1
    assert cluster.answers[1][-1] < began + 0.1 < cluster.answers[2][0] < began + LED_SECONDS
    assert woken.waiting[0][1] <= woken.node.released, "it knows that all have what it wrote"
    cluster.etcd.late.clear()
    cluster.run(2)
    assert woken.is_over
    cluster.settle()
    cluster.check()


def test_a_disk_that_stalls_for_less_than_the_lease_costs_no_lead(cluster: Cluster) -> None:
    began = stall(cluster, 0.7)
    cluster.run(1)
    assert cluster.terms == [(1, "a")]
    assert cluster.answers[1][-1] > began + 1.5
    cluster.settle()
    cluster.check()
