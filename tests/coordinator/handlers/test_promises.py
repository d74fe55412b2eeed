"""Commands that were under way when too few replicas were left in sync, through the real process loop."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.coordinator.state.promises import Promises
from shardmq.topology.commands import AbortTransaction, BeginTransaction, Command, DeclareQueue, DeleteQueue
from tests.coordinator.transacting import begun, commit, refused

if TYPE_CHECKING:
    from tests.coordinator.conftest import Room, ShardEnd

NAME = next(f"q{number}" for number in range(20) if QueuePlacement(1, 2).of("/", f"q{number}") == 0)
REFUSAL = "too few replicas of coordinator are in sync"
LAST = 11


@pytest.fixture
def promises(monkeypatch: pytest.MonkeyPatch) -> Promises:
    """Of a coordinator that has replicas, which have what came before."""
    promises = Promises(lambda: LAST)
    monkeypatch.setattr("shardmq.coordinator.assembly.Promises", lambda: promises)
    return promises


@pytest.fixture
def shards(room: "Room") -> list["ShardEnd"]:
    return [room.shard(0), room.shard(1)]


def test_a_commit_that_one_replica_has_is_told_by_no_command(
    room: "Room", promises: Promises, shards: list["ShardEnd"]
) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    promises.look("", LAST)
    for shard in shards:
        shard.follows = False
    under_way = gateway.ask(commit(number))
    room.until(lambda: shards[0].decisions)
    promises.look(REFUSAL, LAST)
    asked: list[Command] = [
        commit(number),
        BeginTransaction("/", "t", "anna", 0),
        AbortTransaction("/", "t", 0, "anna"),
    ]
    for command in asked:
        assert refused(room, gateway, command) == (506, REFUSAL)
    assert under_way not in gateway.answers
    promises.look("", LAST)
    assert refused(room, gateway, AbortTransaction("/", "t", 0, "anna"))[0] == 406


def test_a_queue_whose_shard_answers_later_is_not_answered_by_one_replica(
    room: "Room", promises: Promises, shards: list["ShardEnd"]
) -> None:
    room.start()
    gateway, shard = room.gateway(), shards[0]
    promises.look("", LAST)
    shard.answers = False
    declare = DeclareQueue("/", NAME, True, {})
    under_way = gateway.ask(declare)
    room.until(lambda: NAME in shard.queues)
    room.settle(gateway)
    promises.look(REFUSAL, LAST)
    shard.answers = True
    answer = room.until(lambda: gateway.answers.get(under_way))
    assert not isinstance(answer, Answer)
    assert (answer.code, answer.text) == (506, REFUSAL)
    assert refused(room, gateway, declare) == (506, REFUSAL)
    assert isinstance(room.perform(gateway, DeleteQueue("/", NAME)), Answer)
    assert refused(room, gateway, declare) == (506, REFUSAL)
