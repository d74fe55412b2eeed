"""Consumers that start and end without waiting for their shard, and those that wait; the shards are the test's."""

import select
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, BusMessage, Refusal
from shardmq.bus.messages.shard import (
    Ack,
    Cancel,
    Cancelled,
    Consume,
    Delivered,
    Gateways,
    Get,
    Got,
    Nack,
    OutOfService,
    Release,
)
from shardmq.errors import ReplyCode
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelled,
    BasicConsume,
    BasicDeliver,
    BasicGet,
)
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.topology.changes import QueueAdded, QueueRemoved
from shardmq.topology.entities import Queue
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]


def run_of(count: int) -> RecordBatch:
    return RecordBatch("", "q", 0, 0, 1, 1, count, pack(None, b"x") * count)


def alone(start_stage: StartStage, *queues: Any) -> Stage:
    """A gateway that its shards have told that it is the only one."""
    stage = start_stage([("q", 0, {}), *queues])
    tell(stage, Gateways(1))
    return stage


def tell(stage: Stage, *messages: BusMessage) -> None:
    """Shard 0 says something, and the gateway has taken it in."""
    with RawClient(stage).open() as client:
        client.send(BasicGet(9, 1, "q"))
        asked = stage.expect(0, Get)
        stage.say(0, *messages, Got(stage.request(asked), 0, False, run_of(1), 0))
        assert isinstance(client.receive(), Ok)


def said_by(stage: Stage, client: RawClient, *kinds: type[BusMessage]) -> list[BusMessage]:
    """What the gateway has told the shard of these kinds, once it has carried out all that the client sent."""
    client.ask(TopologyList, "queues")
    stage.work()
    return [said for said in stage.shards[0].heard if isinstance(said, kinds)]


def started(stage: Stage, client: RawClient, **terms: Any) -> int:
    """A consumer that was answered before its shard was; its number."""
    client.send(BasicConsume(3, 1, "q", "c", **terms))
    assert isinstance(client.receive(), Ok)
    asked = stage.expect(0, Consume)
    stage.say(0, Answer(stage.request(asked), None))
    return asked.consumer


def is_answered_unasked(stage: Stage, client: RawClient, consume: BasicConsume) -> bool:
    """Whether a consumer is started before the shard has answered; in the end it is."""
    client.send(consume)
    asked = stage.expect(0, Consume)
    request = stage.request(asked)
    with RawClient(stage).open() as other:  # what the gateway had to say before is in the socket now
        other.ask(TopologyList, "queues")
    is_there = bool(select.select([client.socket], [], [], 0)[0])
    stage.say(0, Answer(request, None))
    answer = client.receive()
    assert isinstance(answer, Ok)
    assert answer.request == consume.request
    return is_there


def test_a_consumer_of_the_only_gateway_starts_before_its_shard_answers(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        assert is_answered_unasked(stage, client, BasicConsume(3, 1, "q", "c"))
        assert is_answered_unasked(stage, client, BasicConsume(4, 1, "q", "without acks", True))


@pytest.mark.parametrize("gateways", [2, 0])
def test_where_other_gateways_may_have_consumers_the_shard_is_asked(start_stage: StartStage, gateways: int) -> None:
    stage = alone(start_stage)
    tell(stage, Gateways(gateways))
    with RawClient(stage).open() as client:
        assert not is_answered_unasked(stage, client, BasicConsume(3, 1, "q", "c"))
        client.send(BasicCancel(5, 1, "c"))
        stage.say(0, Answer(stage.request(stage.expect(0, Cancel)), None))
        assert isinstance(client.receive(), Ok)


def test_who_wants_to_be_the_only_consumer_waits_for_the_shard_and_so_do_others_from_then_on(
    start_stage: StartStage,
) -> None:
    stage = alone(start_stage, ("other", 0, {}))
    with RawClient(stage).open() as client:
        assert not is_answered_unasked(stage, client, BasicConsume(3, 1, "q", "c", exclusive=True))
        assert not is_answered_unasked(stage, client, BasicConsume(4, 1, "q", "d"))
        assert is_answered_unasked(stage, client, BasicConsume(5, 1, "other", "e"))


def test_consumers_of_queues_that_go_by_themselves_wait_for_the_shard(start_stage: StartStage) -> None:
    stage = alone(start_stage, ("expires", 0, {"x-expires": 60_000}))
    stage.tell(QueueAdded(Queue("/", "leaves", 7, 0, auto_delete=True)))
    with RawClient(stage).open() as client:
        assert not is_answered_unasked(stage, client, BasicConsume(3, 1, "expires", "c"))
        assert not is_answered_unasked(stage, client, BasicConsume(4, 1, "leaves", "d"))


def test_a_consumer_of_a_queue_that_is_out_of_service_is_refused(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    tell(stage, OutOfService(1, "damaged"))
    with RawClient(stage).open() as client:
        client.send(BasicConsume(3, 1, "q", "c"))
        asked = stage.expect(0, Consume)
        stage.say(0, Refusal(stage.request(asked), ReplyCode.RESOURCE_ERROR, "damaged"))
        assert isinstance(client.receive(), Refused)


def test_a_consumer_whose_queue_was_deleted_meanwhile_is_cancelled(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        client.send(BasicConsume(3, 1, "q", "c"))
        assert isinstance(client.receive(), Ok)
        asked = stage.expect(0, Consume)
        stage.tell(QueueRemoved("/", "q"))
        stage.say(0, Refusal(stage.request(asked), ReplyCode.NOT_FOUND, "deleted"))
        ended = client.receive()
        assert isinstance(ended, BasicCancelled)
        assert ended.consumer == "c"


def test_a_consumer_that_settled_all_it_saw_ends_at_once_and_gets_nothing_more(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        number = started(stage, client)
        stage.say(0, Delivered(number, 0, False, run_of(2)))
        assert isinstance(client.receive(), BasicDeliver)
        client.send(BasicAck(1, [(1, 2)]))
        client.send(BasicGet(4, 1, "q"))  # the shard answers a request behind the ack
        stage.say(0, Answer(stage.request(stage.expect(0, Get)), None))
        assert isinstance(client.receive(), Ok)
        client.send(BasicCancel(5, 1, "c"))
        assert isinstance(client.receive(), Ok)
        assert said_by(stage, client, Ack, Cancel, Release)[-1:] == [Release(number, True)]
        stage.say(0, Delivered(number, 2, False, run_of(5)), Cancelled(number))
        client.send(BasicGet(6, 1, "q"))
        asked = stage.expect(0, Get)
        stage.say(0, Got(stage.request(asked), 2, False, run_of(1), 0))
        answer = client.receive()
        assert isinstance(answer, Ok)
        assert answer.request == 6
        assert not said_by(stage, client, Nack)


def test_consumers_end_at_once_one_after_the_other(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        for request, tag in enumerate("abc", 10):
            client.send(BasicConsume(request, 1, "q", tag))
            assert isinstance(client.receive(), Ok)
            stage.say(0, Answer(stage.request(stage.expect(0, Consume)), None))
        client.send(BasicGet(4, 1, "q"))  # the shard has carried out all before it
        stage.say(0, Answer(stage.request(stage.expect(0, Get)), None))
        assert isinstance(client.receive(), Ok)
        for request, tag in enumerate("abc", 20):
            client.send(BasicCancel(request, 1, tag))
            assert isinstance(client.receive(), Ok)
        assert not said_by(stage, client, Cancel)


def test_a_consumer_ends_at_once_after_one_for_which_the_shard_was_asked(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        for request, tag in enumerate("ab", 10):
            client.send(BasicConsume(request, 1, "q", tag))
            assert isinstance(client.receive(), Ok)
            asked = stage.request(stage.expect(0, Consume))
        client.send(BasicCancel(20, 1, "a"))  # the shard has not said that they run
        stage.say(0, Answer(asked, None), Answer(stage.request(stage.expect(0, Cancel)), None))
        assert isinstance(client.receive(), Ok)
        client.send(BasicCancel(21, 1, "b"))
        assert isinstance(client.receive(), Ok)
        assert said_by(stage, client, Cancel) == []


def test_a_consumer_whose_acks_are_on_their_way_ends_when_the_shard_says_so(start_stage: StartStage) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        number = started(stage, client)
        stage.say(0, Delivered(number, 0, False, run_of(2)))
        assert isinstance(client.receive(), BasicDeliver)
        client.send(BasicAck(1, [(1, 2)]), BasicCancel(5, 1, "c"))
        stage.say(0, Answer(stage.request(stage.expect(0, Cancel)), None))
        assert isinstance(client.receive(), Ok)


@pytest.mark.parametrize("auto_ack", [False, True])
def test_a_consumer_with_unacked_messages_or_without_acks_ends_when_the_shard_says_so(
    start_stage: StartStage, auto_ack: bool
) -> None:
    stage = alone(start_stage)
    with RawClient(stage).open() as client:
        number = started(stage, client, auto_ack=auto_ack)
        stage.say(0, Delivered(number, 0, False, run_of(1)))
        assert isinstance(client.receive(), BasicDeliver)
        client.send(BasicCancel(5, 1, "c"))
        request = stage.request(stage.expect(0, Cancel))
        stage.say(0, Delivered(number, 1, False, run_of(1)), Answer(request, None))
        assert isinstance(client.receive(), BasicDeliver)
        assert isinstance(client.receive(), Ok)
