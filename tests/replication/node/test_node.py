"""A group of three nodes on real stores, with a network and a register that fail."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from shardmq.replication.core.note import BEGINNING
from shardmq.replication.etcd.values import Wish
from shardmq.replication.node import store
from shardmq.shards.storage.schema import INDEX, LAYOUT, PLACE, SEGMENTS, SPILLED, STATE
from shardmq.storage.checksums import sealed_row
from shardmq.storage.engine import Edit
from tests.replication.node.cluster import Cluster
from tests.replication.store.stores import room, size_of


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


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    """Three replicas in sync, of which `a` leads."""
    with closing(Cluster(folder, 3)) as cluster:
        until(cluster, lambda: len(cluster.etcd.group.in_sync) == 3)
        cluster.run(0.5)
        yield cluster


def until(cluster: Cluster, holds: Callable[[], object], seconds: float = 10.0) -> float:
    """Go on until something holds; returns how long that took."""
    began = cluster.now
    while not holds():
        assert cluster.now < began + seconds, cluster.etcd.changes
        cluster.step()
    return cluster.now - began


def follower(cluster: Cluster, host: str) -> dict[str, Any]:
    """What the primary says of a follower."""
    (found,) = [row for row in cluster.primary().node.followers.rows(cluster.now) if row["host"] == host]
    return found


def test_a_follower_that_is_frozen_briefly_stays_and_one_for_good_stalls_nobody_for_long(cluster: Cluster) -> None:
    cluster.freeze("b", 0.5)
    cluster.run(2)
    assert len(cluster.etcd.group.in_sync) == 3
    assert follower(cluster, "b")["state"] == "in sync"
    assert follower(cluster, "b")["seconds"] == 0
    cluster.freeze("b", 30)
    cluster.run(0.3)
    behind = follower(cluster, "b")
    assert (behind["state"], behind["seconds"]) in (("in sync", 0.1), ("in sync", 0.2), ("in sync", 0.3))
    assert behind["records"] > 5
    stalled = cluster.answered_at
    until(cluster, lambda: cluster.answered_at > stalled)
    assert cluster.answered_at - stalled < 1.5
    assert cluster.etcd.group.in_sync == ("a", "c")
    more = follower(cluster, "b")
    assert more["state"] == "away"
    assert more["records"] > behind["records"]
    assert more["seconds"] > 0.7
    assert more["silent_seconds"] >= 1
    cluster.processes["b"].frozen_until = 0.0
    until(cluster, lambda: len(cluster.etcd.group.in_sync) == 3)
    assert cluster.terms == [(1, "a")]
    cluster.settle()
    cluster.check()


def test_a_follower_whose_disk_is_full_is_left_out_until_there_is_room(folder: Path) -> None:
    with closing(Cluster(folder, 4)) as cluster:
        cluster.processes["a"].traffic.bytes_max = 200_000
        cluster.rate = 0.2
        until(cluster, lambda: len(cluster.etcd.group.in_sync) == 3)
        cluster.fill("b", True)
        until(cluster, lambda: "b" not in cluster.etcd.group.in_sync)
        before = cluster.answered_at
        cluster.run(1)
        assert cluster.answered_at > before + 0.8
        cluster.kill("a")
        until(cluster, lambda: len(cluster.terms) > 1)
        assert cluster.terms[-1][1] == "c"
        cluster.run(1)
        cluster.fill("b", False)
        cluster.start("a")
        until(cluster, lambda: len(cluster.etcd.group.in_sync) == 3)
        cluster.settle()
        cluster.check()


def test_an_empty_store_joins_under_load_and_goes_on_where_it_was_after_a_restart(cluster: Cluster) -> None:
    cluster.kill("c")
    engine = cluster.processes["a"].node.engine
    for number in range(60):
        key = PLACE.pack(7, number)
        body = cluster.dice.randbytes(100_000)
        edits: list[Edit] = [(SEGMENTS, key, sealed_row(SEGMENTS, key, body)), (INDEX, key, b"i")]
        cluster.written[1, cluster.processes["a"].node.index + 1] = edits
        engine.apply(edits, size_of(edits))
    until(cluster, lambda: "c" not in cluster.etcd.group.in_sync)
    shutil.rmtree(cluster.folder / "c")
    cluster.start("c")
    percents = []
    while (cluster.note("c").copied or BEGINNING) <= (SEGMENTS, PLACE.pack(7, 0)):
        cluster.run(0.01)
        percents.append(follower(cluster, "c")["joined_percent"] or 0)
    assert 0 < percents[-1] < 60
    assert percents == sorted(percents)
    copied = cluster.note("c").copied
    cluster.kill("c")
    cluster.start("c")
    assert cluster.note("c").copied == copied
    carried = cluster.network.bytes
    began = cluster.now
    joins = {"state": "joining", "joined_percent": None}  # it went on from a join of before
    until(cluster, lambda: follower(cluster, "c").items() >= joins.items())
    assert not cluster.note("c").is_complete
    until(cluster, lambda: cluster.note("c").is_complete)
    assert cluster.network.bytes - carried < 7_000_000
    assert cluster.now - began < 5
    assert cluster.answered_at > began
    cluster.settle()
    cluster.check()


def test_what_a_killed_primary_had_alone_is_taken_back_as_a_few_rows(cluster: Cluster) -> None:
    cluster.network.slow = {("a", "b"): 5.0, ("a", "c"): 5.0}
    cluster.run(0.3)
    ahead = cluster.processes["a"].node.index
    cluster.kill("a")
    cluster.network.heal()
    until(cluster, lambda: len(cluster.terms) == 2, 5)
    assert cluster.processes[cluster.terms[-1][1]].node.index < ahead
    cluster.run(0.5)
    carried = cluster.network.bytes
    cluster.start("a")
    cluster.is_busy = False
    took = until(cluster, lambda: "a" in cluster.etcd.group.in_sync)
    assert took < 2
    assert cluster.network.bytes - carried < 100_000
    cluster.settle()
    cluster.check()


def test_a_transfer_as_wished_loses_nothing_and_takes_a_moment(cluster: Cluster) -> None:
    cluster.etcd.want(Wish(1, "c"))
    until(cluster, lambda: (2, "c") in cluster.terms, 2)
    assert cluster.now - cluster.answered_at < 0.2
    cluster.run(1)
    cluster.etcd.want(Wish(2, "b"))
    cluster.kill("b")
    cluster.run(3)
    assert cluster.etcd.group.primary == "c"
    cluster.settle()
    cluster.check()


def test_what_is_released_in_the_turn_that_hands_over_is_answered_before(cluster: Cluster) -> None:
    cluster.rate = 1.0
    for term, (host, heir) in enumerate((("a", "b"), ("b", "c"), ("c", "a")), 1):
        cluster.etcd.want(Wish(term, heir))
        node = cluster.processes[host].node
        until(cluster, lambda node=node: not node.takes_proposals)  # type: ignore[misc]
        assert cluster.processes[host].waiting
        cluster.freeze(host, 0.1)
        until(cluster, lambda new=(term + 1, heir): new in cluster.terms)  # type: ignore[misc]
        led = cluster.now
        until(cluster, lambda led=led: cluster.answered_at > led)  # type: ignore[misc]
    assert not cluster.dropped
    cluster.settle()
    cluster.check()


def test_the_clock_of_the_group_goes_on_under_another_primary(cluster: Cluster) -> None:
    at, clock = cluster.now, cluster.primary().node.group_clock()
    cluster.kill("a")
    until(cluster, lambda: len(cluster.terms) == 2)
    passed = cluster.processes[cluster.terms[-1][1]].node.group_clock() - clock
    assert passed == pytest.approx(cluster.now - at, abs=0.1)


def test_an_unclean_election_is_carried_out_as_wished_and_the_others_follow(cluster: Cluster) -> None:
    cluster.kill("b")
    cluster.kill("c")
    until(cluster, lambda: cluster.etcd.group.in_sync == ("a",))
    cluster.run(1)
    cluster.wipe("a")
    cluster.start("b")
    cluster.run(3)
    assert cluster.etcd.group.primary == "a"
    cluster.etcd.want(Wish(1, "b", unclean="i2"))
    until(cluster, lambda: (2, "b") in cluster.terms)
    assert (cluster.etcd.group.incarnation, cluster.etcd.group.in_sync) == ("i2", ("b",))
    for host in "ac":
        cluster.start(host)
    cluster.answered.clear()
    cluster.settle()
    cluster.check()


def test_a_tail_that_is_too_much_for_one_message_is_a_join(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ANSWER_BYTES_MAX", 1000)
    cluster.kill("c")
    until(cluster, lambda: "c" not in cluster.etcd.group.in_sync)
    cluster.run(1)
    cluster.start("c")
    until(cluster, lambda: not cluster.note("c").is_complete)
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("is_wiped", [True, False], ids=["a join", "a rejoin"])
def test_a_damaged_row_is_sent_to_nobody_and_the_others_go_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, is_wiped: bool
) -> None:
    if is_wiped:
        cluster.wipe("c")
    else:
        cluster.kill("c")
    until(cluster, lambda: "c" not in cluster.etcd.group.in_sync)
    process = cluster.processes["a"]
    key = PLACE.pack(7, 1)
    process.node.engine.apply([(SEGMENTS, key, sealed_row(SEGMENTS, key, bytes(9000))), (INDEX, key, b"i")])
    process.engine.sync()
    with process.engine.environment.env.begin(write=True) as transaction:
        transaction.put(key, bytes(9008), db=process.engine.environment.dbs[LAYOUT.databases[SEGMENTS]])
    cluster.start("c")
    before = cluster.answered_at
    cluster.run(3)
    assert cluster.answered_at > before + 2
    assert cluster.etcd.group.in_sync == ("a", "b")
    assert cluster.note("c").is_complete is not is_wiped
    assert "another replica cannot be brought up to date" in caplog.text
    assert cluster.processes["c"].engine.get(SEGMENTS, key) is None


def test_edits_that_are_not_shared_make_no_record_and_stay_here(cluster: Cluster) -> None:
    cluster.is_busy = False
    node = cluster.primary().node
    index = node.index
    node.engine.apply([], 0)
    node.engine.apply([(SPILLED, b"k", b"v"), (SPILLED, b"other", b"v")], 9)
    assert node.index == index
    cluster.written[1, index + 1] = [(STATE, b"k", b"v")]
    node.engine.apply([(SPILLED, b"k", None), (STATE, b"k", b"v")], 9)
    assert node.index == index + 1
    cluster.settle()
    cluster.check()
    found = [[process.engine.get(SPILLED, key) for key in (b"k", b"other")] for process in cluster.processes.values()]
    assert [[value is not None for value in values] for values in found] == [[False, True], [False] * 2, [False] * 2]


def test_a_large_commit_goes_once_to_each_and_its_body_may_change_while_it_is_taken(cluster: Cluster) -> None:
    cluster.is_busy = False
    cluster.run(0.5)
    value, carried = bytearray(2 << 20), cluster.network.bytes
    node = cluster.primary().node

    def edits() -> Iterator[Edit]:
        for number in range(3):
            value[:2] = b"%02d" % number
            yield STATE, b"%d" % number, value

    bodies = [b"%02d" % number + bytes(len(value) - 2) for number in range(3)]
    cluster.written[1, node.index + 1] = [(STATE, b"%d" % number, body) for number, body in enumerate(bodies)]
    node.engine.apply(edits(), 3 * len(value))
    cluster.settle()
    assert cluster.network.bytes - carried < 2 * 3 * len(value) + 100_000
    cluster.check()


def test_with_too_few_in_sync_nothing_new_is_taken_in(folder: Path) -> None:
    with closing(Cluster(folder, 5, min_in_sync=2)) as cluster:
        until(cluster, lambda: len(cluster.etcd.group.in_sync) == 3)
        cluster.kill("b")
        cluster.kill("c")
        node = cluster.processes["a"].node
        until(cluster, lambda: not node.takes_publishes)
        assert (node.takes_proposals, cluster.etcd.group.in_sync) == (True, ("a",))
        cluster.start("b")
        until(cluster, lambda: node.takes_publishes)
        cluster.settle()
        cluster.check()


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_process_that_ends_as_planned_holds_up_nobody(cluster: Cluster, host: str) -> None:
    began, process = cluster.now, cluster.processes[host]
    process.node.leave()
    until(cluster, lambda: process.node.has_left, 1)
    assert host not in cluster.etcd.group.in_sync
    if cluster.processes[host] is process:
        cluster.kill(host)
    left = cluster.now
    until(cluster, lambda: cluster.answered_at > left, 2)
    assert cluster.now - began < 0.6
    assert cluster.terms[1:] == ([(2, "b")] if host == "a" else [])
    cluster.settle()
    cluster.check()


@pytest.mark.parametrize("host", ["a", "b"])
def test_a_disk_that_takes_nothing_ends_the_process_and_another_leads(cluster: Cluster, host: str) -> None:
    began = cluster.now
    cluster.broken.add(host)
    cluster.processes[host].engine.is_broken = True
    until(cluster, lambda: host not in cluster.etcd.group.in_sync)
    until(cluster, lambda: cluster.answered_at > began + 0.5)
    assert cluster.now - began < 6
    cluster.broken.clear()
    cluster.processes[host].engine.is_broken = False
    cluster.settle()
    cluster.check()
