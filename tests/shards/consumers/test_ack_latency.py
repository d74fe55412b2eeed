"""How long consumers take to acknowledge, as their shard times it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.messages.shard import Ack, Nack, Publish
from shardmq.shards.consumers.ack_latency import ARMED, KEPT, RESTING, TIMED_MAX, AckLatency
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, run_of


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(Queue("/", "q", 1, 0))
    yield shard
    shard.close()


def latency_of(shard: Shard) -> tuple[Any, Any]:
    (row,) = shard.queue()["consumer_list"]
    return row["ack_latency_ms"], row["ack_latency_ms_max"]


def test_a_consumers_time_to_acknowledge_is_told(shard: Shard) -> None:
    shard.send(consume(1, prefetch=2), Publish((1,), run_of(0, 3)))
    shard.delivered(2)
    begun = time.monotonic()
    assert latency_of(shard) == (None, None)
    time.sleep(0.03)  # what is measured
    shard.send(Ack(1, [(1, 2)]))
    assert latency_of(shard) == (None, None)  # it was another one that is timed
    shard.send(Ack(1, [(0, 1)]))
    half, most = latency_of(shard)
    assert 30 <= half == most <= 1000 * (time.monotonic() - begun) + 50
    shard.send(Nack(1, [(0, 99)], requeue=False), Publish((1,), run_of(3, 1)))
    shard.delivered(1)
    shard.send(Ack(1, [(3, 4)]))
    half, most_of_all = latency_of(shard)
    assert half <= most_of_all  # the middle of two is the larger one
    assert most_of_all >= most


def test_few_messages_are_timed_between_two_looks() -> None:
    latency = AckLatency()
    for number in range(TIMED_MAX):
        assert latency.timed == ARMED
        latency.begin(number)
        latency.end()
    assert latency.timed == RESTING
    latency.look(is_held=False)
    latency.begin(99)
    latency.look(is_held=True)
    assert latency.timed == 99
    latency.look(is_held=False)  # it was taken back, and is not settled any more
    assert latency.timed == ARMED


def test_the_last_times_alone_are_kept() -> None:
    latency = AckLatency()
    for _ in range(2 * KEPT):
        latency.begin(1)
        latency.end()
    table = latency.table()
    assert table["ack_latency_ms"] is not None
    assert table["ack_latency_ms_max"] is not None
    assert 0 <= table["ack_latency_ms"] <= table["ack_latency_ms_max"]
