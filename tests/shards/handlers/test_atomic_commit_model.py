"""Commits of publishes and settlements through a real worker and store, and a crash after any pass."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq.bus.messages.base import Answer, Call, Refusal
from shardmq.bus.messages.shard import (
    Ack,
    AtomicCommit,
    Delivered,
    Nack,
    Publish,
)
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import consume, numbers, run_of
from tests.shards.inside import Inside, inside

IN, OUT, OTHER, SMALL = 1, 2, 3, 4
QUEUES = (
    Queue("/", "in", IN, 0),
    Queue("/", "out", OUT, 0),
    Queue("/", "other", OTHER, 0, arguments={"x-max-priority": 3}),
    Queue("/", "small", SMALL, 0, arguments={"x-max-length": 3, "x-overflow": "reject-publish"}),
)
MISSING = 99


def take_all(shard: Inside, count: int) -> list[tuple[int, int]]:
    """A consumer of "in" gets all of it: (the message's number, its sequence)."""
    shard.ask(consume(7, IN))
    found: list[tuple[int, int]] = []
    while len(found) < count:
        came = shard.expect(Delivered, lambda one: one.consumer == 7)
        bodies = [int(record.body) for record in unpack(came.batch.records, came.batch.count)]
        found += [(number, came.first + place) for place, number in enumerate(bodies)]
    return found


def outcome(shard: Inside, message: AtomicCommit) -> Any:
    """None, or the code it was refused with."""
    shard.send(message)
    while True:
        shard.turn()
        for said in shard.inbox:
            if isinstance(said, Answer | Refusal) and said.request == message.request:
                shard.inbox.remove(said)
                return said.code if isinstance(said, Refusal) else said.result


def padded(start: int, count: int, padding: int) -> RecordBatch:
    bodies = [b"%0*d" % (padding, number) for number in range(start, start + count)]
    return RecordBatch("ex", "key", PERSISTENT, 5, 9, start, count, pack_many(bodies))


@pytest.mark.parametrize("padding", [3, 3000], ids=["through the redo log", "into LMDB"])
def test_a_crash_after_any_pass_leaves_publishes_and_settlements_both_or_neither(tmp_path: Path, padding: int) -> None:
    messages, each = 120, 10
    states: set[int] = set()

    def crash() -> None:
        """What was there at this moment, opened elsewhere."""
        with inside(shard.copy(tmp_path / "crashed")) as other:
            left, made, also = [other.contents(queue) for queue in (IN, OUT, OTHER)]
        shutil.rmtree(tmp_path / "crashed")
        assert sorted(left + made) == list(range(messages)), "each message is where it was, or where it went"
        assert made == also
        assert len(made) % each == 0, "a commit is there whole or not at all"
        assert len(made) >= answered, "what was answered is on disk"
        states.add(len(made))

    answered = 0
    with inside(tmp_path / "shard") as shard:
        shard.assign(*QUEUES)
        assert shard.publish(*[Publish((IN,), padded(start, 5, padding)) for start in range(0, messages, 5)]) == []
        taken = take_all(shard, messages)
        shard.after_pass = crash
        crash()
        for start in range(0, messages, each):
            part = taken[start : start + each]
            ranges = [(sequence, sequence + 1) for _, sequence in part]
            first = Publish((OUT, OTHER), padded(start, each // 2, padding))
            second = Publish((OUT, OTHER), padded(start + each // 2, each - each // 2, padding))
            shard.send(Call(start + 50, AtomicCommit([first, second], [Ack(7, ranges)], [])))
            if start % 20:  # every other one together with the one before
                assert shard.expect(Answer, lambda said: said.request == start + 40).result is None  # noqa: B023
                assert shard.expect(Answer, lambda said: said.request == start + 50).result is None  # noqa: B023
                answered = start + each
        shard.after_pass = lambda: None
        assert shard.contents(OUT) == list(range(messages))
        assert shard.contents(IN) == []
    assert len(states) > messages // each // 2


steps = st.tuples(
    st.lists(
        st.tuples(
            st.sampled_from([(OUT,), (OTHER,), (OUT, OTHER), (SMALL,), (OUT, SMALL), (OUT, MISSING)]), st.integers(1, 4)
        ),
        max_size=3,
    ),
    st.lists(st.integers(0, 39), max_size=6, unique=True),
    st.sampled_from(["settle", "requeue", "reject"]),
)
"""Publishes (where to, how many), which of the messages in hand are settled, and how."""


@settings(max_examples=60)
@given(st.lists(steps, max_size=12))
def test_a_commit_is_carried_out_or_leaves_no_trace(commits: list[Any]) -> None:
    expected: dict[int, list[int]] = {OUT: [], OTHER: [], SMALL: []}
    number = 1000
    with inside() as shard:
        shard.assign(*QUEUES)
        assert shard.publish(Publish((IN,), run_of(0, 40))) == []
        in_hand = dict(take_all(shard, 40))
        returned: set[int] = set()
        for request, (publishes, places, how) in enumerate(commits, 100):
            messages, wanted = [], {queue: list(there) for queue, there in expected.items()}
            is_refused = any(MISSING in queues for queues, _ in publishes)
            for queues, count in publishes:
                messages.append(Publish(queues, run_of(number, count)))
                for queue in queues:
                    if queue != MISSING:
                        wanted[queue] += range(number, number + count)
                number += count
            is_refused = is_refused or len(wanted[SMALL]) > 3 or any(place not in in_hand for place in places)
            ranges = [(sequence, sequence + 1) for sequence in [in_hand.get(place, 10_000) for place in places]]
            settled = [Ack(7, ranges)] if how == "settle" and ranges else []
            back = [Nack(7, ranges, how == "requeue")] if how != "settle" and ranges else []
            result = outcome(shard, Call(request, AtomicCommit(messages, settled, back)))
            assert (result is not None) == is_refused
            if is_refused:
                continue
            expected = wanted
            for place in places:
                del in_hand[place]
                if how == "requeue":
                    returned.add(place)
            if how == "requeue":  # they come again to the only consumer
                while returned:
                    came = shard.expect(Delivered, lambda one: one.consumer == 7)
                    assert came.redelivered
                    for offset, again in enumerate(numbers([came])):
                        in_hand[again] = came.first + offset
                        returned.discard(again)
        shard.restart()
        for queue, there in expected.items():
            assert sorted(shard.contents(queue)) == there
        assert shard.contents(IN) == sorted(in_hand)


def test_what_consumers_of_a_deleted_queue_held_does_not_stand_in_the_way(tmp_path: Path) -> None:
    with inside(tmp_path) as shard:
        shard.assign(*QUEUES)
        assert outcome(shard, Call(9, AtomicCommit([Publish((OUT,), run_of(0, 2))], [Ack(55, [(0, 3)])], []))) is None
        assert shard.contents(OUT) == [0, 1]


def test_settling_what_is_not_held_any_more_refuses_the_commit(tmp_path: Path) -> None:
    with inside(tmp_path) as shard:
        shard.assign(*QUEUES)
        shard.publish(Publish((IN,), run_of(0, 3)))
        sequences = [sequence for _, sequence in take_all(shard, 3)]
        shard.send(Ack(7, [(sequences[0], sequences[0] + 1)]))
        late = Call(9, AtomicCommit([Publish((OUT,), run_of(5, 1))], [Ack(7, [(sequences[0], sequences[2] + 1)])], []))
        assert outcome(shard, late) == 406
        assert shard.ready(OUT) == 0
        assert outcome(shard, Call(10, AtomicCommit([], [Ack(7, [(sequences[1], sequences[2] + 1)])], []))) is None
        shard.restart()
        assert shard.contents(IN) == []
