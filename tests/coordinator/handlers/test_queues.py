"""Queues deleted on a condition: their shard is asked first, and nothing gets in between."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.shard import OutOfService
from shardmq.coordinator.handlers import commands
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.topology.commands import DeclareQueue, DeleteQueue, DeleteVhost, PutLimits, PutPolicy, PutVhost

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room, ShardEnd

NAME = next(f"q{number}" for number in range(20) if QueuePlacement(1, 2).of("/", f"q{number}") == 0)
OTHER = next(f"q{number}" for number in range(20) if QueuePlacement(1, 2).of("other", f"q{number}") == 0)
IF_UNUSED = DeleteQueue("/", NAME, if_unused=True)


@pytest.fixture
def shard(room: "Room") -> "ShardEnd":
    return room.shard(0)


def declared(room: "Room", gateway: "GatewayEnd") -> int:
    answer = room.perform(gateway, DeclareQueue("/", NAME, True, {}))
    assert isinstance(answer, Answer)
    return int(answer.result)


@pytest.mark.parametrize("command", [IF_UNUSED, DeleteQueue("/", NAME, if_empty=True)])
def test_a_queue_is_deleted_when_its_shard_agrees(room: "Room", shard: "ShardEnd", command: DeleteQueue) -> None:
    room.start()
    gateway = room.gateway()
    number = declared(room, gateway)
    assert room.perform(gateway, command) == Answer(2, None)
    assert shard.prepared_deletions == {number}
    room.until(lambda: shard.dropped == [number])


def test_a_queue_stays_when_its_shard_does_not_agree(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    shard.busy.add(declared(room, gateway))
    assert room.perform(gateway, IF_UNUSED) == Refusal(2, 406, "queue in use")
    assert ("/", NAME) in gateway.topology.queues
    assert not shard.dropped
    assert isinstance(room.perform(gateway, DeclareQueue("/", NAME, True, {})), Answer)


def test_what_names_a_queue_about_to_be_deleted_waits(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    number = declared(room, gateway)
    shard.answers = False
    deleted = gateway.ask(IF_UNUSED)
    again = gateway.ask(DeclareQueue("/", NAME, True, {}))
    room.until(lambda: shard.prepared_deletions)
    room.settle(gateway)
    assert not {deleted, again} & gateway.answers.keys()
    shard.answers = True
    room.until(lambda: again in gateway.answers)
    assert isinstance(gateway.answers[again], Answer)
    assert shard.queues[NAME] != number


def test_a_policy_that_comes_in_between_does_not_end_what_a_deletion_goes_by(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    declared(room, gateway)
    shard.answers = False
    deleted = gateway.ask(IF_UNUSED)
    room.until(lambda: shard.prepared_deletions)
    assigns = shard.assigns
    changed = gateway.ask(PutPolicy("/", "short", "^q", {"max-length": 5}))
    room.until(lambda: shard.assigns > assigns)
    assert shard.prepared_deletions
    shard.answers = True
    room.until(lambda: {deleted, changed} <= gateway.answers.keys())
    assert (gateway.answers[deleted], gateway.answers[changed]) == (Answer(deleted, None), Answer(changed, None))
    assert ("/", NAME) not in gateway.topology.queues


def test_a_shard_that_comes_back_is_asked_again(room: "Room") -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    number = declared(room, gateway)
    shard.answers = False
    request = gateway.ask(IF_UNUSED)
    room.until(lambda: shard.prepared_deletions)
    room.hang_up(shard)
    back = room.shard(0)
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, None)
    room.until(lambda: back.dropped == [number])


def test_a_queue_whose_shard_is_away_stays_and_is_usable_again(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    room.start()
    gateway, shard = room.gateway(), room.shard(0)
    declared(room, gateway)
    shard.answers = False
    monkeypatch.setattr(commands, "SHARD_SECONDS", 0.3)
    answer = room.perform(gateway, IF_UNUSED)
    assert isinstance(answer, Refusal)
    assert answer.text.startswith("shard-0 is not reachable")
    room.until(lambda: not shard.prepared_deletions)
    assert ("/", NAME) in gateway.topology.queues


def test_a_coordinator_killed_between_asking_and_deleting_keeps_the_queue(room: "Room", shard: "ShardEnd") -> None:
    room.spawn()
    gateway = room.gateway()
    number = declared(room, gateway)
    shard.answers = False
    gateway.ask(IF_UNUSED)
    room.until(lambda: shard.prepared_deletions)
    room.kill()
    shard.withheld.clear()
    shard.answers = True
    room.spawn()
    room.until(lambda: not shard.prepared_deletions)
    assert room.gateway("gateway-1").topology.queue("/", NAME).id == number


def test_a_queue_of_the_same_name_declared_since_is_not_meant(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    number = declared(room, gateway)
    answer = room.perform(gateway, DeleteQueue("/", NAME, queue=number + 1))
    assert isinstance(answer, Refusal)
    assert answer.code == 404
    assert not shard.dropped
    assert room.perform(gateway, DeleteQueue("/", NAME, queue=number)) == Answer(3, None)


def test_a_queue_that_its_shard_calls_unused_is_deleted(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    number = declared(room, gateway)
    shard.say_unused(number)
    shard.say_unused(number)
    room.until(lambda: shard.dropped)
    assert shard.dropped == [number]
    assert ("/", NAME) not in gateway.topology.queues


def test_a_queue_used_again_is_not_deleted_until_it_is_unused_again(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    number = declared(room, gateway)
    shard.busy.add(number)
    shard.say_unused(number)
    shard.say_unused(4711)
    room.settle(gateway)
    room.settle(gateway)
    assert ("/", NAME) in gateway.topology.queues
    shard.busy.clear()
    shard.say_unused(number)
    room.until(lambda: shard.dropped == [number])


def test_a_virtual_host_goes_with_what_is_being_declared_in_it(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutVhost("other"))
    kept = declared(room, gateway)
    shard.answers = False
    coming = gateway.ask(DeclareQueue("other", OTHER, True, {}))
    room.until(lambda: OTHER in shard.queues and shard.queues[OTHER] != kept)
    late = gateway.ask(DeclareQueue("other", OTHER, True, {}))
    deleted = gateway.ask(DeleteVhost("other"))
    room.until(lambda: deleted in gateway.answers)
    assert gateway.answers[deleted] == Answer(deleted, None)
    for request in (coming, late):
        answer = gateway.answers[request]
        assert isinstance(answer, Refusal)
        assert answer.code == 404
    shard.answers = True
    room.until(lambda: shard.dropped)
    assert shard.dropped == [shard.queues[OTHER]]
    assert list(gateway.topology.vhosts) == ["/"]
    assert [queue.id for queue in gateway.topology.queues.values()] == [kept]
    room.restart()
    again = room.gateway("gateway-1").topology
    assert list(again.vhosts) == ["/"]
    assert (again.queues, again.permissions) == (gateway.topology.queues, gateway.topology.permissions)


def test_a_virtual_host_that_is_not_deleted_keeps_what_is_being_declared_in_it(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutVhost("other"))
    names = [f"{OTHER}.{n}" for n in range(40) if QueuePlacement(1, 2).of("other", f"{OTHER}.{n}") == 0]
    damaged = room.perform(gateway, DeclareQueue("other", OTHER, True, {}))
    assert isinstance(damaged, Answer)
    shard.say(OutOfService(damaged.result, "its messages are damaged"))
    assert isinstance(room.perform(gateway, DeclareQueue("other", names[0], True, {})), Answer)
    shard.answers = False
    declared = gateway.ask(DeclareQueue("other", names[1], True, {}))
    room.until(lambda: names[1] in shard.queues)
    refusal = room.perform(gateway, DeleteVhost("other"))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.text) == (506, "its messages are damaged")
    assert declared not in gateway.answers
    shard.answers = True
    assert isinstance(room.until(lambda: gateway.answers.get(declared)), Answer)
    assert ("other", names[1]) in gateway.topology.queues


def test_queues_being_declared_count_for_the_limit(room: "Room", shard: "ShardEnd") -> None:
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutLimits("/", "", {"max-queues": 1}))
    shard.answers = False
    first = gateway.ask(DeclareQueue("/", NAME, True, {}))
    answer = room.perform(gateway, DeclareQueue("/", "one too many", True, {}))
    assert isinstance(answer, Refusal)
    assert answer.text == "cannot declare queue 'one too many': queue limit in vhost '/' (1) is reached"
    shard.answers = True
    assert isinstance(room.until(lambda: gateway.answers.get(first)), Answer)
    room.perform(gateway, DeleteQueue("/", NAME))
    assert isinstance(room.perform(gateway, DeclareQueue("/", NAME, True, {})), Answer)
