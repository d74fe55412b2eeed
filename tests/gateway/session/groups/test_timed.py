"""Members of ordered groups with a time to acknowledge: when they leave their group, and when they are back."""

import threading
from collections.abc import Iterator

import pytest

from shardmq.bus.messages.membership import GroupAssignment, GroupMember, GroupReleased, JoinGroup, LeaveGroup
from shardmq.bus.messages.shard import Ack, Cancel, Consume, Counts, Nack, Release, Renew
from shardmq.errors import NotFound, Unavailable
from shardmq.gateway.session.groups import timed
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelled,
    BasicDeliver,
    BasicNack,
    BasicPutBack,
    BasicRenew,
)
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.groups import GroupAssigned, GroupRevoked
from shardmq.protocol.native.operations.groups import GroupReleased as ClientReleased
from tests.gateway.membership import Guest, StartStage, stage_of
from tests.gateway.rawclient import RawClient

ANSWERS = {"answers_lost": True}
LONG_MS = 3_600_000


@pytest.fixture
def guest(start_stage: StartStage) -> Iterator[Guest]:
    stage = stage_of(start_stage)
    with RawClient(stage).open(client=ANSWERS) as client:  # type: ignore[arg-type]
        yield Guest(stage, client)


def stand_out(guest: Guest, joined: GroupMember, asked: Consume) -> int:
    """Have a member get two messages, and leave its group as it acknowledges none; returns the tag of the first."""
    guest.deliver(asked.consumer, 40, 2)
    tag = guest.hear(BasicDeliver).tag
    assert guest.stage.expect(0, Nack) == Nack(asked.consumer, [(40, 41)], True)
    guest.let_go()
    assert guest.hear(GroupRevoked) == GroupRevoked(1, "c", [0], True)
    assert guest.news(LeaveGroup) == LeaveGroup(joined.member)
    return tag


def look(guest: Guest, joined: GroupMember, times: int) -> None:
    """Have the gateway look at a member, as it does LOOKS times in the member's time."""
    member, done = guest.stage.state.memberships._ordered[joined.member], threading.Event()

    def look_now() -> None:
        for _ in range(times):
            member._look()  # type: ignore[attr-defined]
        done.set()

    guest.stage.loop._loop.call_soon_threadsafe(look_now)
    guest.stage.until(done.is_set)


def test_one_whose_oldest_message_stays_leaves_with_all_its_partitions(guest: Guest) -> None:
    joined = guest.join(x_consumer_timeout=LONG_MS)
    first, second = guest.assign(joined.member, (1, 1), (2, 2))
    assert (first.timeout_ms, second.timeout_ms) == (0, 0)  # a shard would give them to the same member again
    guest.deliver(first.consumer, 40, 3)
    tag = guest.hear(BasicDeliver).tag
    guest.client.send(BasicAck(1, [(tag, tag)]))
    assert guest.stage.expect(0, Ack) == Ack(first.consumer, [(40, 41)])
    look(guest, joined, 1 + timed.LOOKS)
    assert guest.stage.expect(0, Nack) == Nack(first.consumer, [(41, 42)], True)
    assert guest.hear(GroupRevoked) == GroupRevoked(1, "c", [0, 1], True)
    assert not any(isinstance(said, LeaveGroup) for said in guest.stage.news), "its acks may be on their way"
    assert guest.let_go() == [Release(first.consumer), Release(second.consumer)]
    guest.answer(Counts, [0, 0])
    assert guest.news(LeaveGroup) == LeaveGroup(joined.member)
    assert not any(isinstance(said, GroupReleased) for said in guest.stage.news), "it would get them again"


def test_messages_that_wait_behind_the_oldest_cost_nothing(guest: Guest) -> None:
    joined = guest.join(x_consumer_timeout=LONG_MS)
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.deliver(asked.consumer, 0, 4)
    tag = guest.hear(BasicDeliver).tag
    for place in range(3):
        look(guest, joined, timed.LOOKS - 1)
        guest.client.send(BasicAck(1, [(tag + place, tag + place)]))
        assert guest.stage.expect(0, Ack).ranges == [(place, place + 1)]
    look(guest, joined, timed.LOOKS)
    assert not any(isinstance(said, Nack | Release) for said in guest.stage.shards[0].heard)
    look(guest, joined, 1)
    assert guest.stage.expect(0, Nack) == Nack(asked.consumer, [(3, 4)], True)


def test_a_renewal_begins_the_time_anew(guest: Guest) -> None:
    joined = guest.join(x_consumer_timeout=LONG_MS)
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.deliver(asked.consumer, 0, 2)
    tag = guest.hear(BasicDeliver).tag
    for _ in range(3):
        look(guest, joined, timed.LOOKS - 1)
        guest.client.send(BasicRenew(1, [(tag, tag)]))
        guest.stage.expect(0, Renew)
    look(guest, joined, timed.LOOKS)
    assert not any(isinstance(said, Nack | Release) for said in guest.stage.shards[0].heard)
    look(guest, joined, 1)
    assert guest.stage.expect(0, Nack) == Nack(asked.consumer, [(0, 1)], True)


@pytest.mark.parametrize(
    "life",
    [
        BasicAck(1, [(1, 1)]),
        BasicNack(1, [(2, 2)]),
        BasicRenew(1, [(1, 2)]),
        ClientReleased(1, "c", [0]),
    ],
    ids=["ack", "nack", "renew", "released"],
)
def test_a_client_that_shows_that_it_is_at_work_is_a_member_again(guest: Guest, life: Operation) -> None:
    joined = guest.join(x_consumer_timeout=50)
    assert stand_out(guest, joined, *guest.assign(joined.member, (1, 1))) == 1
    guest.client.send(life)
    again = guest.news(JoinGroup).member
    assert (again.topic, again.group, again.held) == ("orders", "billing", [])
    assert again.member != joined.member  # what is said to the earlier one is not for it
    guest.assign(again.member, (1, 2), offset=40)
    guest.hear(GroupAssigned)
    assert guest.hear(GroupAssigned) == GroupAssigned(1, "c", [(0, 40)])


def test_what_the_program_did_not_see_is_no_sign_of_life_and_what_it_is_assigned_meanwhile_is_not_taken(
    guest: Guest,
) -> None:
    joined = guest.join(x_consumer_timeout=50)
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.deliver(asked.consumer, 40, 2)
    tag = guest.hear(BasicDeliver).tag
    guest.stage.expect(0, Nack)
    guest.stage.say_as_coordinator(GroupAssignment(joined.member, [(2, 2)], []))
    guest.client.send(BasicPutBack(1, [(tag, tag + 1)]))
    guest.let_go()
    assert guest.news(LeaveGroup)
    guest.client.send(BasicCancel(5, 1, "c"))
    assert guest.hear(Ok).request == 5
    assert not any(isinstance(said, JoinGroup) for said in guest.stage.news)
    assert not any(isinstance(said, Consume | Cancel) for said in guest.stage.shards[0].heard)
    assert guest.join(x_consumer_timeout=50).member != joined.member  # the tag is free


def test_one_that_cannot_join_again_yet_tries_on(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed, "RETRY_SECONDS", 0.01)
    joined = guest.join(x_consumer_timeout=50)
    tag = stand_out(guest, joined, *guest.assign(joined.member, (1, 1)))
    guest.stage.answers[JoinGroup] = Unavailable("the coordinator is away")
    guest.client.send(BasicAck(1, [(tag, tag)]))
    for _ in range(2):
        guest.news(JoinGroup)
    del guest.stage.answers[JoinGroup]
    guest.stage.news.clear()
    again = guest.news(JoinGroup).member
    guest.assign(again.member, (2, 2))
    guest.hear(GroupAssigned)
    assert guest.hear(GroupAssigned).partitions == [(1, 0)]


def test_one_whose_topic_is_gone_meanwhile_ends(guest: Guest) -> None:
    joined = guest.join(x_consumer_timeout=50)
    tag = stand_out(guest, joined, *guest.assign(joined.member, (1, 1)))
    guest.stage.answers[JoinGroup] = NotFound("no topic or stream 'orders' in vhost '/'")
    guest.client.send(BasicAck(1, [(tag, tag)]))
    assert guest.hear(BasicCancelled) == BasicCancelled(1, "c")


def test_a_client_that_would_not_show_it_keeps_its_partitions_and_its_shards_have_the_time(
    start_stage: StartStage,
) -> None:
    stage = stage_of(start_stage)
    with RawClient(stage).open() as client:  # type: ignore[arg-type]
        guest = Guest(stage, client)
        joined = guest.join(x_consumer_timeout=50)
        (asked,) = guest.assign(joined.member, (1, 1))
        assert asked.timeout_ms == 50
