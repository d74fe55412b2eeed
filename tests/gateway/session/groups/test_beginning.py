"""Where groups begin in partitions in which they have no cursor, as the shards of a topic hear it from a gateway."""

from collections.abc import Iterator

import pytest

from shardmq.bus.messages.groups import GroupState, InspectPartition, PartitionState
from shardmq.bus.messages.membership import JoinGroup
from shardmq.bus.messages.shard import Consume
from shardmq.errors import ReplyCode
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.topology.changes import QueueAdded, TopicPut
from shardmq.topology.entities import Queue, Topic
from tests.gateway.membership import STREAM, Guest, StartStage, stage_of
from tests.gateway.rawclient import RawClient

AWAY = (ReplyCode.RESOURCE_ERROR, "shard-0 did not answer in time")
AT_THE_END = {"x-group": "billing"}
GROWTH = ((5, 2),)


@pytest.fixture
def guest(start_stage: StartStage) -> Iterator[Guest]:
    stage = stage_of(start_stage)
    with RawClient(stage).open() as client:  # type: ignore[arg-type]
        yield Guest(stage, client)


def extend(guest: Guest) -> None:
    """The topic gets a third partition, queue 9."""
    queue = Queue("/", "orders-2", 9, 0, True, STREAM)
    guest.stage.tell(QueueAdded(queue), TopicPut(Topic("/", "orders", (1, 2, 9), growth=GROWTH)))


def seen(partitions_at_begin: int | None, next_offset: int = 0) -> PartitionState:
    """A partition in which the group has a cursor, made with so many partitions; None where it has none."""
    groups = []
    if partitions_at_begin is not None:
        groups.append(GroupState("billing", False, 0, 1, partitions_at_begin=partitions_at_begin))
    return PartitionState(0, next_offset, 0, 0, 0, groups)


def begins(asked: Consume) -> tuple[str, int]:
    assert asked.group is not None
    return asked.group.begin.begin, asked.group.partitions_at_begin


def member(guest: Guest) -> str:
    """The name of a member that was let in."""
    joined = guest.news(JoinGroup).member
    assert guest.hear(Ok)
    return joined.member


@pytest.mark.parametrize(
    ("cursors", "begins_later", "at_begin"),
    [
        ([None, None, None], "next", 3),
        ([2, 2, None], "first", 2),
        ([3, None, None], "next", 3),
        ([3, 2, None], "first", 2),
        ([0, 0, None], "first", 2),
        ([3, 0, None], "next", 3),
    ],
    ids=["new", "older", "another begins", "as the oldest says", "of nobody's member", "a member's says"],
)
def test_a_partition_is_read_from_the_first_message_on_where_the_group_is_older(
    guest: Guest, cursors: list[int | None], begins_later: str, at_begin: int
) -> None:
    extend(guest)
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=AT_THE_END))
    for cursor in cursors:
        guest.answer(InspectPartition, seen(cursor))
    name = member(guest)
    asked = guest.assign(name, (2, 1), (9, 1))
    assert [begins(each) for each in asked] == [("next", at_begin), (begins_later, at_begin)]


@pytest.mark.parametrize("kind", ["ordered", "shared"])
def test_a_partition_that_comes_while_a_member_runs_is_read_from_the_first_message_on(guest: Guest, kind: str) -> None:
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments={**AT_THE_END, "x-group-type": kind}))
    if kind == "ordered":
        name = member(guest)  # nothing is asked of a topic that got no partitions
        asked = guest.assign(name, (2, 1))
        extend(guest)
        asked += guest.assign(name, (9, 2))
    else:
        asked = [guest.answer(Consume, 0) for _ in range(2)][1:]
        guest.hear(Ok)
        extend(guest)
        asked.append(guest.answer(Consume, 0))
    assert [begins(each) for each in asked] == [("next", 2), ("first", 2)]


def test_an_offset_that_a_later_partition_has_is_not_where_an_older_group_begins_there(guest: Guest) -> None:
    extend(guest)
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments={**AT_THE_END, "x-stream-offset": 7}))
    for cursor in (2, None, None):
        guest.answer(InspectPartition, seen(cursor, 20))
    asked = guest.assign(member(guest), (2, 1), (9, 1))
    assert [begins(each) for each in asked] == [("offset", 2), ("first", 2)]


def test_a_group_that_is_known_to_exist_goes_on_while_a_shard_is_away(guest: Guest) -> None:
    extend(guest)
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=AT_THE_END))
    for answer in (AWAY, seen(2), AWAY):
        guest.answer(InspectPartition, answer)
    assert begins(guest.assign(member(guest), (9, 1))[0]) == ("first", 2)


def test_one_that_has_not_begun_where_it_would_have_is_new_though_a_shard_is_away(guest: Guest) -> None:
    extend(guest)
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=AT_THE_END))
    for answer in (AWAY, seen(None), seen(None)):
        guest.answer(InspectPartition, answer)
    assert begins(guest.assign(member(guest), (9, 1))[0]) == ("next", 3)


@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        (AT_THE_END, (AWAY, AWAY, seen(None))),
        ({**AT_THE_END, "x-stream-offset": 0}, (AWAY, seen(None), seen(None))),
    ],
    ids=["it may exist", "an offset may not"],
)
def test_a_group_does_not_begin_while_it_is_not_known_whether_it_may(
    guest: Guest, arguments: dict[str, object], answers: tuple[object, ...]
) -> None:
    extend(guest)
    guest.client.send(BasicConsume(1, 1, "orders", "c", arguments=arguments))
    for answer in answers:
        guest.answer(InspectPartition, answer)
    assert guest.hear(Refused).text == AWAY[1]
