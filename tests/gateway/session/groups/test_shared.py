"""Members of shared groups on a gateway: all partitions, one prefetch, no coordinator."""

from collections.abc import Iterator

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.groups import Declined, GroupState, InspectPartition, PartitionState, Starved
from shardmq.bus.messages.shard import Ack, Cancel, Cancelled, Consume, Nack, Qos, Release, Renew
from shardmq.errors import ReplyCode
from shardmq.gateway.session.groups import partition
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelled,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicRenew,
)
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.offsets import GroupOffsets
from shardmq.topology.changes import QueueAdded, QueueRemoved, TopicPut, TopicRemoved
from shardmq.topology.entities import Queue, Topic
from tests.gateway.membership import IN_GROUP, STREAM, Guest, StartStage, stage_of
from tests.gateway.rawclient import RawClient

SHARED = {**IN_GROUP, "x-group-type": "shared"}


@pytest.fixture
def guest(start_stage: StartStage) -> Iterator[Guest]:
    stage = stage_of(start_stage)
    with RawClient(stage).open() as client:  # type: ignore[arg-type]
        yield Guest(stage, client)


def consume(guest: Guest, tag: str = "c", prefetch: int = 0) -> list[Consume]:
    """Consume as a member of the shared group from both partitions."""
    guest.client.send(BasicConsume(1, 1, "orders", tag, False, prefetch, SHARED))
    asked = [guest.answer(Consume, 0) for _ in range(2)]
    assert guest.hear(Ok).result == {"consumer": tag}
    return asked


def test_a_member_consumes_from_all_partitions_and_the_coordinator_is_not_asked(guest: Guest) -> None:
    asked = consume(guest)
    assert [(each.queue, each.group and each.group.is_shared) for each in asked] == [(1, True), (2, True)]
    guest.stage.lose_coordinator()
    guest.deliver(asked[1].consumer, 5, 1)
    assert guest.hear(BasicDeliver).partition == 1
    assert [said for said in guest.stage.news if not hasattr(said, "members")] == []


def test_messages_that_come_before_all_shards_have_answered_wait_for_the_clients_answer(guest: Guest) -> None:
    guest.client.send(BasicConsume(1, 1, "orders", "", arguments=SHARED))
    one = guest.answer(Consume, 0)
    guest.deliver(one.consumer, 0, 3)
    guest.answer(Consume, 0)
    answer, delivery = guest.client.receive(), guest.client.receive()
    assert isinstance(answer, Ok)
    assert isinstance(delivery, BasicDeliver)
    assert delivery.consumer == answer.result["consumer"]


def test_messages_are_settled_one_by_one_at_their_partition(guest: Guest) -> None:
    one, other = consume(guest)
    guest.deliver(one.consumer, 0, 2)
    guest.deliver(other.consumer, 7, 2)
    guest.hear(BasicDeliver)
    guest.hear(BasicDeliver)
    guest.client.send(BasicNack(1, [(2, 2)], True, 500), BasicRenew(1, [(3, 3)]), BasicAck(1, [(4, 4)]))
    assert guest.stage.expect(0, Nack) == Nack(one.consumer, [(1, 2)], True, 500)
    assert guest.stage.expect(0, Renew) == Renew(other.consumer, [(7, 8)])
    assert guest.stage.expect(0, Ack) == Ack(other.consumer, [(8, 9)])


def test_one_that_a_shard_refuses_is_refused_and_leaves_nothing_behind(guest: Guest) -> None:
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=SHARED))
    asked = [guest.stage.expect(0, Consume) for _ in range(2)]
    guest.stage.say(0, Answer(guest.stage.request(asked[0]), 0))
    guest.stage.say(0, Refusal(guest.stage.request(asked[1]), ReplyCode.PRECONDITION_FAILED, "it is ordered"))
    assert guest.hear(Refused).text == "it is ordered"
    assert {guest.stage.expect(0, Release).consumer for _ in range(2)} == {each.consumer for each in asked}
    consume(guest)  # the tag is free


def test_partitions_that_a_topic_gets_are_consumed_from_too(guest: Guest) -> None:
    consume(guest)
    guest.stage.tell(QueueAdded(Queue("/", "orders-2", 9, 1, True, STREAM)), TopicPut(Topic("/", "orders", (1, 2, 9))))
    asked = guest.stage.expect(1, Consume)
    assert asked.queue == 9
    guest.stage.say(1, Answer(guest.stage.request(asked), 0))


def test_a_deleted_topic_ends_the_consumer_with_its_last_partition(guest: Guest) -> None:
    one, other = consume(guest)
    guest.stage.say(0, Cancelled(one.consumer), Cancelled(other.consumer))
    assert guest.hear(BasicCancelled) == BasicCancelled(1, "c")


def test_damage_in_its_last_partition_ends_the_consumer_and_says_why(guest: Guest) -> None:
    one, other = consume(guest)
    guest.stage.say(0, Cancelled(other.consumer), Cancelled(one.consumer, "partition 'orders-0' is damaged"))
    assert guest.hear(BasicCancelled).text == "partition 'orders-0' is damaged"


def test_damage_in_a_partition_leaves_the_others_and_it_is_tried_again(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "RETRY_SECONDS", 0.01)
    one, other = consume(guest)
    guest.deliver(one.consumer, 0, 1)
    guest.hear(BasicDeliver)
    guest.stage.say(0, Cancelled(one.consumer, "partition 'orders-0' is damaged"))
    assert guest.stage.expect(0, Release).consumer == one.consumer
    guest.deliver(other.consumer, 4, 1)
    assert guest.hear(BasicDeliver).partition == 1
    guest.client.send(BasicAck(1, [(1, 2)]))  # the first had no effect
    assert guest.stage.expect(0, Ack) == Ack(other.consumer, [(4, 5)])
    refused = guest.answer(Consume, (ReplyCode.RESOURCE_ERROR, "still damaged"))
    again = guest.answer(Consume, 0)
    assert [(each.queue, each.group and each.group.begin.begin) for each in (refused, again)] == [(1, "first")] * 2
    guest.deliver(again.consumer, 0, 1)
    assert guest.hear(BasicDeliver).partition == 0


def test_a_consumer_joins_without_a_partition_that_is_out_of_service_and_skips_nothing_of_it(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "RETRY_SECONDS", 0.01)
    guest.client.send(BasicConsume(1, 1, "orders", "c", False, 4, {**SHARED, "x-stream-offset": "next"}))
    began_ms = guest.stage.state.now_ms
    one, other = (guest.stage.expect(0, Consume) for _ in range(2))
    guest.stage.say(0, Refusal(guest.stage.request(one), ReplyCode.RESOURCE_ERROR, "damaged"))
    guest.deliver(other.consumer, 4, 1)
    guest.stage.say(0, Answer(guest.stage.request(other), 4))
    assert guest.hear(Ok).result == {"consumer": "c"}
    assert guest.hear(BasicDeliver).partition == 1
    again = guest.answer(Consume, 7)
    assert again.group is not None
    assert (again.queue, again.group.begin.begin) == (one.queue, "time"), "where the group would have begun"
    assert abs(again.group.begin.number - began_ms) < 60_000
    guest.deliver(again.consumer, 7, 1)
    assert guest.hear(BasicDeliver).partition == 0


def test_a_consumer_that_all_partitions_refuse_is_refused(guest: Guest) -> None:
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=SHARED))
    for _ in range(2):
        guest.answer(Consume, (ReplyCode.RESOURCE_ERROR, "out of service"))
    assert guest.hear(Refused).text == "out of service"
    consume(guest)  # the tag is free


def test_a_partition_that_was_deleted_while_it_was_out_of_service_ends_a_consumer_without_others(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "RETRY_SECONDS", 0.01)
    one, other = consume(guest)
    guest.stage.tell(TopicRemoved("/", "orders"), QueueRemoved("/", "orders-0"), QueueRemoved("/", "orders-1"))
    guest.stage.say(0, Cancelled(one.consumer, "damaged"), Cancelled(other.consumer))
    assert guest.hear(BasicCancelled) == BasicCancelled(1, "c")


def ask_for(guest: Guest, request: int, *partitions: int) -> None:
    """The client asks where the group is in partitions."""
    guest.client.send(GroupOffsets(request, 1, "orders", "billing", list(partitions)))


def test_a_commit_asks_only_where_something_was_acknowledged_since_the_last(guest: Guest) -> None:
    one, other = consume(guest)
    for asked in (one, other):
        guest.deliver(asked.consumer, 0, 2)
        guest.hear(BasicDeliver)
    guest.client.send(BasicAck(1, [(1, 1)]))
    ask_for(guest, 5, 0, 1)
    state = PartitionState(0, 2, 0, 0, 0, [GroupState("billing", True, 1, 0)])
    assert guest.answer(InspectPartition, state) == InspectPartition(1, "billing")
    assert [(row["partition"], row["offset"]) for row in guest.hear(Ok).result] == [(0, 1)]
    guest.client.send(BasicAck(1, [(3, 3)]))
    ask_for(guest, 6, 0)
    assert guest.hear(Ok).result == []
    ask_for(guest, 7, 0, 1)
    assert guest.answer(InspectPartition, (ReplyCode.RESOURCE_ERROR, "hung")).queue == 2
    assert guest.hear(Refused).text == "hung"
    ask_for(guest, 8, 0, 1)
    assert guest.answer(InspectPartition, state).queue == 2, "nothing was proven"
    assert [row["partition"] for row in guest.hear(Ok).result] == [1]


def test_acks_in_a_partition_that_was_taken_away_are_told_of_once(guest: Guest) -> None:
    one, other = consume(guest)
    for asked in (one, other):
        guest.deliver(asked.consumer, 0, 2)
        guest.hear(BasicDeliver)
    guest.client.send(BasicAck(1, [(1, 1), (3, 3)]))
    for asked in (one, other):
        assert guest.stage.expect(0, Ack) == Ack(asked.consumer, [(0, 1)])
    guest.stage.say(0, Cancelled(one.consumer, "damaged"))
    guest.stage.expect(0, Release)
    ask_for(guest, 9, 0, 1)
    state = PartitionState(0, 2, 0, 0, 0, [GroupState("billing", True, 1, 0)])
    assert guest.answer(InspectPartition, state).queue == 2
    assert guest.hear(Refused).code == ReplyCode.PRECONDITION_FAILED
    ask_for(guest, 10, 0, 1)
    assert guest.hear(Ok).result == []


def test_where_a_shared_group_is_everywhere_is_asked_of_all_shards(guest: Guest) -> None:
    consume(guest)
    guest.client.send(GroupOffsets(9, 1, "orders", "billing"))
    states = [PartitionState(0, 2, 0, 0, 0, [GroupState("billing", True, at, 0)]) for at in (1, 2)]
    assert [guest.answer(InspectPartition, state).queue for state in states] == [1, 2]
    assert [row["offset"] for row in guest.hear(Ok).result] == [1, 2]


def test_a_cancelled_consumer_gets_no_more_and_settles_what_it_has(guest: Guest) -> None:
    one, _ = consume(guest)
    guest.deliver(one.consumer, 0, 1)
    tag = guest.hear(BasicDeliver).tag
    guest.client.send(BasicCancel(5, 1, "c"))
    for _ in range(2):
        guest.answer(Cancel)
    assert guest.hear(Ok).request == 5
    guest.client.send(BasicAck(1, [(tag, tag)]))
    assert guest.stage.expect(0, Ack) == Ack(one.consumer, [(0, 1)])


def prefetches(asked: list[Consume]) -> list[int]:
    return sorted(each.prefetch for each in asked)


def test_a_prefetch_is_split_over_the_partitions(guest: Guest) -> None:
    assert prefetches(consume(guest, "c", prefetch=5)) == [2, 3]
    assert prefetches(consume(guest, "d", prefetch=1)) == [-1, 1]
    assert prefetches(consume(guest, "e")) == [0, 0]


def test_a_permit_goes_where_messages_wait(guest: Guest) -> None:
    without, has = sorted(consume(guest, prefetch=1), key=lambda each: each.prefetch)
    guest.stage.say(0, Starved(without.consumer))
    assert guest.answer(Qos) == Qos(has.consumer, -1)
    assert guest.answer(Qos) == Qos(without.consumer, 1)


def test_a_permit_in_use_is_declined_and_goes_there_when_it_is_free(guest: Guest) -> None:
    without, has = sorted(consume(guest, prefetch=1), key=lambda each: each.prefetch)
    guest.deliver(has.consumer, 0, 1)
    guest.hear(BasicDeliver)
    guest.stage.say(0, Starved(without.consumer))
    assert guest.stage.expect(0, Declined) == Declined(without.consumer)
    guest.client.send(BasicAck(1, [(1, 1)]))
    assert guest.answer(Qos) == Qos(has.consumer, -1)
    assert guest.answer(Qos) == Qos(without.consumer, 1)


def test_a_permit_that_was_used_before_it_was_taken_goes_back(guest: Guest) -> None:
    without, has = sorted(consume(guest, prefetch=1), key=lambda each: each.prefetch)
    guest.stage.say(0, Starved(without.consumer))
    lowered = guest.stage.expect(0, Qos)
    guest.deliver(has.consumer, 0, 1)
    guest.stage.say(0, Answer(guest.stage.request(lowered), None))
    assert guest.answer(Qos) == Qos(has.consumer, 1)
    assert guest.stage.expect(0, Declined) == Declined(without.consumer)


def test_a_prefetch_that_changes_is_split_anew(guest: Guest) -> None:
    asked = consume(guest, prefetch=4)
    guest.client.send(BasicQos(4, 1, "c", 2))
    told = [guest.answer(Qos) for _ in range(2)]
    assert {(each.consumer, each.prefetch) for each in told} == {(each.consumer, 1) for each in asked}
    assert guest.hear(Ok).request == 4
    guest.client.send(BasicQos(5, 1, "c", 0))
    assert {guest.answer(Qos).prefetch for _ in range(2)} == {0}


def test_a_large_prefetch_is_not_split_and_members_without_room_leave_the_messages_to_others(guest: Guest) -> None:
    one, other = consume(guest, prefetch=200)
    assert prefetches([one, other]) == [200, 200]
    guest.deliver(one.consumer, 0, 200)
    guest.hear(BasicDeliver)
    guest.stage.say(0, Starved(one.consumer))
    assert guest.stage.expect(0, Declined) == Declined(one.consumer)
    assert {guest.answer(Qos).prefetch for _ in range(2)} == {-1}
    guest.client.send(BasicAck(1, [(1, 1)]))
    assert {guest.answer(Qos).prefetch for _ in range(2)} == {200}
    guest.client.send(BasicQos(5, 1, "c", 2))
    assert {guest.answer(Qos).prefetch for _ in range(2)} == {1, -1}, "it holds more than two messages of one"


def test_a_permit_used_before_the_client_knows_of_its_consumer_stays(guest: Guest) -> None:
    guest.client.send(BasicConsume(1, 1, "orders", "c", False, 1, SHARED))
    asked = [guest.stage.expect(0, Consume) for _ in range(2)]
    without, has = sorted(asked, key=lambda each: each.prefetch)
    guest.deliver(has.consumer, 0, 1)
    guest.stage.say(0, Starved(without.consumer))
    assert guest.stage.expect(0, Declined) == Declined(without.consumer)
    for each in asked:
        guest.stage.say(0, Answer(guest.stage.request(each), 0))
    tag = guest.hear(BasicDeliver).tag
    guest.client.send(BasicAck(1, [(tag, tag)]))
    assert guest.answer(Qos) == Qos(has.consumer, -1)
    assert guest.answer(Qos) == Qos(without.consumer, 1)
