"""The list of consumer groups, where partitions are out of service or their shards stand still."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from shardmq.bus.messages.groups import GroupState, InspectPartition, PartitionState
from shardmq.errors import ReplyCode, RequestError, Unavailable
from shardmq.gateway.handlers.topics import questions
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.topology.changes import TopicPut
from shardmq.topology.entities import Queue, Topic
from tests.gateway.membership import STREAM, Guest, StartStage
from tests.gateway.rawclient import RawClient


@pytest.fixture
def guest(start_stage: StartStage) -> Iterator[Guest]:
    """A topic of two partitions, the second on another shard, and a stream."""
    stage = start_stage([("hurt", 0, STREAM), ("orders-0", 0, STREAM), ("orders-1", 1, STREAM)])
    stage.tell(TopicPut(Topic("/", "orders", (2, 3))))
    with RawClient(stage).open() as client:
        yield Guest(stage, client)


def listed(guest: Guest) -> list[tuple[Any, ...]]:
    fields = ("topic", "group", "type", "read", "lag", "damaged", "unknown")
    return [tuple(row[field] for field in fields) for row in guest.hear(Ok).result]


def test_partitions_that_are_out_of_service_or_silent_are_left_out_and_named(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ANSWER_SECONDS", 0.1)
    guest.client.send(TopologyList(1, 1, "groups"))
    assert guest.answer(InspectPartition, (ReplyCode.RESOURCE_ERROR, "queue 'hurt' is out of service")).queue == 1
    state = PartitionState(0, 10, 0, 0, 0, [GroupState("billing", False, 4, 1, "m")])
    assert guest.answer(InspectPartition, state).queue == 2
    assert guest.stage.expect(1, InspectPartition).queue == 3  # and is not answered
    assert listed(guest) == [("orders", "billing", "ordered", 1, 6, [], [1])]
    guest.client.send(TopologyList(2, 1, "groups"))
    for answer in (PartitionState(0, 0, 0, 0, 0, [GroupState("audit", None, 0, 0, is_damaged=True)]), state):
        guest.answer(InspectPartition, answer)
    assert listed(guest) == [
        ("hurt", "audit", "", 0, 0, [0], []),
        ("orders", "billing", "ordered", 1, 6, [], [1]),
    ]


class Silent:
    """A link to a shard that lets no question through."""

    def look(self, _question: object, reply: Callable[[RequestError], None], _seconds: float) -> None:
        reply(Unavailable("shard-0 does not answer now"))


def test_any_number_of_partitions_may_be_left_out_at_once() -> None:
    client: Any = SimpleNamespace(state=SimpleNamespace(links=[Silent()]))
    places = [(number, Queue("/", f"q-{number}", number, 0)) for number in range(50_000)]
    came: list[list[object]] = []
    questions.look_at_all(client, places, lambda place: InspectPartition(place[1].id), came.append)
    assert came == [[None] * len(places)]
