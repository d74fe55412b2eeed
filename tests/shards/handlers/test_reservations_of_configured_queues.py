"""Reservations of messages that expire, count towards a length limit, or are in queues that expire."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.shard import (
    Nack,
    Publish,
)
from tests.shards.clocked import Clocked
from tests.shards.driver import run_of
from tests.shards.handlers.test_reservations import QUEUES


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def test_a_length_limit_does_not_count_what_is_reserved(shard: Clocked) -> None:
    shard.take_in(run_of(0, 3), queue=4)
    shard.reserve("night", queue=4)
    shard.take_in(run_of(3, 3), queue=4)
    assert shard.bodies(queue=4) == [3, 4, 5]
    shard.restart()
    assert (shard.bodies("night", 4), shard.bodies(queue=4)) == ([0, 1, 2], [3, 4, 5])
    assert shard.release("night", 4) == 3
    assert shard.bodies(queue=4) == [3, 4, 5]
    assert shard.table(4)["dropped"] == 3


def test_bytes_are_free_while_they_are_reserved(shard: Clocked) -> None:
    shard.take_in(run_of(0, 3), queue=5)
    assert len(shard.publish(Publish((5,), run_of(3, 1)))) == 1
    shard.reserve("night", queue=5)
    shard.take_in(run_of(4, 2), queue=5)
    assert shard.release("night", 5) == 3
    assert len(shard.publish(Publish((5,), run_of(6, 1)))) == 1
    assert shard.bodies(queue=5) == [0, 1, 2, 4, 5]
    shard.reserve("all", queue=5)
    shard.acknowledge("all", [(0, 1), (2, 4)], 5)
    shard.release("all", 5)
    shard.take_in(run_of(7, 1), queue=5)
    assert len(shard.publish(Publish((5,), run_of(8, 1)))) == 1
    assert shard.bodies(queue=5) == [1, 5, 7]


def test_nothing_expires_while_it_is_reserved_and_what_is_back_does(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=6)
    shard.reserve("night", 3, queue=6)
    shard.put_forward(61_000)
    assert shard.table(6)["expired"] == 2
    assert shard.bodies("night", 6) == [0, 1, 2]
    assert shard.release("night", 6) == 3
    shard.put_forward(1)
    assert shard.table(6)["expired"] == 5
    assert shard.bodies(queue=6) == []


def test_what_has_expired_is_not_reserved(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=6)
    shard.tell()
    shard.let_pass(61_000)
    assert shard.reserve("night", queue=6) == (0, False)


def test_a_release_counts_towards_no_delivery_limit(shard: Clocked) -> None:
    shard.take_in(run_of(0, 2), queue=3)
    shard.get(queue=3)
    shard.tell(Nack(9, [(0, 1)], True))
    for _ in range(3):
        shard.reserve("night", queue=3)
        assert [delivery_count for _, _, _, delivery_count in shard.read("night", 3)] == [1, 0]
        assert shard.release("night", 3) == 2
    assert shard.bodies(queue=3) == [0, 1]


def test_a_queue_is_used_while_something_in_it_is_reserved(shard: Clocked) -> None:
    shard.take_in(run_of(0, 2), queue=8)
    shard.reserve("night", queue=8, lease_ms=200_000)
    coordinator = shard.loop._state.unused
    for _ in range(3):
        shard.put_forward(61_000)
        assert not coordinator
    shard.put_forward(61_000)
    assert shard.table(8)["reserved"] == 0
    shard.put_forward(61_000)
    assert list(coordinator) == [8]
