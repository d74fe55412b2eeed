"""Membership of consumer groups over gateways: joining, leaving, restarts and lost links of either side."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.membership import (
    GroupAssignment,
    GroupEnded,
    GroupMember,
    GroupReleased,
    Held,
    JoinGroup,
    LeaveGroup,
    ReportMembers,
)
from shardmq.coordinator import assembly
from shardmq.coordinator.handlers import groups
from shardmq.topology.commands import DeclareQueue, DeleteQueue

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room


def member(name: str, held: list[Held] | None = None, topic: str = "log") -> GroupMember:
    return GroupMember("/", topic, "billing", name, held or [])


def declare(room: "Room", gateway: "GatewayEnd", name: str = "log") -> int:
    answer = room.perform(gateway, DeclareQueue("/", name, True, arguments={"x-queue-type": "stream"}))
    assert isinstance(answer, Answer)
    return gateway.topology.queue("/", name).id


def join(room: "Room", gateway: "GatewayEnd", name: str, topic: str = "log") -> Answer | Refusal:
    request = gateway.call(JoinGroup(member(name, topic=topic)))
    room.until(lambda: request in gateway.answers)
    return gateway.answers[request]


def told(gateway: "GatewayEnd", name: str) -> list[GroupAssignment]:
    return [each for each in gateway.heard if isinstance(each, GroupAssignment) and each.member == name]


def assigned(room: "Room", gateway: "GatewayEnd", name: str) -> Held:
    """What a member was assigned, one partition, since the last call."""
    room.until(lambda: any(each.assigned for each in told(gateway, name)))
    (held,) = [held for each in told(gateway, name) for held in each.assigned]
    gateway.heard.clear()
    return held


@pytest.fixture
def gateway(room: "Room") -> "GatewayEnd":
    room.shards = 1
    room.shard(0)
    room.start()
    return room.gateway()


def test_the_first_member_is_assigned_the_partition_and_the_second_waits(room: "Room", gateway: "GatewayEnd") -> None:
    queue = declare(room, gateway)
    assert isinstance(join(room, gateway, "a"), Answer)
    assert assigned(room, gateway, "a")[0] == queue
    join(room, gateway, "b")
    room.settle(gateway)
    assert told(gateway, "a") == told(gateway, "b") == []


def test_one_who_leaves_makes_room_and_epochs_rise(room: "Room", gateway: "GatewayEnd") -> None:
    declare(room, gateway)
    other = room.gateway("gateway-1")
    join(room, gateway, "a")
    _, first = assigned(room, gateway, "a")
    join(room, other, "b")
    gateway.dialer.post(LeaveGroup("a"))
    _, second = assigned(room, other, "b")
    assert second > first


def test_a_topic_that_is_not_there_is_refused(room: "Room", gateway: "GatewayEnd") -> None:
    room.perform(gateway, DeclareQueue("/", "plain", True, {}))
    for name in ("nothing", "plain"):
        answer = join(room, gateway, "a", name)
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.text) == (404, f"no topic or stream '{name}' in vhost '/'")


def test_a_deleted_topic_ends_its_members(room: "Room", gateway: "GatewayEnd") -> None:
    declare(room, gateway)
    join(room, gateway, "a")
    room.perform(gateway, DeleteQueue("/", "log"))
    room.until(lambda: GroupEnded("a") in gateway.heard)
    declare(room, gateway)
    assert isinstance(join(room, gateway, "a"), Answer)


def test_what_was_released_without_need_is_granted_again(room: "Room", gateway: "GatewayEnd") -> None:
    declare(room, gateway)
    join(room, gateway, "a")
    held = assigned(room, gateway, "a")
    gateway.dialer.post(GroupReleased("a", [held]))
    assert assigned(room, gateway, "a")[1] > held[1]


def test_members_that_a_gateway_does_not_report_have_left(room: "Room", gateway: "GatewayEnd") -> None:
    queue = declare(room, gateway)
    join(room, gateway, "a")
    held = assigned(room, gateway, "a")
    join(room, gateway, "b")
    room.hang_up(gateway)
    back = room.gateway()
    back.dialer.post(ReportMembers([member("b")]))
    assert assigned(room, back, "b") == (queue, held[1] + 1)


def test_a_gateway_that_is_back_in_time_keeps_what_its_members_have(room: "Room", gateway: "GatewayEnd") -> None:
    declare(room, gateway)
    other = room.gateway("gateway-1")
    join(room, gateway, "a")
    held = assigned(room, gateway, "a")
    join(room, other, "b")
    room.hang_up(gateway)
    back = room.gateway()
    back.dialer.post(ReportMembers([member("a", [held])]))
    room.settle(back)
    room.settle(other)
    assert told(back, "a") == told(other, "b") == []


def test_members_of_a_gateway_that_stays_away_leave(
    room: "Room", gateway: "GatewayEnd", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "ORPHAN_SECONDS", 0.2)
    declare(room, gateway)
    other = room.gateway("gateway-1")
    join(room, gateway, "a")
    join(room, other, "b")
    room.hang_up(gateway)
    assert assigned(room, other, "b")


def test_a_restarted_coordinator_assigns_nothing_until_gateways_have_reported(
    room: "Room", gateway: "GatewayEnd", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "RETURN_SECONDS", 1.0)
    declare(room, gateway)
    other = room.gateway("gateway-1")
    join(room, gateway, "a")
    held = assigned(room, gateway, "a")
    join(room, other, "b")
    room.restart()
    room.hang_up(gateway)
    room.hang_up(other)
    back = room.gateway("gateway-1")
    back.dialer.post(ReportMembers([member("b")]))
    room.settle(back)
    assert told(back, "b") == []
    late = room.gateway("gateway-0")
    late.dialer.post(ReportMembers([member("a", [held])]))
    late.dialer.post(LeaveGroup("a"))
    assert assigned(room, back, "b")[1] > held[1]


def test_there_are_no_more_members_than_the_limit(
    room: "Room", gateway: "GatewayEnd", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MEMBERS_MAX", 1)
    declare(room, gateway)
    join(room, gateway, "a")
    answer = join(room, gateway, "b")
    assert isinstance(answer, Refusal)
    assert answer.text == "the groups of this broker have 1 members; end some, or try again later"


def test_members_of_before_are_members_again_beyond_the_limit(
    room: "Room", gateway: "GatewayEnd", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MEMBERS_MAX", 1)
    queue = declare(room, gateway)
    gateway.dialer.post(ReportMembers([member("a"), member("b")]))
    assert assigned(room, gateway, "a")[0] == queue
    assert isinstance(join(room, gateway, "c"), Refusal)
    gateway.dialer.post(LeaveGroup("a"))
    assert assigned(room, gateway, "b")[0] == queue
