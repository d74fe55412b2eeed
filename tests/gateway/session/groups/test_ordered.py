"""Members of ordered groups on a gateway: what shards, the coordinator and the client hear, and in which order."""

from collections.abc import Iterator

import pytest

from shardmq.bus.messages.groups import GroupReading, GroupState, InspectPartition, PartitionState
from shardmq.bus.messages.membership import (
    GroupAssignment,
    GroupEnded,
    GroupReleased,
    JoinGroup,
    LeaveGroup,
    ReportMembers,
)
from shardmq.bus.messages.shard import Ack, Cancel, Cancelled, Consume, Qos, Release
from shardmq.bus.messages.streams import Reading
from shardmq.errors import NotFound, ReplyCode, Unavailable
from shardmq.gateway.session.groups import member, partition
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelled,
    BasicConsume,
    BasicDeliver,
    BasicQos,
)
from shardmq.protocol.native.operations.connection import ChannelClose, Ok, Refused
from shardmq.protocol.native.operations.groups import GroupAssigned, GroupRevoked
from shardmq.protocol.native.operations.groups import GroupReleased as ClientReleased
from shardmq.protocol.native.operations.offsets import GroupOffsets
from tests.gateway.membership import IN_GROUP, Guest, StartStage, stage_of
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import UNANSWERED


@pytest.fixture
def guest(start_stage: StartStage) -> Iterator[Guest]:
    stage = stage_of(start_stage)
    with RawClient(stage).open() as client:  # type: ignore[arg-type]
        yield Guest(stage, client)


def test_a_member_consumes_what_it_is_assigned_under_the_epoch_that_comes_with_it(guest: Guest) -> None:
    joined = guest.join(x_delivery_limit=3, x_dead_letter_exchange="dead", x_stream_filter="red")
    assert (joined.vhost, joined.topic, joined.group, joined.held) == ("/", "orders", "billing", [])
    (asked,) = guest.assign(joined.member, (2, 77), offset=40)
    reading = Reading("first", 0, ["red"], is_exact=True)
    told = GroupReading("billing", False, 77, joined.member, reading, 3, "dead", partitions_at_begin=2)
    assert (asked.queue, asked.group) == (2, told)
    assert guest.hear(GroupAssigned) == GroupAssigned(1, "c", [(1, 40)])


def test_deliveries_tell_partition_and_offset_and_an_ack_goes_to_the_shard(guest: Guest) -> None:
    joined = guest.join()
    (asked,) = guest.assign(joined.member, (2, 1), offset=40)
    guest.deliver(asked.consumer, 40, 3)
    delivery = guest.hear(BasicDeliver)
    assert (delivery.consumer, delivery.partition, delivery.offset, delivery.count) == ("c", 1, 40, 3)
    guest.client.send(BasicAck(1, [(delivery.tag, delivery.tag + 1)]))
    assert guest.stage.expect(0, Ack) == Ack(asked.consumer, [(40, 42)])


def test_a_topic_that_is_not_there_is_refused(guest: Guest) -> None:
    guest.stage.answers[JoinGroup] = NotFound("no topic or stream 'orders' in vhost '/'")
    guest.client.send(
        BasicConsume(1, 1, "orders", "c", arguments=IN_GROUP), BasicConsume(2, 1, "gone", "c", arguments=IN_GROUP)
    )
    for _ in range(2):
        assert guest.hear(Refused).code == ReplyCode.NOT_FOUND
    assert guest.news(LeaveGroup)


def test_a_revoked_partition_is_released_when_the_client_says_so(guest: Guest) -> None:
    joined = guest.join()
    first, second = guest.assign(joined.member, (1, 1), (2, 2))
    guest.deliver(second.consumer, 0, 2)
    tag = guest.hear(BasicDeliver).tag
    guest.revoke(joined.member, 2)
    assert guest.hear(GroupRevoked) == GroupRevoked(1, "c", [1], False)
    assert guest.answer(Cancel).consumer == second.consumer
    guest.client.send(BasicAck(1, [(tag, tag)]), ClientReleased(1, "c", [1]), BasicAck(1, [(tag + 1, tag + 1)]))
    assert guest.let_go() == [Ack(second.consumer, [(0, 1)]), Release(second.consumer)]
    assert guest.news(GroupReleased) == GroupReleased(joined.member, [(2, 2)])
    guest.deliver(first.consumer, 0, 1)  # the channel lives on, and so does the other partition
    assert guest.hear(BasicDeliver).partition == 0


def test_a_client_that_says_nothing_loses_the_partition_after_a_time(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "RELEASE_SECONDS", 0.1)
    joined = guest.join()
    guest.assign(joined.member, (1, 1))
    guest.revoke(joined.member, 1)
    guest.answer(Cancel)
    guest.let_go()
    assert guest.news(GroupReleased).held == [(1, 1)]


def test_a_partition_that_is_revoked_before_it_began_goes_without_a_word_to_the_client(guest: Guest) -> None:
    joined = guest.join()
    stage = guest.stage
    stage.say_as_coordinator(GroupAssignment(joined.member, [(1, 1)], [1]))
    asked = stage.expect(0, Consume)
    guest.deliver(asked.consumer, 0, 5)
    guest.answer(Cancel)
    assert guest.let_go() == [Release(asked.consumer)]
    assert guest.news(GroupReleased).held == [(1, 1)]
    assert not any(isinstance(said, GroupAssigned | GroupRevoked | BasicDeliver) for said in guest.heard)


def test_one_whose_partition_was_given_to_another_hears_that_it_is_lost(guest: Guest) -> None:
    joined = guest.join()
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.deliver(asked.consumer, 0, 1)
    tag = guest.hear(BasicDeliver).tag
    guest.stage.say(0, Cancelled(asked.consumer, "another member has the partition"))
    assert guest.hear(GroupRevoked) == GroupRevoked(1, "c", [0], True)
    assert guest.news(GroupReleased) == GroupReleased(joined.member, [(1, 1)])
    guest.client.send(BasicAck(1, [(tag, tag)]))
    assert guest.assign(joined.member, (1, 2))[0].group is not None  # the late ack has closed nothing


def test_a_group_of_another_kind_ends_the_consumer_with_the_shards_words(guest: Guest) -> None:
    joined = guest.join()
    guest.stage.say_as_coordinator(GroupAssignment(joined.member, [(1, 5)], []))
    guest.answer(Consume, (ReplyCode.PRECONDITION_FAILED, "group 'billing' is shared"))
    guest.answer(InspectPartition, PartitionState(0, 0, 0, 0, 0, [GroupState("billing", True, 0, 0)]))
    assert guest.hear(BasicCancelled) == BasicCancelled(1, "c", 406, "group 'billing' is shared")
    assert guest.news(LeaveGroup) == LeaveGroup(joined.member)


def test_an_epoch_that_is_over_is_given_back_and_ends_nothing(guest: Guest) -> None:
    joined = guest.join()
    guest.stage.say_as_coordinator(GroupAssignment(joined.member, [(1, 5)], []))
    guest.answer(Consume, (ReplyCode.PRECONDITION_FAILED, "epoch 5 is over"))
    guest.answer(InspectPartition, PartitionState(0, 0, 0, 0, 0, [GroupState("billing", False, 0, 6)]))
    assert guest.news(GroupReleased) == GroupReleased(joined.member, [(1, 5)])
    guest.assign(joined.member, (1, 7))
    assert guest.hear(GroupAssigned).partitions == [(0, 0)]


def test_a_partition_that_is_out_of_service_is_tried_again(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "RETRY_SECONDS", 0.01)
    joined = guest.join()
    guest.stage.say_as_coordinator(GroupAssignment(joined.member, [(1, 5)], []))
    guest.answer(Consume, (ReplyCode.RESOURCE_ERROR, "damaged"))
    guest.answer(Consume, 17)
    assert guest.hear(GroupAssigned).partitions == [(0, 17)]


def test_a_closed_channel_lets_go_of_everything_at_once(guest: Guest) -> None:
    joined = guest.join()
    asked = guest.assign(joined.member, (1, 1), (2, 2))
    guest.client.send(ChannelClose(9, 1))
    assert guest.hear(Ok).request == 9
    assert {guest.stage.expect(0, Release).consumer for _ in asked} == {each.consumer for each in asked}
    assert guest.news(LeaveGroup) == LeaveGroup(joined.member)


def test_a_cancelled_consumer_leaves_when_what_it_holds_is_settled(guest: Guest) -> None:
    joined = guest.join()
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.deliver(asked.consumer, 0, 2)
    tag = guest.hear(BasicDeliver).tag
    guest.client.send(BasicCancel(5, 1, "c"))
    guest.answer(Cancel)
    assert guest.hear(Ok).request == 5
    guest.client.send(BasicAck(1, [(tag, tag + 1)]))
    assert guest.let_go() == [Ack(asked.consumer, [(0, 2)]), Release(asked.consumer)]
    assert guest.news(LeaveGroup)
    assert guest.join().member != joined.member  # the tag is free


def test_the_report_of_a_new_session_has_all_members_with_what_they_hold(guest: Guest) -> None:
    joined = guest.join()
    guest.assign(joined.member, (1, 7), (2, 8))
    other = guest.join("d")
    guest.client.send(BasicCancel(5, 1, "d"))
    guest.news(LeaveGroup)
    guest.news(ReportMembers)  # of the first session
    guest.stage.break_coordinator_link()
    reported = guest.news(ReportMembers)
    assert [(each.member, each.held) for each in reported.members] == [(joined.member, [(1, 7), (2, 8)])]
    assert other.member not in [each.member for each in reported.members]


def test_one_that_is_joining_is_in_no_report_and_asks_again(guest: Guest) -> None:
    guest.news(ReportMembers)  # of the first session
    guest.stage.answers[JoinGroup] = UNANSWERED
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=IN_GROUP))
    asked = guest.news(JoinGroup)
    guest.stage.answers[JoinGroup] = Unavailable("there are too many")
    guest.stage.break_coordinator_link()
    assert guest.news(ReportMembers).members == []
    assert guest.news(JoinGroup) == asked
    assert guest.hear(Refused).text == "there are too many"


def test_one_that_left_before_it_was_added_is_no_member(guest: Guest) -> None:
    guest.stage.answers[JoinGroup] = UNANSWERED
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=IN_GROUP))
    asked = guest.news(JoinGroup)
    guest.client.socket.close()
    assert guest.news(LeaveGroup) == LeaveGroup(asked.member.member)
    guest.stage.answers[JoinGroup] = None
    guest.stage.break_coordinator_link()
    assert guest.news(JoinGroup) == asked
    assert guest.news(LeaveGroup) == LeaveGroup(asked.member.member)


def test_a_deleted_topic_ends_the_consumer(guest: Guest) -> None:
    joined = guest.join()
    guest.assign(joined.member, (1, 1))
    guest.stage.say_as_coordinator(GroupEnded(joined.member))
    assert guest.hear(BasicCancelled) == BasicCancelled(1, "c")
    assert guest.stage.expect(0, Release)


def test_the_prefetch_limits_all_partitions_together(guest: Guest) -> None:
    joined = guest.join(prefetch=4)
    first, second = guest.assign(joined.member, (1, 1), (2, 2))
    assert (first.prefetch, second.prefetch) == (4, 4)
    guest.deliver(first.consumer, 0, 3)
    guest.deliver(second.consumer, 0, 3)
    assert [guest.hear(BasicDeliver).count for _ in range(2)] == [3, 1]
    guest.client.send(BasicAck(1, [(1, 1)]))
    last = guest.hear(BasicDeliver)
    assert (last.partition, last.offset, last.count) == (1, 1, 1)
    guest.client.send(BasicQos(7, 1, "c", 9))
    assert guest.hear(BasicDeliver).offset == 2


def test_a_prefetch_that_is_set_later_limits_all_partitions_too(guest: Guest) -> None:
    joined = guest.join()
    first, second = guest.assign(joined.member, (1, 1), (2, 2))
    guest.client.send(BasicQos(7, 1, "c", 3))
    for _ in range(2):
        assert guest.answer(Qos).prefetch == 3
    guest.deliver(first.consumer, 0, 2)
    guest.deliver(second.consumer, 0, 2)
    assert [guest.hear(BasicDeliver).count for _ in range(2)] == [2, 1]
    guest.client.send(BasicAck(1, [(1, 2)]))
    assert guest.hear(BasicDeliver).offset == 1


def test_what_comes_again_after_a_reset_is_not_settled_by_old_acks(guest: Guest) -> None:
    joined = guest.join()
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.deliver(asked.consumer, 0, 4)
    old = guest.hear(BasicDeliver).tag
    guest.deliver(asked.consumer, 0, 2)  # the group was reset to 0
    new = guest.hear(BasicDeliver).tag
    guest.client.send(BasicAck(1, [(old, old + 3)]), BasicAck(1, [(new, new)]))
    assert guest.stage.expect(0, Ack).ranges == [(2, 4), (0, 1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x-group": ""}, "a string of 1 to 255 bytes"),
        ({"x-group": "é" * 200}, "a string of 1 to 255 bytes"),
        ({"x-group": 7}, "a string of 1 to 255 bytes"),
        ({**IN_GROUP, "x-group-type": "keyed"}, "one of ordered, shared"),
        ({**IN_GROUP, "x-priority": 1}, "members of a group share it evenly"),
        ({**IN_GROUP, "x-stream-offset": "yesterday"}, "x-stream-offset"),
        ({**IN_GROUP, "x-delivery-limit": -1}, "x-delivery-limit"),
    ],
)
def test_arguments_without_a_meaning_are_refused(guest: Guest, arguments: dict[str, object], words: str) -> None:
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=arguments))
    refused = guest.hear(Refused)
    assert refused.code == ReplyCode.PRECONDITION_FAILED
    assert words in refused.text


def test_partitions_of_which_the_client_invents_the_release_stay(guest: Guest) -> None:
    joined = guest.join()
    (asked,) = guest.assign(joined.member, (1, 1))
    guest.hear(GroupAssigned)
    guest.client.send(ClientReleased(1, "c", [0, 5]), ClientReleased(1, "nobody", [0]))
    guest.deliver(asked.consumer, 0, 1)
    assert guest.hear(BasicDeliver).partition == 0


def begin_at(guest: Guest, offset: int) -> None:
    """Consume as a member of the group, which is to begin at an offset if it is new."""
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments={**IN_GROUP, "x-stream-offset": offset}))


def test_a_group_that_exists_is_joined_while_a_partition_cannot_answer(guest: Guest) -> None:
    begin_at(guest, 5)
    state = PartitionState(0, 9, 0, 0, 0, [GroupState("billing", False, 7, 3)])
    assert guest.answer(InspectPartition, state).with_damaged
    guest.answer(InspectPartition, (ReplyCode.RESOURCE_ERROR, "out of service"))
    joined = guest.news(JoinGroup)
    assert guest.hear(Ok).result == {"consumer": "c"}
    asked = guest.assign(joined.member.member, (1, 4), (2, 4))
    begin = [(each.queue, each.group and (each.group.begin.begin, each.group.begin.number)) for each in asked]
    assert begin == [(1, ("offset", 5)), (2, ("first", 0))], (
        "nothing is passed over where it is not known what is there"
    )


def test_a_group_whose_cursor_is_damaged_is_not_new(guest: Guest) -> None:
    begin_at(guest, 50)
    damaged = PartitionState(0, 9, 0, 0, 0, [GroupState("billing", None, 0, 0, is_damaged=True)])
    for state in (PartitionState(0, 9, 0, 0, 0, []), damaged):
        guest.answer(InspectPartition, state)
    assert guest.news(JoinGroup)


def test_a_group_that_may_be_new_does_not_begin_while_a_partition_cannot_answer(guest: Guest) -> None:
    begin_at(guest, 5)
    guest.answer(InspectPartition, PartitionState(0, 9, 0, 0, 0, []))
    guest.answer(InspectPartition, (ReplyCode.RESOURCE_ERROR, "out of service"))
    assert guest.hear(Refused).text == "out of service"


def test_where_a_group_is_in_some_partitions_is_asked_of_their_shards_alone(guest: Guest) -> None:
    guest.client.send(GroupOffsets(1, 1, "orders", "billing", [1, 1]))
    assert guest.answer(InspectPartition, PartitionState(0, 9, 0, 0, 0, [])).queue == 2
    assert [(row["partition"], row["end"]) for row in guest.hear(Ok).result] == [(1, 9)]
    guest.client.send(GroupOffsets(2, 1, "orders", "billing", [2]))
    assert guest.hear(Refused).code == ReplyCode.NOT_FOUND


def test_a_partition_is_tried_again_for_as_long_as_it_takes() -> None:
    pauses = [partition.retry_seconds(number) for number in (0, 1, 2, 3, 4, 5, 100_000)]
    assert pauses == [1, 2, 4, 8, 10, 10, 10]
