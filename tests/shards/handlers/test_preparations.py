"""What a commit is to bring into queues is read before: in turns, a little in each pass, and once however often it is
asked for.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardmq.bus.messages.base import Answer, BusMessage, Call, Refusal
from shardmq.bus.messages.shard import Publish, ToShard
from shardmq.bus.messages.transactions import FollowDecision, PreparationProgress, Prepare, Seal
from shardmq.shards.state import preparations
from shardmq.shards.storage.schema import STAGE
from shardmq.shards.storage.staging_table import CHECK_BATCH_BYTES, StagingTable
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip
from tests.shards.driver import run_of

ATTEMPT, SECOND = 71, 5
LARGE, SMALL = 4, 5
"""Transactions."""

BATCHES = 20
BATCH_BYTES = len(run_of(10, 1).records)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(Queue("/", "q", 1, 0))
    yield shard
    shard.close()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """One batch is read in a pass; the places from which it was: transaction, attempt, sequence."""
    monkeypatch.setattr(preparations, "PASS_BYTES", 1)
    monkeypatch.setattr(preparations, "SLICE_BYTES", 1)
    places: list[tuple[int, int, int]] = []
    check = StagingTable.check

    def noted(table: StagingTable, transaction: int, attempt: int, since: int, cost_max: int) -> Any:
        places.append((transaction, attempt, since))
        return check(table, transaction, attempt, since, cost_max)

    monkeypatch.setattr(StagingTable, "check", noted)
    return places


def stage(shard: Clocked, transaction: int, count: int = BATCHES, attempt: int = ATTEMPT) -> None:
    """Batches of one message each, sealed."""
    batches = [run_of(10 + number, 1) for number in range(count)]
    assert not shard.publish(
        *[Publish((1,), batch, attempt, number, 0, transaction) for number, batch in enumerate(batches)]
    )
    assert shard.do(Seal, transaction, attempt)[0] == count


def turn_until(shard: Clocked, wanted: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if wanted():
            return
        shard.turn()
    raise AssertionError("it did not come to that")


def reply(shard: Clocked, request: int) -> Any:
    return shard.expect(BusMessage, lambda message: getattr(message, "request", None) == request)


def progress(shard: Clocked) -> list[tuple[int, int, int]]:
    told = [message for message in shard.inbox if isinstance(message, PreparationProgress)]
    return [(each.transaction, each.read, each.staged) for each in told]


def test_a_commit_that_is_asked_for_again_goes_on_where_it_is(shard: Clocked, read: list[tuple[int, int, int]]) -> None:
    stage(shard, LARGE)
    for request in (1, 2, 3):
        shard.send(Call(request, Prepare(LARGE, [ATTEMPT])))
        turn_until(shard, lambda: len(read) >= 5 * request)  # noqa: B023
    for request in (1, 2):
        refusal = reply(shard, request)
        assert isinstance(refusal, Refusal)
        assert refusal.code == 506
        assert "was asked for again" in refusal.text
    assert reply(shard, 3) == Answer(3, [BATCHES])
    assert read == [(LARGE, ATTEMPT, number) for number in range(BATCHES + 1)]
    assert not shard.loop._transactions.late


def test_it_goes_on_for_other_attempts_and_reads_those_that_were_read_no_more(
    shard: Clocked, read: list[tuple[int, int, int]]
) -> None:
    stage(shard, LARGE)
    stage(shard, LARGE, 3, SECOND)
    assert shard.do(Prepare, LARGE, [ATTEMPT]) == [BATCHES]
    assert shard.do(Prepare, LARGE, [SECOND, ATTEMPT, 99]) == [3, BATCHES, 0]
    assert shard.do(Prepare, LARGE, [ATTEMPT]) == [BATCHES]
    assert len(read) == len(set(read)) == BATCHES + 1 + 3 + 1


def test_what_an_earlier_process_read_is_read_again(shard: Clocked, read: list[tuple[int, int, int]]) -> None:
    stage(shard, LARGE)
    assert shard.do(Prepare, LARGE, [ATTEMPT]) == [BATCHES]
    shard.restart()
    read.clear()
    assert shard.do(Prepare, LARGE, [ATTEMPT]) == [BATCHES]
    assert len(read) == BATCHES + 1


def test_a_small_commit_does_not_wait_for_a_large_one(shard: Clocked, read: list[tuple[int, int, int]]) -> None:
    stage(shard, LARGE)
    stage(shard, SMALL, 2)
    shard.send(Call(1, Prepare(LARGE, [ATTEMPT])))
    turn_until(shard, lambda: bool(read))
    shard.send(Call(2, Prepare(SMALL, [ATTEMPT])))
    assert reply(shard, 2) == Answer(2, [2])
    of_small = [place for place in read if place[0] == SMALL]
    assert len(of_small) == 3
    behind = read[read.index(of_small[0]) : read.index(of_small[-1])]
    assert len([place for place in behind if place[0] == LARGE]) in (2, 3), "both had their turns"
    assert reply(shard, 1) == Answer(1, [BATCHES])


def test_a_pass_reads_few_batches_however_small_they_are(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparations, "PASS_BYTES", 10 * CHECK_BATCH_BYTES)
    monkeypatch.setattr(preparations, "SLICE_BYTES", 5 * CHECK_BATCH_BYTES)
    stage(shard, LARGE, 300)
    before = shard.passes
    assert shard.do(Prepare, LARGE, [ATTEMPT]) == [300]
    assert shard.passes - before >= 300 // 10


def test_who_asks_for_it_is_told_how_far_it_is(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparations, "PASS_BYTES", 1)
    monkeypatch.setattr(preparations, "SLICE_BYTES", 1)
    monkeypatch.setattr(preparations, "TELL_SECONDS", 0.0)
    stage(shard, LARGE)
    stage(shard, SMALL)
    assert shard.do(Prepare, SMALL, [ATTEMPT]) == [BATCHES]
    assert progress(shard) == []
    assert shard.do(Prepare, LARGE, [ATTEMPT], True) == [BATCHES]
    staged = BATCHES * BATCH_BYTES
    assert progress(shard) == [(LARGE, number * BATCH_BYTES, staged) for number in range(1, BATCHES + 1)]


def test_it_is_told_seldom(shard: Clocked, read: list[tuple[int, int, int]]) -> None:
    stage(shard, LARGE)
    assert shard.do(Prepare, LARGE, [ATTEMPT], True) == [BATCHES]
    assert len(read) > BATCHES
    assert len(progress(shard)) < BATCHES


@pytest.mark.usefixtures("read")
def test_an_abort_ends_it(shard: Clocked) -> None:
    stage(shard, LARGE)
    shard.send(Call(1, Prepare(LARGE, [ATTEMPT])), Call(2, FollowDecision(LARGE, [])))
    refusal = reply(shard, 1)
    assert isinstance(refusal, Refusal)
    assert refusal.text.startswith(f"transaction {LARGE} is over")
    assert reply(shard, 2) == Answer(2, None)
    assert not shard.loop._transactions.late


@pytest.mark.usefixtures("read")
def test_damage_is_found_in_each_try(shard: Clocked) -> None:
    stage(shard, LARGE)
    stage(shard, SMALL, 2)
    flip(shard.store, "staged", STAGE.pack(LARGE, ATTEMPT, 7, 1, BATCH_BYTES))
    for _ in range(2):
        assert shard.refused(Prepare, LARGE, [ATTEMPT]).text.startswith(f"transaction {LARGE} cannot be carried out")
    assert shard.do(Prepare, SMALL, [ATTEMPT]) == [2]


def test_earlier_versions_ask_and_are_asked_alike() -> None:
    class Earlier(msgspec.Struct, array_like=True, frozen=True, tag=39):
        transaction: int
        attempts: list[int]

    asked = msgspec.msgpack.encode(Prepare(LARGE, [ATTEMPT], is_told=True))
    assert msgspec.msgpack.decode(asked, type=Earlier) == Earlier(LARGE, [ATTEMPT])
    call = msgspec.msgpack.encode([5, 1, Earlier(LARGE, [ATTEMPT])])
    assert msgspec.msgpack.decode(call, type=ToShard) == Call(1, Prepare(LARGE, [ATTEMPT]))
