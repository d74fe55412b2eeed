"""What is declared again, and is there exactly so, is answered without the coordinator. Its part is the test's."""

from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.shard import Counts
from shardmq.errors import ReplyCode
from shardmq.protocol.native.operations.connection import ChannelOpen, Ok
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import ExchangeBind, ExchangeDeclare, QueueBind, QueueDeclare
from shardmq.topology.changes import QueueAdded
from shardmq.topology.commands import Bind, DeclareExchange, DeclareQueue
from shardmq.topology.entities import Binding, Exchange, Queue
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
QUEUES = [("plain", 0, {}), ("limited", 1, {"x-max-length": 1})]
EXCHANGES = [Exchange("/", "e", "topic"), Exchange("/", "f", "fanout", False, {"alternate-exchange": "e"}, True)]
BINDINGS = [Binding("/", "e", "plain", "k", {}), Binding("/", "e", "f", "k", {"a": 1}, True)]


@pytest.fixture
def stage(start_stage: StartStage) -> Stage:
    return start_stage(QUEUES, EXCHANGES, BINDINGS)


@pytest.mark.parametrize(
    "operation",
    [
        ExchangeDeclare(3, 1, "e", "topic", True),
        ExchangeDeclare(3, 1, "f", "fanout", False, {"alternate-exchange": "e"}, True),
        QueueBind(3, 1, "plain", "e", "k"),
        ExchangeBind(3, 1, "f", "e", "k", {"a": 1}),
    ],
)
def test_an_exchange_or_binding_that_is_there_is_answered_at_once(stage: Stage, operation: Operation) -> None:
    with RawClient(stage).open() as client:
        client.send(operation)
        assert client.receive() == Ok(3, 1, None)
    assert not stage.commands


@pytest.mark.parametrize(
    ("operation", "command"),
    [
        (ExchangeDeclare(3, 1, "e", "direct", True), DeclareExchange),
        (ExchangeDeclare(3, 1, "e", "topic", False), DeclareExchange),
        (ExchangeDeclare(3, 1, "e", "topic", True, internal=True), DeclareExchange),
        (ExchangeDeclare(3, 1, "g", "topic", True), DeclareExchange),
        (QueueBind(3, 1, "plain", "e", "other"), Bind),
        (QueueBind(3, 1, "plain", "e", "k", {"a": 1}), Bind),
        (ExchangeBind(3, 1, "f", "e", "k", {"a": True}), Bind),
        (QueueDeclare(3, 1, "limited", True, {"x-max-length": 2}), DeclareQueue),
        (QueueDeclare(3, 1, "limited", True, {"x-max-length": True}), DeclareQueue),
        (QueueDeclare(3, 1, "plain", True, auto_delete=True), DeclareQueue),
        (QueueDeclare(3, 1, "plain", False), DeclareQueue),
    ],
)
def test_what_differs_is_for_the_coordinator_to_judge(stage: Stage, operation: Operation, command: type[Any]) -> None:
    with RawClient(stage).open() as client:
        client.send(operation)
        stage.until(lambda: bool(stage.commands))
    assert [type(each) for each in stage.commands] == [command]


def test_a_queue_that_is_there_is_counted(stage: Stage) -> None:
    with RawClient(stage).open() as client:
        client.send(QueueDeclare(3, 1, "limited", True, {"x-max-length": 1}))
        counts = stage.expect(1, Counts)
        assert counts == Counts(2, is_declared=True)
        stage.say(1, Answer(stage.request(counts), (7, 1)))
        assert client.receive() == Ok(3, 1, {"queue": "limited", "messages": 7, "consumers": 1})
    assert not stage.commands


def test_a_queue_that_its_shard_is_about_to_drop_is_declared_anew(stage: Stage) -> None:
    stage.answers[DeclareQueue] = 1
    with RawClient(stage).open() as client:
        client.send(QueueDeclare(3, 1, "plain", True))
        stage.say(0, Refusal(stage.request(stage.expect(0, Counts)), ReplyCode.NOT_FOUND, "no queue 1"))
        stage.until(lambda: bool(stage.commands))
        again = stage.expect(0, Counts)
        stage.say(0, Answer(stage.request(again), (0, 0)))
        assert client.receive() == Ok(3, 1, {"queue": "plain", "messages": 0, "consumers": 0})
    assert stage.commands == [DeclareQueue("/", "plain", True, {})]


def test_a_queue_that_was_not_there_has_nothing_in_it(stage: Stage) -> None:
    with RawClient(stage).open() as client:
        stage.told[DeclareQueue] = QueueAdded(Queue("/", "new", 9, 1))
        client.send(QueueDeclare(3, 1, "new", True))
        stage.until(lambda: bool(stage.commands))
        assert client.receive() == Ok(3, 1, {"queue": "new", "messages": 0, "consumers": 0})
    assert not [heard for shard in stage.shards for heard in shard.heard if isinstance(heard, Counts)]


def test_without_the_coordinator_nothing_is_answered_from_memory(stage: Stage) -> None:
    with RawClient(stage).open() as client:
        stage.lose_coordinator()
        client.send(ExchangeDeclare(3, 1, "e", "topic", True), ChannelOpen(5, 2))
        assert client.receive() == Ok(5, 2)
