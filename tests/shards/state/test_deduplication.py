"""What is sent again is stored once, whatever was lost: a queue's memory of its producers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.messages.base import Call, Inspect
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.shard import (
    Confirmed,
    Counts,
    DropQueue,
    Publish,
    PublishRefusal,
    Purge,
)
from shardmq.limits import FRAMED_PRODUCERS, LETTER_PRODUCERS
from shardmq.shards.state.deduplication import PRODUCERS_MAX, ProducerSequences
from shardmq.shards.storage.entries import LETTER_RANGES_MAX, RANGES_KEPT, RANGES_MAX
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, numbers, run_of

QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "other", 2, 0),
    Queue("/", "small", 3, 0, arguments={"x-max-length": 3, "x-overflow": "reject-publish"}),
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def sent(start: int, count: int, *queues: int, producer: int = 7, delay_ms: int = 0) -> Publish:
    return Publish(queues or (1,), run_of(start, count), producer, start, delay_ms)


def test_a_resend_is_confirmed_and_stored_once(shard: Shard) -> None:
    shard.send(sent(0, 10), sent(0, 10), sent(5, 10), sent(3, 2), sent(20, 5), sent(12, 12), sent(0, 2, producer=8))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 7)
    shard.send(consume(1))
    assert sorted(numbers(shard.delivered(27))) == sorted([*range(25), 0, 1])
    assert shard.queue()["producers"] == 2
    assert not [one for one in shard.inbox if isinstance(one, PublishRefusal)]


def test_a_resend_after_a_kill_is_stored_once(shard: Shard) -> None:
    for _ in range(3):
        shard.send(sent(0, 10, 1, 2), sent(10, 5))
        shard.expect(Confirmed, lambda confirmed: confirmed.upto == 2)
        shard.restart()
    assert shard.ask(Call(8, Counts(1)))[0] == 15
    assert shard.ask(Call(9, Counts(2)))[0] == 10
    assert shard.queue()["producers"] == 1


def test_what_was_consumed_long_ago_is_remembered_too(shard: Shard) -> None:
    shard.publish(sent(0, 10))
    shard.ask(Call(5, Purge(1)))
    shard.restart()
    shard.publish(sent(0, 12))
    assert shard.ask(Call(8, Counts(1)))[0] == 2


def test_a_delayed_publish_is_kept_once(shard: Shard) -> None:
    shard.send(sent(0, 10, delay_ms=30_000), sent(0, 10, delay_ms=30_000), sent(5, 7))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 3)
    assert shard.queue()["delayed"] == 10
    assert shard.ask(Call(8, Counts(1)))[0] == 2


def test_what_was_refused_counts_as_unseen(shard: Shard) -> None:
    shard.send(sent(0, 2, 1, 3), sent(2, 5, 1, 3))
    refusal = shard.expect(PublishRefusal)
    assert (refusal.number, refusal.code, refusal.taken) == (2, 506, 1)
    assert "queue 'small' in vhost '/' is full (x-max-length 3)" in refusal.text
    shard.ask(Call(5, Purge(3)))
    shard.send(sent(2, 5, 1, 3))
    assert shard.expect(PublishRefusal).taken == 4
    shard.send(consume(1), consume(3, queue=3))
    assert numbers([one for one in shard.delivered(10) if one.consumer == 1]) == list(range(7))


def test_an_old_number_of_a_program_is_refused_where_nobody_knows_it(shard: Shard) -> None:
    gaps = [sent(number, 1) for number in range(0, 4 * RANGES_MAX, 2)]
    shard.send(*gaps)
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == len(gaps))
    shard.restart()
    shard.send(sent(1, 1))
    refusal = shard.expect(PublishRefusal)
    assert (refusal.number, refusal.code, refusal.taken) == (1, 406, 0)
    assert "number 1 of this producer" in refusal.text
    shard.send(sent(1, 1, producer=FRAMED_PRODUCERS + 7), sent(4 * RANGES_MAX - 3, 1))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 3)
    assert shard.ask(Call(8, Counts(1)))[0] == len(gaps) + 2


def test_a_deleted_queue_remembers_nobody(shard: Shard) -> None:
    shard.publish(sent(0, 10))
    shard.ask(Call(5, DropQueue(1)))
    shard.restart()
    assert [table["id"] for table in shard.ask(Call(4, Inspect()))["queues"]] == [2, 3]
    shard.assign(Queue("/", "q", 1, 0))
    assert shard.queue()["producers"] == 0


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40))))
def test_any_interleaving_of_resends_takes_each_number_once(sends: list[tuple[int, int]]) -> None:
    producers = ProducerSequences()
    stored: list[int] = []
    for start, count in sends:
        for first, end in producers.unseen(5, start, start + count):
            stored += range(first, end)
            producers.saw(5, first, end)
    assert len(stored) == len(set(stored))
    assert set(stored) == {number for start, count in sends for number in range(start, start + count)}


def test_what_is_kept_of_producers_is_bounded_and_the_oldest_is_given_up() -> None:
    producers = ProducerSequences()
    for number in range(0, 4 * RANGES_MAX, 2):
        ranges = producers.saw(1, number, number + 1)
    assert RANGES_KEPT <= len(ranges) <= RANGES_MAX
    assert producers.unseen(1, 1, 2) == []
    last = 4 * RANGES_MAX
    assert producers.unseen(1, last - 3, last) == [(last - 3, last - 2), (last - 1, last)]
    for producer in range(2, PRODUCERS_MAX + 1):
        producers.saw(producer, 0, 1)
    producers.seen.move_to_end(1)
    assert producers.surplus() is None
    producers.saw(PRODUCERS_MAX + 1, 0, 1)
    assert producers.surplus() == 2


LETTERS = LETTER_PRODUCERS + 9
"""A queue, as producer of its dead letters."""


def test_a_dead_letter_is_never_taken_for_stored_because_it_is_old() -> None:
    producers = ProducerSequences()
    last = 4 * LETTER_RANGES_MAX
    for number in range(0, last, 2):
        seen = producers.saw(LETTERS, number, number + 1)
        assert producers.unseen(LETTERS, number, number + 1) == []
    assert LETTER_RANGES_MAX // 2 <= len(seen) <= LETTER_RANGES_MAX
    assert all(producers.unseen(LETTERS, number, number + 1) for number in range(1, last, 2))


def test_numbers_that_never_come_again_take_no_room() -> None:
    producers = ProducerSequences()
    for number in range(0, 1000, 2):
        seen = producers.saw(LETTERS, number, number + 1)
    producers.gone(LETTERS, [(0, 301), (303, 990)])
    assert [*seen][:2] == [(0, 301), (302, 991)]
    assert producers.unseen(LETTERS, 300, 303) == [(301, 302)]


def test_a_dead_letter_that_was_consumed_at_once_is_known_after_a_kill(shard: Shard) -> None:
    shard.ask(consume(1, auto_ack=True))
    shard.publish(Publish((1,), run_of(5, 3), LETTERS, 5))
    assert numbers(shard.delivered(3)) == [5, 6, 7]
    shard.restart()
    shard.publish(Publish((1,), run_of(4, 5), LETTERS, 4))
    assert shard.ask(Call(8, Counts(1)))[0] == 2


def test_a_dead_letter_that_a_full_queue_passes_on_is_not_offered_to_it_again(shard: Shard) -> None:
    terms = {"x-max-length": 2, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "dlx"}
    shard.assign(Queue("/", "passing", 4, 0, arguments=terms))
    for _ in range(3):
        shard.publish(Publish((4,), run_of(0, 5), LETTERS, 0))
    dead = shard.expect(DeadLetter)
    assert (dead.batch.count, dead.reason) == (3, "maxlen")
    table = shard.queue(4)
    assert (table["ready"], table["dying"]) == (2, 3)
    assert not [one for one in shard.inbox if isinstance(one, PublishRefusal)]


def test_a_dead_letter_that_a_full_queue_cannot_pass_on_is_refused(shard: Shard) -> None:
    shard.assign(Queue("/", "full", 4, 0, arguments={"x-max-length": 2, "x-overflow": "reject-publish-dlx"}))
    shard.publish(Publish((4,), run_of(0, 5), LETTERS, 0))
    assert shard.expect(PublishRefusal).taken == 2
