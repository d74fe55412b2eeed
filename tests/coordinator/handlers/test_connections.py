"""Connection limits over all gateways, and exclusive queues whose owner is gone."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.coordinator import Changes
from shardmq.coordinator import assembly
from shardmq.coordinator.handlers import connections
from shardmq.coordinator.rules.queues import QueuePlacement
from shardmq.errors import ReplyCode
from shardmq.topology.changes import ConnectionClosed
from shardmq.topology.commands import CloseConnection, DeclareQueue, PutLimits

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room

NAME = next(f"q{number}" for number in range(20) if QueuePlacement(1, 2).of("/", f"q{number}") == 0)
LIFE = 0xAB
OWNER = f"{LIFE:016x}.7"
VHOST_FULL = "access to vhost '/' refused for user 'guest': connection limit (2) is reached"
USER_FULL = "connection refused for user 'guest': user connection limit (2) is reached"


def admitted(room: "Room", gateway: "GatewayEnd", vhost: str = "/", user: str = "guest") -> Answer | Refusal:
    request = gateway.admit(vhost, user)
    room.until(lambda: request in gateway.answers)
    return gateway.answers[request]


def limit_vhost(room: "Room", gateway: "GatewayEnd") -> None:
    room.perform(gateway, PutLimits("/", "", {"max-connections": 2}))


def test_without_limits_everybody_is_admitted(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    gateway.present(1, ("/", "guest", 100_000))
    assert isinstance(admitted(room, gateway), Answer)


def test_a_virtual_hosts_limit_counts_all_users_and_gateways(room: "Room") -> None:
    room.start()
    one, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    limit_vhost(room, one)
    one.present(1, ("/", "guest", 1), ("elsewhere", "guest", 5))
    other.present(2, ("/", "anna", 1))
    room.settle(other)
    room.settle(one)
    answer = admitted(room, one)
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.text) == (530, VHOST_FULL)
    other.present(2)
    room.settle(other)
    assert isinstance(admitted(room, one), Answer)


def test_a_users_limit_counts_all_virtual_hosts(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutLimits("", "guest", {"max-connections": 2}))
    gateway.present(1, ("/", "guest", 1), ("elsewhere", "guest", 1), ("/", "anna", 9))
    answer = admitted(room, gateway)
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.text) == (530, USER_FULL)


def test_those_admitted_count_before_they_are_shown_and_not_twice(room: "Room") -> None:
    room.start()
    one, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    limit_vhost(room, one)
    assert isinstance(admitted(room, one), Answer)
    one.present(1, ("/", "guest", 1))
    room.settle(one)
    assert isinstance(admitted(room, other), Answer)
    assert isinstance(admitted(room, one), Refusal)
    assert isinstance(admitted(room, other), Refusal)


def test_an_admission_nothing_came_of_is_forgotten(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ADMISSION_SECONDS", 0.2)
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutLimits("/", "", {"max-connections": 1}))
    assert isinstance(admitted(room, gateway), Answer)
    room.until(lambda: isinstance(admitted(room, gateway), Answer))


def test_a_lost_gateways_connections_do_not_count(room: "Room") -> None:
    room.start()
    gateway, gone = room.gateway("gateway-0"), room.gateway("gateway-1")
    limit_vhost(room, gateway)
    gone.present(2, ("/", "guest", 2))
    room.settle(gone)
    assert isinstance(admitted(room, gateway), Refusal)
    room.hang_up(gone)
    room.until(lambda: isinstance(admitted(room, gateway), Answer))


def test_there_is_no_admission_to_what_is_not_there(room: "Room") -> None:
    room.start()
    answer = admitted(room, room.gateway(), "nowhere")
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.text) == (530, "vhost 'nowhere' not found")


def test_a_restarted_coordinator_admits_nobody_until_gateways_can_have_returned(
    room: "Room", monkeypatch: pytest.MonkeyPatch
) -> None:
    room.start()
    monkeypatch.setattr(assembly, "RETURN_SECONDS", 1.0)
    room.restart()
    early, late = room.gateway("gateway-0"), room.gateway("gateway-1")
    request = early.admit("/", "guest")
    room.settle(early)
    assert request not in early.answers
    late.present(2)
    assert isinstance(room.until(lambda: early.answers.get(request)), Answer)


def test_an_exclusive_queue_goes_when_its_gateways_life_is_not_shown(
    room: "Room", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ORPHAN_SECONDS", 0.5)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.1)
    room.start()
    shard, owner, other = room.shard(0), room.gateway("gateway-0"), room.gateway("gateway-1")
    owner.present(LIFE)
    other.present(LIFE + 1)
    room.perform(owner, DeclareQueue("/", NAME, False, {}, owner=OWNER))
    room.perform(owner, DeclareQueue("/", "common", False, {}))
    room.hang_up(owner)
    room.until(lambda: shard.dropped)
    assert shard.dropped == [shard.queues[NAME]]
    assert [queue.name for queue in other.topology.queues.values()] == ["common"]


def test_a_gateways_successor_may_declare_its_exclusive_queues_at_once(room: "Room") -> None:
    room.start()
    shard, dead = room.shard(0), room.gateway("gateway-0")
    dead.present(LIFE)
    room.perform(dead, DeclareQueue("/", NAME, False, {}, owner=OWNER))
    old = shard.queues[NAME]
    room.hang_up(dead)
    successor = room.gateway("gateway-0")
    successor.present(LIFE + 1)
    room.perform(successor, DeclareQueue("/", NAME, False, {}, owner=f"{LIFE + 1:016x}.1"))
    room.until(lambda: shard.dropped == [old])
    assert successor.topology.queues["/", NAME].owner == f"{LIFE + 1:016x}.1"


def test_a_client_whose_gateway_died_may_soon_declare_its_exclusive_queues_at_another_one(
    room: "Room", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CLAIMED_SECONDS", 0.3)
    room.start()
    shard, dead, other = room.shard(0), room.gateway("gateway-0"), room.gateway("gateway-1")
    dead.present(LIFE)
    other.present(LIFE + 1)
    room.perform(dead, DeclareQueue("/", NAME, False, {}, owner=OWNER))
    old = shard.queues[NAME]
    room.hang_up(dead)
    room.until(lambda: len(room.gateways) == 1)
    owner = f"{LIFE + 1:016x}.1"
    answer = room.perform(other, DeclareQueue("/", NAME, False, {}, owner=owner))
    assert isinstance(answer, Answer)
    assert shard.dropped == [old]
    assert other.topology.queues["/", NAME].owner == owner


def test_an_exclusive_queue_stays_locked_where_its_gateway_had_only_lost_its_link(room: "Room") -> None:
    room.start()
    shard, owner, other = room.shard(0), room.gateway("gateway-0"), room.gateway("gateway-1")
    owner.present(LIFE)
    other.present(LIFE + 1)
    room.perform(owner, DeclareQueue("/", NAME, False, {}, owner=OWNER))
    room.hang_up(owner)
    room.until(lambda: len(room.gateways) == 1)
    request = other.ask(DeclareQueue("/", NAME, False, {}, owner=f"{LIFE + 1:016x}.1"))
    room.settle(other)
    assert request not in other.answers
    room.gateway("gateway-0").present(LIFE)
    answer = room.until(lambda: other.answers.get(request))
    assert isinstance(answer, Refusal)
    assert answer.code == ReplyCode.RESOURCE_LOCKED
    assert not shard.dropped


def test_an_exclusive_queue_stays_while_its_gateway_is_shown_also_over_a_restart(
    room: "Room", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ORPHAN_SECONDS", 0.5)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.1)
    room.start()
    shard, _, gateway = room.shard(0), room.shard(1), room.gateway()
    gateway.present(LIFE)
    room.perform(gateway, DeclareQueue("/", NAME, True, {}, owner=OWNER))
    room.restart()
    again = room.gateway("gateway-1")
    again.present(LIFE)
    orphan = DeclareQueue("/", f"{NAME}-orphan", False, {}, owner="never shown.1")
    room.perform(again, orphan)
    room.until(lambda: ("/", orphan.name) not in again.topology.queues)
    assert ("/", NAME) in again.topology.queues
    room.restart(boot_id="second")
    assert ("/", NAME) not in room.gateway("gateway-2").topology.queues
    room.until(lambda: shard.queues[NAME] in shard.dropped)


def test_every_gateway_is_told_to_expel(room: "Room") -> None:
    room.start()
    one, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    assert room.perform(one, CloseConnection("", OWNER, "closed by an administrator")) == Answer(1, None)
    for gateway in (one, other):
        told = [change for event in gateway.heard if isinstance(event, Changes) for change in event.changes]
        assert told == [ConnectionClosed(OWNER, "closed by an administrator")]
