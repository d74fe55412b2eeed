"""Searches inside a shard: what they find as queues change, and that they give way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, Call, Refusal, Request
from shardmq.bus.messages.reads import Found, Peek, Read, Search, Slices
from shardmq.bus.messages.shard import Ack, Get, Got, Nack, Publish
from shardmq.errors import HalfDone, ReplyCode
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.search.filters import SearchFilters
from shardmq.shards.handlers.searches import RUNNING_MAX, WAITING_MAX
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip_body
from tests.shards.driver import run_of

QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "urgent", 2, 0, arguments={"x-max-priority": 5}),
    Queue("/", "log", 3, 0, arguments={"x-queue-type": "stream"}),
)

ALL = SearchFilters()
SEVENS = SearchFilters(regex="7$")


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def found(shard: Clocked, filters: SearchFilters, queue: int = 1, count: int = 1000) -> list[int]:
    """The numbers in the bodies of what all pages find."""
    bodies: list[int] = []
    following: int | None = 0
    looked_at = left = 0
    while following is not None:
        deliveries, looked, following, left, _ = shard.do(Search, queue, following, count, filters)
        looked_at += looked
        for _, _, _, fields in deliveries:
            batch = RecordBatch(*fields)
            bodies += [int(record.body) for record in unpack(batch.records, batch.count)]
    assert left == 0
    assert looked_at == len(shard.read(queue=queue)), "every message that is ready was looked at once"
    return bodies


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_every_message_that_is_ready_is_looked_at_once(shard: Clocked, count: int) -> None:
    shard.take_in(run_of(0, 1000))  # more than are taken apart at once
    for start in range(1000, 1100, 7):
        shard.take_in(run_of(start, 7))
    for _ in range(30):
        shard.get()
    shard.tell(Ack(9, [(1, 9), (15, 20)]), Nack(9, [(10, 12)], True))
    ready = [int(body) for _, body, _, _ in shard.read()]
    assert ready[:3] == [10, 11, 30]
    assert found(shard, SEVENS, count=count) == [number for number in ready if number % 10 == 7]


def test_all_priorities_are_searched_in_the_order_of_delivery(shard: Clocked) -> None:
    for priority, start in ((0, 0), (5, 100), (2, 200), (5, 110)):
        batch = run_of(start, 10)
        batch.priority = priority
        shard.take_in(batch, queue=2)
    assert found(shard, SEVENS, queue=2, count=1) == [107, 117, 207, 7]


def test_a_stream_keeps_what_was_read(shard: Clocked) -> None:
    shard.take_in(run_of(0, 50), run_of(50, 50), queue=3)
    assert found(shard, SEVENS, queue=3, count=2) == list(range(7, 100, 10))
    _, looked_at, following, left, _ = shard.do(Search, 3, 90, 5, ALL)
    assert (looked_at, following, left) == (5, 95, 5)


def test_others_are_served_while_a_search_is_under_way(shard: Clocked) -> None:
    bodies = [b'{"n": %d, "list": [[1], [2], [3]]}' % number for number in range(20_000)]
    for start in range(0, len(bodies), 1000):
        shard.take_in(RecordBatch("ex", "key", 1, 5, 9, start, 1000, pack_many(bodies[start : start + 1000])))
    hard = SearchFilters(json=("$..list[*][0] == 4",))
    shard.send(Call(1, Search(1, 0, 10, hard)), Call(2, Get(9, 1, True)))
    shard.passes = 0
    assert shard.expect(Got).first == 0
    assert shard.passes < 5
    page = shard.expect(Answer).result
    assert shard.passes > 20, "a slice each"
    assert page[0] == []
    assert page[1] + page[3] == len(bodies) - 1


def test_a_page_gets_on_though_its_turn_comes_late(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmq.shards.handlers.searches.PAGE_SECONDS", -1.0)
    shard.take_in(run_of(0, 100))
    assert found(shard, SEVENS) == list(range(7, 100, 10))


def test_too_many_searches_are_refused_and_the_others_answered(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10))
    room = RUNNING_MAX + WAITING_MAX
    shard.send(*[Call(request, Search(1, 0, 1, SEVENS)) for request in range(1, room + 1)])
    refusal = shard.refused(Search, 1, 0, 1, SEVENS)
    assert (refusal.code, "search again" in refusal.text) == (ReplyCode.RESOURCE_ERROR, True)
    assert [shard.expect(Answer).result[0][0][0] for _ in range(room)] == [7] * room


def fail(*_given: object) -> None:
    raise ZeroDivisionError("nobody thought of it")


@pytest.mark.parametrize("what", ["Matcher.__init__", "Matcher.look", "_Running._answer"])
def test_a_search_that_fails_as_nobody_expected_is_refused_and_others_go_on(
    shard: Clocked, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    shard.take_in(run_of(0, 20))
    with monkeypatch.context() as patch:
        patch.setattr(f"shardmq.shards.handlers.searches.{what}", fail)
        refusal = shard.refused(Search, 1, 0, 10, SEVENS)
    assert refusal.code == ReplyCode.INTERNAL_ERROR
    assert "ZeroDivisionError" in refusal.text
    assert found(shard, SEVENS) == [7, 17]


def test_what_a_search_has_found_and_cannot_be_said_refuses_that_search(
    shard: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard.take_in(run_of(0, 20))
    with monkeypatch.context() as patch:
        patch.setattr("shardmq.shards.handlers.searches._Running._answer", lambda *_: Found([], 2**70, None, 0, 0))
        assert shard.refused(Search, 1, 0, 10, SEVENS).code == ReplyCode.INTERNAL_ERROR
    assert found(shard, SEVENS) == [7, 17]


@pytest.mark.parametrize("asked", [Peek(1, 0, 10), Slices(1, 1), Read(1, 0, 10, 10)], ids=["peek", "slices", "read"])
def test_where_a_request_to_read_finds_a_change_half_done_the_shard_ends(
    shard: Clocked, monkeypatch: pytest.MonkeyPatch, asked: Request[Any]
) -> None:
    monkeypatch.setattr("shardmq.shards.queues.plain_queue.PlainQueue.catch_up", fail)
    shard.send(Publish((1,), run_of(20, 1)), Call(1, asked))
    with pytest.raises(HalfDone):
        shard.expect(Answer)


def test_a_search_that_waited_and_meets_damage_is_refused_and_ends_nothing_else(shard: Clocked) -> None:
    shard.take_in(run_of(0, 50))
    early, late = run_of(0, 10), run_of(10, 10)
    late.timestamp_ms = early.timestamp_ms + 10
    shard.take_in(early, late, queue=3)  # in one segment: when the messages in it came is read
    shard.restart()
    flip_body(shard.store, 3)
    since = SearchFilters(since_ms=early.timestamp_ms + 5)
    shard.send(*[Call(request, Search(1, 0, 1, SEVENS)) for request in range(1, RUNNING_MAX + 1)])
    shard.send(Call(77, Search(3, 0, 1, since)))
    assert "queue 'log' in vhost '/' is out of service" in shard.expect(Refusal).text
    assert [shard.expect(Answer).result[0][0][0] for _ in range(RUNNING_MAX)] == [7] * RUNNING_MAX
    assert found(shard, SEVENS) == list(range(7, 50, 10))
