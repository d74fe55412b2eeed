"""What was under way when a shard went away is asked again once: it may be why."""

from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.reads import Found, Search
from shardmq.bus.messages.shard import Consume, Counts
from shardmq.errors import ReplyCode
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.reads import MessagesSearch
from shardmq.protocol.native.operations.topology import QueueDeclare
from shardmq.search.filters import SearchFilters
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]

SEARCH = MessagesSearch(9, 1, "q", 0, 0, 10, SearchFilters(text="x"))


def go_away(stage: Stage, *, is_settled: bool = False) -> None:
    """The shard goes away, and is there again."""
    shard, link = stage.shards[0], stage.state.links[0]
    life = link.life
    if is_settled:
        shard.listener.settle("another host leads")
        stage.until(lambda: link.life > life)
        shard.listener.resume("for the test")
    else:
        shard.listener.end_all("for the test")
    stage.until(lambda: link.life > life and link.is_open)


def test_a_request_that_was_under_way_each_time_is_refused(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client, RawClient(stage).open() as other:
        client.send(SEARCH)
        stage.expect(0, Search)
        go_away(stage)
        stage.expect(0, Search)
        go_away(stage)
        said = client.receive()
        assert isinstance(said, Refused)
        assert (said.code, "went away twice" in said.text) == (ReplyCode.RESOURCE_ERROR, True)
        other.send(QueueDeclare(9, 1, "q", True, passive=True))
        asked = stage.expect(0, Counts)
        go_away(stage)
        asked = stage.expect(0, Counts)
        stage.say(0, Answer(stage.request(asked), (3, 0)))
        said = other.receive()
        assert isinstance(said, Ok), "nothing of the others was lost"
        assert not [message for message in stage.shards[0].heard if isinstance(message, Search)]


def test_where_it_was_not_taken_in_it_is_asked_as_often_as_it_takes(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        client.send(SEARCH)
        stage.expect(0, Search)
        for _ in range(3):
            go_away(stage, is_settled=True)
            asked = stage.expect(0, Search)
        stage.say(0, Answer(stage.request(asked), Found([], 0, None, 0, 0)))
        assert isinstance(client.receive(), Ok)


def test_consumers_are_started_however_often_their_shard_goes_away(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage).open() as client:
        client.send(BasicConsume(9, 1, "q", "c"))
        asked = stage.expect(0, Consume)
        stage.say(0, Answer(stage.request(asked), None))
        assert isinstance(client.receive(), Ok)
        for _ in range(3):
            go_away(stage)
            stage.expect(0, Consume)


def test_an_answer_that_nobody_can_shape_refuses_its_request_alone(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any, **_named: Any) -> None:
        raise ZeroDivisionError("nobody thought of it")

    stage = start_stage([("q", 0, {})])
    monkeypatch.setattr("shardmq.gateway.handlers.reads.delivery_tables", fail)
    with RawClient(stage).open() as client:
        client.send(SEARCH, QueueDeclare(10, 1, "q", True, passive=True))
        stage.say(0, Answer(stage.request(stage.expect(0, Search)), Found([], 0, None, 0, 0)))
        said = client.receive()
        assert isinstance(said, Refused)
        assert (said.code, "ZeroDivisionError" in said.text) == (ReplyCode.INTERNAL_ERROR, True)
        stage.say(0, Answer(stage.request(stage.expect(0, Counts)), (3, 0)))
        assert isinstance(client.receive(), Ok), "what was held behind it"
