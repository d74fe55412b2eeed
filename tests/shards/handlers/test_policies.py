"""Policies at a shard: what was taken in of them is on disk, and what may have changed since is asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.shards.state.hosted_queue import until_told
from shardmq.topology.entities import Queue
from tests.shards.clocked import LONG_MS, Clocked
from tests.shards.driver import run_of

PLAIN = Queue("/", "q", 1, 0)
SHORT = Queue("/", "q", 1, 0, policy={"x-max-length": 3})
BRIEF = Queue("/", "q", 1, 0, policy={"x-message-ttl": LONG_MS})
PLAIN_OF_FIVE = Queue("/", "q", 1, 0, arguments={"x-max-length": 5})
OWN = Queue("/", "q", 1, 0, arguments={"x-max-length": 5}, policy={"x-max-length": 3})


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    yield shard
    shard.close()


def fill(shard: Clocked) -> None:
    """Ten messages of which nine are with a consumer."""
    shard.take_in(run_of(0, 10))
    for _ in range(9):
        assert shard.get() is not None


@pytest.mark.parametrize("dirty", [False, True])
def test_a_policy_that_ended_while_the_shard_was_away_takes_nothing_away(shard: Clocked, dirty: bool) -> None:
    shard.assign(PLAIN)
    fill(shard)
    shard.assign(SHORT)
    (shard.restart if dirty else shard.stop)()
    assert shard.table()["ready"] == 10, "the coordinator has not said yet that it holds"
    shard.assign(PLAIN)
    assert shard.bodies() == list(range(10))
    shard.restart()
    assert shard.loop._state.queues[1].queue.declared == PLAIN


def test_a_policy_holds_again_as_soon_as_the_coordinator_says_so(shard: Clocked) -> None:
    shard.assign(PLAIN)
    fill(shard)
    shard.assign(SHORT)
    shard.restart()
    shard.assign(SHORT)
    assert shard.bodies() == [7, 8, 9]


def test_a_time_to_live_of_a_policy_waits_for_the_coordinator(shard: Clocked) -> None:
    shard.assign(BRIEF)
    shard.take_in(run_of(0, 10))
    offset_ns = shard.loop._state.clock._offset_ns + 2 * LONG_MS * 10**6
    shard.stop()
    shard.loop._state.clock._offset_ns = shard._offset_ns = offset_ns
    shard.tell()
    assert shard.bodies() == list(range(10))
    shard.assign(BRIEF)
    shard.tell()
    assert shard.bodies() == []


def test_a_limit_that_a_queue_was_declared_with_needs_no_word_of_the_coordinator(shard: Clocked) -> None:
    shard.assign(PLAIN_OF_FIVE)
    shard.take_in(run_of(0, 5))
    assert [got.first for got in [shard.get() for _ in range(5)] if got is not None] == list(range(5))
    shard.take_in(run_of(5, 5))
    shard.assign(OWN)
    assert shard.bodies() == [7, 8, 9]
    shard.restart()
    assert shard.bodies() == [3, 4, 7, 8, 9]
    shard.assign(OWN)
    assert shard.bodies() == [7, 8, 9]


def test_a_stream_keeps_what_a_policy_had_it_keep_until_the_coordinator_says_what_holds() -> None:
    short, long = {"x-queue-type": "stream", "x-max-age": "1s"}, {"x-max-age": "1D"}
    assert not until_told(Queue("/", "s", 2, 0, arguments=short, policy=long)).effective["x-max-age"]
