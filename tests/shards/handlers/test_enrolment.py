"""Whom a shard gives a session, and which queues it takes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.base import Call, Refusal
from shardmq.bus.messages.shard import AssignQueue, FromShard
from shardmq.bus.poller import Poller
from shardmq.topology.entities import Queue
from tests.shards.driver import BROKER, PATIENCE_SECONDS, Shard, enroll

QUEUE = Queue("/", "q", 1, 0)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(QUEUE)
    yield shard
    shard.close()


def refused(shard: Shard, broker: str, generation: int) -> str:
    dialer: Dialer[FromShard] = Dialer(shard.context, shard.address, "gateway", "gateway-7", FromShard)
    dialer.call_as(broker, generation)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not dialer.refused:
        assert time.monotonic() < deadline
        Poller([dialer.socket]).wait(0.01)
        dialer.receive()
        dialer.tick(time.monotonic())
    dialer.close()
    return dialer.refused


def test_gateways_of_another_broker_get_no_session(shard: Shard) -> None:
    assert refused(shard, "other", 1) == f"shard 0 belongs to broker {BROKER}, not to other"
    assert refused(shard, "", 0) == f"shard 0 belongs to broker {BROKER}, not to none"


def test_a_gateway_of_a_newer_coordinator_gets_a_session_when_the_shard_has_heard_of_it(shard: Shard) -> None:
    early: Dialer[FromShard] = Dialer(shard.context, shard.address, "gateway", "gateway-7", FromShard)
    early.call_as(BROKER, 2)
    early.tick(time.monotonic())
    assert shard.queue()["name"] == "q"
    assert early.receive() == []
    enroll(shard.context, shard.address, generation=2)
    shard.expect(LinkOpened, dialer=early)
    early.close()


def test_a_shard_that_restarts_without_its_coordinator_serves_the_gateways_it_knows(shard: Shard) -> None:
    assert shard.queue()["name"] == "q"  # the pass in which it was assigned is over, its commit included
    shard.restart()
    assert shard.queue()["name"] == "q"


def test_an_id_that_is_another_queues_here_is_refused_and_nothing_is_taken(shard: Shard) -> None:
    shard.send(Call(7, AssignQueue([Queue("/", "new", 9, 0), Queue("/", "other", 1, 0)])))
    refusal = shard.expect(Refusal, lambda refusal: refusal.request == 7)
    assert "'other' in vhost '/' has the id 1, which is that of queue 'q' in vhost '/' here" in refusal.text
    assert shard.queue()["name"] == "q"
    with pytest.raises(StopIteration):
        shard.queue(9)
