"""What leaves a shard before its commit, over its real link: looked at while the commit is held up."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.messages.base import Answer, BusMessage, Call
from shardmq.bus.messages.columns import Publishes
from shardmq.bus.messages.shard import (
    Ack,
    AtomicCommit,
    Confirmed,
    Delivered,
    Gateways,
    Nack,
    Publish,
    PublishRefusal,
)
from shardmq.bus.messages.transactions import FollowDecision, Seal
from shardmq.bus.poller import Poller
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import consume, numbers, run_of
from tests.shards.inside import Inside, inside

LOOK_SECONDS = 0.1
"""What has left is here within this time."""


@dataclass
class Commits:
    """Looks at what has left the shard, before each of its commits that writes messages.

    Attributes:
        shard: whose commits they are.
        early: by commit, what had left.
        within: called in a commit, once.
    """

    shard: Inside
    early: list[list[Any]] = field(default_factory=list)
    within: Callable[[], None] | None = None

    def watch(self) -> None:
        write = self.shard.store.write

        def watched(writes: WriteBatch) -> None:
            if writes.put:
                Poller([self.shard.dialer.socket]).wait(LOOK_SECONDS)
                self.early.append(self.shard.heard.whole(self.shard.dialer.receive()))
                self.shard.inbox += self.early[-1]
                if self.within is not None:
                    within, self.within = self.within, None
                    within()
            write(writes)

        self.shard.store.write = watched  # type: ignore[method-assign]


@pytest.fixture
def shard() -> Iterator[Inside]:
    with inside() as shard:
        shard.assign(Queue("/", "q", 1, 0), Queue("/", "other", 2, 0))
        shard.ask(consume(1))
        shard.publish(Publish((1,), run_of(0, 1)))  # the mark is on disk
        assert numbers([shard.expect(Delivered)]) == [0]
        shard.expect(Gateways)  # as in every new session
        yield shard


@pytest.fixture
def commits(shard: Inside) -> Commits:
    commits = Commits(shard)
    commits.watch()
    return commits


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


def test_a_delivery_leaves_before_the_commit_and_the_confirm_after_it(shard: Inside, commits: Commits) -> None:
    shard.publish(Publish((1,), run_of(1, 1)))
    (early,) = commits.early
    assert kinds(early) == [Delivered]
    assert numbers(early) == [1]
    assert kinds(shard.inbox) == [Delivered]  # once


def test_few_publishes_in_columns_leave_early_as_well(shard: Inside, commits: Commits) -> None:
    shard.send(many(2))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published + 2)
    (early,) = commits.early
    assert numbers(early) == [1, 2]


def test_the_first_message_that_is_delivered_of_a_queue_waits_for_its_mark(shard: Inside, commits: Commits) -> None:
    shard.ask(consume(2, 2))
    shard.publish(Publish((2,), run_of(1, 1)), Publish((1,), run_of(2, 1)))
    assert commits.early == [[]]
    assert sorted(numbers([shard.expect(Delivered), shard.expect(Delivered)])) == [1, 2]


def test_a_confirm_that_nobody_waits_for_comes_with_the_next_delivery(
    shard: Inside, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmq.shards.answers.LATE_SECONDS", 3600.0)
    monkeypatch.setattr("shardmq.shards.storage.write_buffer.PUT_OFF_BYTES_MAX", 0)
    shard.send(Publish((1,), run_of(1, 1), unawaited=True))
    shard.expect(Delivered)
    shard.send(Ack(1, [(1, 2)]))
    until(shard, lambda: shard.loop.table()["queues"][0]["unacked"] == 1)
    assert shard.inbox == []
    shard.send(Publish((1,), run_of(2, 1), unawaited=True))
    shard.expect(Delivered)
    assert [kinds(early) for early in commits.early] == [[Delivered], [Confirmed, Delivered]]
    assert shard.inbox == [Confirmed(2)]
    shard.send(Publish((1,), run_of(3, 1)))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 4)
    assert [kinds(early) for early in commits.early[2:]] == [[Confirmed, Delivered]]


def test_a_confirm_that_nobody_waits_for_comes_alone_after_a_while(
    shard: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmq.shards.storage.write_buffer.PUT_OFF_BYTES_MAX", 0)
    shard.send(Publish((1,), run_of(1, 1), unawaited=True))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 2)


@pytest.mark.parametrize(
    ("messages", "of"),
    [
        ([Publish((1,), run_of(1, 1))], "somebody waits"),
        ([Publish((1,), run_of(number, 1), unawaited=True) for number in (1, 2)], "the gateway gathers behind two"),
        ([Publish((1,), run_of(1, 1), unawaited=True), Publish((1,), run_of(2, 1))], "somebody waits for one of two"),
        ([Publish((2,), run_of(1, 1), unawaited=True)], "nothing was delivered"),
        ([Publish((3,), run_of(1, 1), unawaited=True)], "it was refused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_confirm_leaves_right_behind_the_commit(
    shard: Inside, messages: list[Publish], of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmq.shards.answers.LATE_SECONDS", 3600.0)
    shard.publish(*messages)
    assert of


def until(shard: Inside, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        shard.turn()


def many(count: int) -> Publishes:
    """Publishes of a message each, to one queue."""
    records = [run_of(number, 1).records for number in range(1, count + 1)]
    return Publishes("", 1, 0, 5, 9, 1, [1] * count, ["q"] * count, [1] * count, records)


@pytest.mark.parametrize(
    ("messages", "of"),
    [
        ([Publish((1,), run_of(1, 1), producer=7, sequence=1)], "a message that has a producer"),
        ([Call(9, AtomicCommit([Publish((1,), run_of(1, 1))], [], []))], "a channel's commit"),
        ([Publish((1,), run_of(1, 1)), consume(2, 2)], "a pass with a request"),
        ([Publish((1,), run_of(number, 1)) for number in range(1, 18)], "a large pass"),
        ([many(17)], "many publishes in columns"),
        ([Publish((1,), run_of(1, 1)), Publish((2,), run_of(2, 1), delay_ms=60_000)], "a pass with a delayed message"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_delivery_waits_for_the_commit(shard: Inside, commits: Commits, messages: list[BusMessage], of: str) -> None:
    shard.send(*messages)
    shard.expect(Delivered)
    assert commits.early[0] == [], of


def test_a_message_that_was_staged_or_delayed_is_delivered_after_its_commit(shard: Inside, commits: Commits) -> None:
    shard.publish(Publish((1,), run_of(1, 1), delay_ms=50), Publish((1,), run_of(2, 1), 1, 1, transaction=5))
    assert numbers([shard.expect(Delivered)]) == [1]
    shard.ask(Call(8, Seal(5, 1)))
    shard.send(Call(9, FollowDecision(5, [1])))
    assert numbers([shard.expect(Delivered)]) == [2]
    shard.expect(Answer)
    assert commits.early == [[], []]


def test_what_was_lost_with_the_shard_has_a_number_that_no_other_gets(
    shard: Inside, commits: Commits, tmp_path: Path
) -> None:
    def fail() -> None:
        shard.copy(tmp_path / "lost")

    commits.within = fail
    shard.publish(Publish((1,), run_of(1, 1)))
    lost = shard.expect(Delivered)
    with inside(tmp_path / "lost") as after:
        after.ask(consume(1))
        assert [(one.redelivered, *numbers([one])) for one in [after.expect(Delivered)]] == [(True, 0)]
        after.publish(Publish((1,), run_of(2, 1)))
        fresh = after.expect(Delivered)
        assert (fresh.redelivered, numbers([fresh])) == (False, [2])
        assert fresh.first > lost.first


def test_what_was_delivered_early_and_is_on_disk_is_marked_redelivered_after_a_crash(
    shard: Inside, commits: Commits
) -> None:
    shard.publish(Publish((1,), run_of(1, 1)))
    assert numbers(commits.early[0]) == [1]
    shard.restart()
    shard.ask(consume(1))
    again = [shard.expect(Delivered)]
    assert (again[0].redelivered, numbers(again)) == (True, [0, 1])


@pytest.mark.parametrize("requeue", [True, False])
def test_a_message_is_settled_or_returns_before_its_commit_is_through(
    shard: Inside, commits: Commits, requeue: bool
) -> None:
    def settle() -> None:
        first = commits.early[0][0].first
        shard.send(Nack(1, [(first, first + 1)], requeue=True) if requeue else Ack(1, [(first, first + 1)]))

    commits.within = settle
    shard.publish(Publish((1,), run_of(1, 1)))
    assert not shard.expect(Delivered).redelivered
    if requeue:
        again = shard.expect(Delivered)
        assert (again.redelivered, numbers([again])) == (True, [1])
    shard.publish(Publish((2,), run_of(2, 1)))
    assert next(table for table in shard.loop.table()["queues"] if table["id"] == 1)["total"] == 1 + requeue


def test_what_consumers_hold_in_memory_alone_needs_no_commit(shard: Inside, commits: Commits) -> None:
    shard.send(Publish((1,), run_of(1, 1, flags=0)))
    assert [kinds([shard.expect(Delivered)]), kinds([shard.expect(Confirmed)])] == [[Delivered], [Confirmed]]
    assert commits.early == []
    assert not any(isinstance(message, PublishRefusal) for message in shard.inbox)


def test_a_number_is_on_disk_before_its_message_goes_to_a_consumer_that_acknowledges_nothing(
    shard: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardmq.shards.storage.write_buffer.SETTLED_SECONDS", 3600.0)
    shard.ask(consume(2, 2, auto_ack=True))
    for sequence in range(3):  # the first raises the queue's mark, which is written with its pass
        shard.publish(Publish((2,), run_of(sequence, 1), 71, sequence))
        assert numbers([shard.expect(Delivered)]) == [sequence]
    shard.restart()
    shard.ask(consume(2, 2, auto_ack=True))
    shard.publish(Publish((2,), run_of(2, 1), 71, 2))
    shard.publish(Publish((2,), run_of(3, 1), 71, 3))
    assert numbers([shard.expect(Delivered)]) == [3]
