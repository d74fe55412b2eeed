"""Whom a shard gives a session, and which queues it takes."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.shard import AssignQueue, DropQueue, FromShard, Publish
from shardmq.bus.messages.stores import Enroll, Identity, LinkedGateways, ListGateways, Recorded
from shardmq.bus.messages.transactions import FollowDecision
from shardmq.bus.poller import Poller
from shardmq.topology.entities import Queue
from tests.shards.driver import BROKER, HEARD, PATIENCE_SECONDS, Shard, enroll, run_of

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


class Coordinator:
    """A coordinator of one of several hosts, as far as a shard can tell; it says of itself what the test wants."""

    def __init__(self, shard: Shard, host: str) -> None:
        self.dialer: Dialer[Any] = Dialer(shard.context, shard.address, "coordinator", f"{host}.coordinator", HEARD)
        self.heard: list[Any] = []
        self._requests = 0
        self.until(lambda: any(isinstance(event, Identity) for event in self.heard))

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, self.heard
            Poller([self.dialer.socket]).wait(0.01)
            self.heard += [*self.dialer.tick(time.monotonic()), *self.dialer.receive()]

    def tell(self, message: Any) -> None:
        self.dialer.post(message)
        assert self.dialer.flush()

    def ask(self, request: Any) -> Answer[Any] | Refusal:
        self._requests += 1
        self.tell(Call(self._requests, request))
        return self.expect_answer()

    def expect_answer(self) -> Answer[Any] | Refusal:
        def found() -> list[Any]:
            kinds = Answer, Refusal
            return [event for event in self.heard if isinstance(event, kinds) and event.request == self._requests]

        self.until(found)
        return found()[0]  # type: ignore[no-any-return]


@pytest.fixture
def coordinators(shard: Shard) -> Iterator[Callable[[str], Coordinator]]:
    made: list[Coordinator] = []

    def make(host: str) -> Coordinator:
        made.append(Coordinator(shard, host))
        return made[-1]

    yield make
    for each in made:
        each.dialer.close()


NEW = Queue("/", "new", 9, 0)


def test_a_newer_coordinator_ends_the_session_of_another_host_s(
    shard: Shard, coordinators: Callable[[str], Coordinator]
) -> None:
    old = coordinators("a")
    assert isinstance(old.ask(Enroll(BROKER, 2)), Answer)
    new = coordinators("b")
    assert old.dialer.is_open
    assert isinstance(new.ask(Enroll(BROKER, 3)), Answer)
    old.until(lambda: any(isinstance(event, LinkLost) for event in old.heard))
    [lost] = [event for event in old.heard if isinstance(event, LinkLost)]
    assert "coordinator generation 3 has enrolled this shard" in lost.reason
    assert isinstance(new.ask(AssignQueue([NEW])), Answer)
    assert shard.queue(9)["name"] == "new"


def test_what_a_coordinator_says_that_was_refused_is_not_heard(
    shard: Shard, coordinators: Callable[[str], Coordinator]
) -> None:
    new, old = coordinators("b"), coordinators("a")
    assert isinstance(new.ask(Enroll(BROKER, 3)), Answer)
    old.until(lambda: not old.dialer.is_open)
    old.heard.clear()
    old.until(lambda: any(isinstance(event, Identity) for event in old.heard))  # it has called again
    assert isinstance(old.ask(Enroll(BROKER, 2)), Refusal)
    old.tell(Call(77, AssignQueue([NEW])))
    old.tell(Call(78, DropQueue(1)))
    assert isinstance(new.ask(AssignQueue([Queue("/", "newest", 10, 0)])), Answer)
    assert [table["name"] for table in shard.ask(Call(2, Inspect()))["queues"]] == ["q", "newest"]
    assert not [event for event in old.heard if isinstance(event, Answer) and event.request in (77, 78)]


def test_a_superseded_coordinator_that_calls_again_takes_no_new_queue_away(
    shard: Shard, coordinators: Callable[[str], Coordinator]
) -> None:
    """A queue that is not recorded yet is lost with the coordinator that told of it, unless the next one knows it."""
    new = coordinators("b")
    assert isinstance(new.ask(Enroll(BROKER, 3)), Answer)
    assert isinstance(new.ask(AssignQueue([NEW])), Answer)
    coordinators("a")
    new.tell(Recorded(9))
    assert isinstance(new.ask(AssignQueue([Queue("/", "newest", 10, 0)])), Answer)
    assert shard.queue(9)["name"] == "new"


def test_a_coordinator_hears_of_the_newest_transaction(
    shard: Shard, coordinators: Callable[[str], Coordinator]
) -> None:
    def newest(host: str) -> int:
        return next(event.transaction for event in coordinators(host).heard if isinstance(event, Identity))

    assert newest("a") == 0
    shard.publish(Publish((1,), run_of(0, 1), 71, 0, 0, 7))
    assert newest("b") == 7
    shard.ask(Call(11, FollowDecision(9, [])))
    assert newest("c") == 9
    shard.restart()
    assert newest("d") == 9


def test_a_coordinator_hears_which_gateways_have_sessions(
    shard: Shard, coordinators: Callable[[str], Coordinator]
) -> None:
    assert shard.queue()["name"] == "q"  # asked by a gateway, which has a session
    coordinator = coordinators("a")
    assert isinstance(coordinator.ask(Enroll(BROKER, 2)), Answer)
    answer = coordinator.ask(ListGateways())
    assert isinstance(answer, Answer)
    told = msgspec.convert(answer.result, LinkedGateways)
    assert told.names == ["gateway-0"]
    assert 0 < told.seconds < PATIENCE_SECONDS
