"""What a coordinator does about shards that know more than it does: an operator had it elected, and others are lost.

The lost one is this test, which nobody elected: no store has what it tells a shard.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost
from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.stores import Enroll, Identity
from shardmq.bus.messages.transactions import FollowDecision
from shardmq.bus.poller import Poller, context
from tests.hosts.members import Etcd
from tests.shards.driver import HEARD

from .moving import INSECURE, until
from .replicated import ReplicatedBroker

HOUR_MS = 3_600_000


@pytest.fixture
def broker(etcd: Etcd, tmp_path: Path) -> Iterator[ReplicatedBroker]:
    with ReplicatedBroker(tmp_path, etcd.url, "generations", hosts=("a", "b")) as broker:
        yield broker


@pytest.fixture
def channel(broker: ReplicatedBroker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(broker.url, timeout=60) as connection:
        yield connection.channel()


def serve_an_hour_ahead(broker: ReplicatedBroker, transactions: int) -> None:
    """Enroll the shard, as a coordinator does whose clock is ahead, and end transactions from the first one on."""
    sockets = context(INSECURE)
    address = broker.addresses[broker.group("shard-0").primary]["shard-0"]
    dialer: Dialer[Any] = Dialer(sockets, address, "coordinator", "z.coordinator", HEARD)
    has_told = False

    def is_done() -> bool:
        """It is answered, or the coordinator that the broker has is heard again."""
        nonlocal has_told
        Poller([dialer.socket]).wait(0.01)
        dialer.tick(time.monotonic())
        for event in dialer.receive():
            if isinstance(event, Identity) and not has_told:
                has_told = True
                dialer.post(Call(0, Enroll(event.broker, event.generation + HOUR_MS)))
                for number in range(1, transactions + 1):
                    dialer.post(Call(number, FollowDecision(number, [])))
                dialer.flush()
            elif has_told and isinstance(event, Answer | LinkLost):
                return True
        return False

    until(is_done)
    dialer.close()
    sockets.term()


def is_declared(channel: shardmq.Channel, queue: str) -> bool:
    with contextlib.suppress(errors.RequestError):
        channel.queue_declare(queue, durable=True)
        return True
    return False


def test_it_goes_on_with_a_newer_generation_and_with_higher_numbers_of_transactions(
    broker: ReplicatedBroker, channel: shardmq.Channel
) -> None:
    """The lost one's clock was an hour ahead: waiting for that, or a restart, is not needed."""
    channel.queue_declare("before", durable=True)
    leader = broker.primary("coordinator").process.pid
    serve_an_hour_ahead(broker, transactions=3)
    until(lambda: is_declared(channel, "after"))
    with channel.transaction("t") as transaction:
        for queue in ("before", "after"):
            transaction.publish("", queue, b"there")
    for queue in ("before", "after"):
        message = channel.basic_get(queue, auto_ack=True)
        assert message is not None
        assert message.body == b"there"
    assert broker.primary("coordinator").process.pid == leader
