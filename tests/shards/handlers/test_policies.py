"""Policies at a shard: what was taken in of them is on disk, and what may have changed since is asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.shard import AssignQueue
from shardmq.shards.handlers import queues
from shardmq.shards.queues import length_limit
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.state import sliced_work
from shardmq.shards.state.hosted_queue import until_told
from shardmq.shards.storage.store import Store
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


HEAVY = replace(PLAIN, policy={"x-max-length-bytes": 100})


@pytest.fixture
def backlog(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> Clocked:
    """A shard with thirty segments on its disk, of which a pass reads two."""
    shard.assign(PLAIN)
    for number in range(30):
        shard.take_in(run_of(10 * number, 10))
    shard.restart()
    size = shard.table()["bytes"] // 15
    monkeypatch.setattr(queues, "SLICE_BYTES", size)
    monkeypatch.setattr(length_limit, "_WHOLE_BYTES", 50)
    monkeypatch.setattr(sliced_work, "SLICE_BYTES", size)
    return shard


def test_a_limit_of_bytes_is_taken_in_step_by_step_and_counts_exactly(
    backlog: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Any] = []
    read = Store.read
    monkeypatch.setattr(Store, "read", lambda store, *given: reads.append(given) or read(store, *given))
    backlog.send(Call(7, AssignQueue([HEAVY])))
    passes = backlog.passes
    backlog.turn()
    backlog.take_in(run_of(300, 10))
    assert backlog.table()["ready"] == 310, "it is not weighed yet, and others have their turns"
    backlog.expect(Answer, lambda answer: answer.request == 7)
    assert backlog.passes - passes > 10
    assert len(reads) <= 32, "what goes is not read once more"
    assert backlog.bodies() == list(range(277, 310)), "33 messages of 3 bytes"
    queue = backlog.loop._state.queues[1].queue
    assert isinstance(queue, ConfiguredQueue)
    assert queue._length_limit is not None
    assert queue._length_limit.bytes == 99
    backlog.restart()
    assert backlog.bodies() == list(range(277, 310))


def test_what_is_said_while_a_queue_is_weighed_holds(backlog: Clocked) -> None:
    backlog.send(Call(7, AssignQueue([HEAVY])))
    backlog.turn()
    backlog.send(Call(8, AssignQueue([PLAIN])))
    for request in (7, 8):
        backlog.expect(Answer, lambda answer, request=request: answer.request == request)
    assert backlog.table()["ready"] == 300
    assert backlog.loop._state.queues[1].queue.declared == PLAIN
