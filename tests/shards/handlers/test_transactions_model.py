"""Transactions through a real worker and store: resends in any framing against a model, and a crash after any pass."""

import itertools
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.shard import Publish
from shardmq.bus.messages.transactions import FollowDecision, Prepare, Seal
from shardmq.message.record import pack, pack_many
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.shards.handlers import decisions
from shardmq.shards.state import attempts as attempts_module
from shardmq.shards.state import preparations
from shardmq.shards.state.attempts import StagedAttempt
from shardmq.shards.storage.entries import Staged, StagedPlace
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import run_of
from tests.shards.inside import inside
from tests.shards.stores import StoreRoom

QUEUES = (Queue("/", "q", 1, 0), Queue("/", "other", 2, 0, arguments={"x-max-priority": 3}))
MISSING = 99
FIRST, SECOND, DROPPED = 71, 5, 8

frames = st.tuples(
    st.sampled_from([FIRST, SECOND, DROPPED]),
    st.integers(0, 120),
    st.integers(1, 30),
    st.sampled_from([(1,), (2,), (1, 2), (1, MISSING)]),
)
"""Attempt, first message, how many, where to: any of them may have been sent before, whole or in part."""


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few messages are many ranges and portions."""
    monkeypatch.setattr(attempts_module, "RANGES_MAX", 4)
    monkeypatch.setattr(attempts_module, "RANGES_KEPT", 2)
    monkeypatch.setattr(decisions, "ROLL_BYTES", 8000)
    monkeypatch.setattr(decisions, "READ_BYTES", 500)
    monkeypatch.setattr(preparations, "SLICE_BYTES", 500)
    monkeypatch.setattr(decisions, "DROPPED_BATCHES_PER_PASS", 3)


@pytest.fixture(scope="module", params=["lmdb", "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    room = StoreRoom(request.param == "memory")
    store = room.open()
    yield store
    store.close()
    room.remove()


transactions = itertools.count(1)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 12), st.booleans()), max_size=60))
def test_what_is_unseen_is_known_exactly_though_few_ranges_are_in_memory(
    store: Store, sends: list[tuple[int, int, bool]]
) -> None:
    attempt = StagedAttempt(next(transactions), FIRST)
    model: set[int] = set()
    writes = WriteBatch()
    for start, count, ends_pass in sends:
        unseen = attempt.unseen(store, start, start + count)
        wanted = [number for number in range(start, start + count) if number not in model]
        assert [number for first, end in unseen for number in range(first, end)] == wanted
        for first, end in unseen:
            records = pack(None, b"x") * (end - first)
            place = StagedPlace(attempt.transaction, FIRST, first, end - first, len(records))
            attempt.add(place)
            writes.staged.append(Staged(place, (1,), 0, RecordBatch("", "", PERSISTENT, 1, 2, 3, end - first, records)))
        model.update(wanted)
        assert attempt.messages == len(model)
        if ends_pass:
            store.write(writes)
            writes = WriteBatch()
            attempt.narrow()
            assert not attempt.is_wide


@settings(max_examples=40)
@given(st.lists(st.one_of(frames, st.just("restart")), max_size=30), st.sampled_from(["", "sealed", "decided"]))
def test_any_interleaving_of_resends_and_kills_stages_each_message_once(sends: list[Any], kill: str) -> None:
    staged: dict[int, dict[int, tuple[int, ...]]] = {FIRST: {}, SECOND: {}, DROPPED: {}}
    with inside() as shard:
        shard.assign(*QUEUES)
        for step in sends:
            if step == "restart":
                shard.restart()
                continue
            attempt, start, count, queues = step
            refused = shard.publish(Publish(queues, run_of(start, count), attempt, start, 0, 3))
            assert bool(refused) == (MISSING in queues)
            if not refused:
                for number in range(start, start + count):
                    staged[attempt].setdefault(number, queues)
        for attempt in (SECOND, FIRST):
            assert shard.ask(Call(5, Seal(3, attempt)))[0] == len(staged[attempt])
        if kill == "sealed":
            shard.restart()
        counts = [len(staged[SECOND]), len(staged[FIRST]), -1 if staged[DROPPED] else 0]
        assert shard.ask(Call(6, Prepare(3, [SECOND, FIRST, DROPPED]))) == counts
        shard.send(Call(7, FollowDecision(3, [SECOND, FIRST])))
        if kill == "decided":
            shard.turn()
            shard.restart()
            shard.send(Call(7, FollowDecision(3, [SECOND, FIRST])))
        shard.expect(Answer, lambda answer: answer.request == 7)
        assert shard.loop.table()["staged"] == []
        for queue in (1, 2):
            expected = [
                number
                for attempt in (SECOND, FIRST)
                for number, queues in sorted(staged[attempt].items())
                if queue in queues
            ]
            assert shard.contents(queue) == expected


def test_few_ranges_stay_in_memory_where_all_is_sent_again() -> None:
    with inside() as shard:
        shard.assign(*QUEUES)
        sends = [Publish((1,), run_of(number, 1), FIRST, number, 0, 3) for number in range(0, 200, 2)]
        for _ in range(2):
            for send in sends:
                assert shard.publish(send) == []
        shard.turn()
        attempt = shard.loop._transactions._attempts[3][FIRST]
        assert (attempt.messages, attempt.is_wide, len(attempt._seen) <= 5) == (100, False, True)


def test_a_start_does_not_hold_the_places_of_all_staged_batches(tmp_path: Path) -> None:
    batches, record = 40_000, pack(None, b"x")
    batch = RecordBatch("", "", PERSISTENT, 1, 2, 3, 1, record)
    (tmp_path / "store").mkdir()
    store = Store.open(tmp_path / "store")
    store.write(
        WriteBatch(
            staged=[
                Staged(StagedPlace(3, FIRST, 2 * number, 1, len(record)), (1,), 0, batch) for number in range(batches)
            ]
        )
    )
    store.close()
    tracemalloc.start()
    with inside(tmp_path) as shard:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert [each["messages"] for each in shard.loop.table()["staged"]] == [batches]
    assert peak < 60 * batches, peak


BATCHES = 12


def publishes(attempt: int, padding: int) -> list[Publish]:
    """Batches of ten messages, to the queues in turn; their numbers are in their bodies."""
    found = []
    for place in range(BATCHES):
        bodies = [b"%0*d" % (padding, number) for number in range(place * 10, place * 10 + 10)]
        batch = RecordBatch("ex", "key", PERSISTENT, 5, 9, 0, 10, pack_many(bodies))
        found.append(Publish(((1,), (1, 2), (2,))[place % 3], batch, attempt, place * 10, 0, 3))
    return found


def expected(queue: int) -> list[int]:
    skipped = 2 if queue == 1 else 0
    return [
        number for place in range(BATCHES) if place % 3 != skipped for number in range(place * 10, place * 10 + 10)
    ] * 2


@pytest.mark.parametrize("padding", [3, 3000], ids=["through the redo log", "into LMDB"])
@pytest.mark.parametrize("told_again", [False, True], ids=["by itself", "told again"])
def test_a_crash_after_any_pass_neither_loses_nor_doubles_a_message(
    tmp_path: Path, padding: int, told_again: bool
) -> None:
    states: list[tuple[int, int]] = []

    def is_decided(folder: Path) -> bool:
        """Whether the decision is on disk; a pass before it may have had something else to do."""
        contents = Store.open(folder / "store")
        found = contents.load()
        contents.close()
        return bool(found.concluding or found.ended)

    def crash() -> None:
        """What was there at this moment, opened elsewhere, ends as it should."""
        folder = shard.copy(tmp_path / "crashed")
        if not (states or is_decided(folder)):
            shutil.rmtree(folder)
            return
        left = sum([each["messages"] for each in shard.loop.table()["staged"]])
        states.append((left, shard.ready(1) + shard.ready(2)))
        with inside(folder) as other:
            if told_again:
                assert other.ask(Call(9, FollowDecision(3, [SECOND, FIRST]))) is None
            else:
                other.settle_down()
            assert other.loop.table()["staged"] == []
            assert [other.contents(queue) for queue in (1, 2)] == [expected(1), expected(2)]
            assert other.publish(*publishes(FIRST, padding)[:1])[0].code == 406
        contents = Store.open(folder / "store")
        found = contents.load()
        assert list(contents.staging.all()) == []
        assert (found.sealed, found.concluding, found.ended) == ({}, {}, [(3, 4)])
        contents.close()
        shutil.rmtree(folder)

    with inside(tmp_path / "shard") as shard:
        shard.assign(*QUEUES)
        for attempt in (FIRST, SECOND, DROPPED):
            assert shard.publish(*publishes(attempt, padding)) == []
        for attempt in (FIRST, SECOND):
            shard.ask(Call(5, Seal(3, attempt)))
        shard.after_pass = crash
        assert shard.ask(Call(7, FollowDecision(3, [SECOND, FIRST]))) is None
        shard.after_pass = lambda: None
        assert [shard.contents(queue) for queue in (1, 2)] == [expected(1), expected(2)]
    messages = BATCHES * 10
    assert states[0] == (3 * messages, 0)
    assert len({left for left, _ in states}) > 6
    joined = [joined for _, joined in states]
    assert max(joined) == 2 * messages * 4 // 3


@pytest.mark.parametrize("padding", [3, 3000], ids=["through the redo log", "into LMDB"])
def test_a_crash_before_the_decision_leaves_all_that_was_confirmed_staged(tmp_path: Path, padding: int) -> None:
    with inside(tmp_path / "shard") as shard:
        shard.assign(*QUEUES)
        for message in publishes(FIRST, padding):
            assert shard.publish(message) == []
            shard.restart()
            assert shard.publish(message) == []
        assert shard.ask(Call(5, Seal(3, FIRST)))[0] == BATCHES * 10
        shard.restart()
        assert shard.ask(Call(6, Prepare(3, [FIRST, SECOND]))) == [BATCHES * 10, 0]
        (before,) = shard.loop.table()["staged"]
        assert (before["messages"], before["attempts"]) == (BATCHES * 10, 1)
        assert shard.ready(1) == 0
        assert shard.ask(Call(7, FollowDecision(3, []))) is None
        assert shard.loop.table()["staged"] == []
        assert shard.contents(1) == []
