"""Whose turn it is: consumer priorities, exclusive and single active consumers; and when what they hold is overdue."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call, Refusal
from shardmq.bus.messages.shard import (
    Ack,
    Cancel,
    Consume,
    Counts,
    Credit,
    Delivered,
    Get,
    Got,
    Nack,
    Publish,
    Release,
    Renew,
)
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, numbers, run_of

SLOW_MS = 300
"""Time to settle in."""


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(
        Queue("/", "q", 1, 0),
        Queue("/", "single", 2, 0, arguments={"x-single-active-consumer": True}),
        Queue("/", "timed", 3, 0, arguments={"x-consumer-timeout": SLOW_MS}),
    )
    yield shard
    shard.close()


def ranked(consumer: int, priority: int, queue: int = 1, prefetch: int = 0) -> Consume:
    return Call(100 + consumer, Consume(consumer, queue, prefetch, False, DELIVERY_WINDOW_BYTES, priority))


def test_the_highest_priority_with_credit_is_served_and_equals_take_turns(shard: Shard) -> None:
    shard.send(ranked(1, 0), ranked(2, 5, prefetch=2), ranked(3, 5, prefetch=2), ranked(4, -1))
    shard.send(Publish((1,), run_of(0, 6)))
    assert {one.consumer: one.batch.count for one in shard.delivered(6)} == {2: 2, 3: 2, 1: 2}
    shard.send(Ack(3, [(0, 6)]), Publish((1,), run_of(6, 1)))
    assert shard.expect(Delivered).consumer == 3


def test_a_consumer_that_was_out_of_credit_gets_its_turn_when_it_has_some(shard: Shard) -> None:
    shard.send(*[consume(number, prefetch=1) for number in range(50)], Publish((1,), run_of(0, 60)))
    first = shard.delivered(50)
    assert len({one.consumer for one in first}) == 50
    busy = next(one for one in first if one.consumer == 17)
    shard.send(Ack(17, [(busy.first, busy.first + 1)]))
    assert shard.expect(Delivered).consumer == 17
    shard.send(Nack(18, [(0, 60)], False), Release(19))
    assert {one.consumer for one in shard.delivered(1)} == {18}


def test_messages_fewer_than_consumers_go_to_each_in_turn(shard: Shard) -> None:
    shard.send(*[consume(number, prefetch=2) for number in range(10)])
    expected = iter([*range(10)] * 2)
    for start, count in ((0, 4), (4, 3), (7, 7), (14, 6)):
        shard.send(Publish((1,), run_of(start, count)))
        got = shard.delivered(count)
        assert [one.consumer for one in got] == [next(expected) for _ in range(count)]
        assert [one.first for one in got] == numbers(got) == [*range(start, start + count)]
        assert [one.batch.serial for one in got] == numbers(got)
    assert shard.queue()["unacked"] == 20
    shard.send(*[Ack(number, [(number, number + 1), (number + 10, number + 11)]) for number in range(10)])
    assert shard.queue()["unacked"] == 0


def test_returned_messages_go_to_each_in_turn_and_are_marked(shard: Shard) -> None:
    shard.send(consume(9, prefetch=5), Publish((1,), run_of(0, 5)))
    shard.delivered(5)
    shard.send(*[consume(number, prefetch=1) for number in range(5)], Release(9))
    got = shard.delivered(5)
    assert [(one.consumer, one.first, one.redelivered) for one in got] == [(each, each, True) for each in range(5)]


def test_messages_to_each_of_several_without_acknowledgements_are_settled(shard: Shard) -> None:
    shard.send(*[consume(number, auto_ack=number != 2) for number in range(4)], Publish((1,), run_of(0, 4)))
    assert [one.consumer for one in shard.delivered(4)] == [0, 1, 2, 3]
    assert shard.queue()["unacked"] == 1


def test_a_large_message_among_small_ones_goes_to_one_whose_window_takes_it(shard: Shard) -> None:
    window = 2000
    shard.send(*[Call(100 + number, Consume(number, 1, 1, False, window)) for number in range(4)])
    bodies = [b"0", b"1" * 1900, b"2", b"3" * 1900]
    batches = [RecordBatch("", "q", 1, 5, 9, number, 1, pack(None, body)) for number, body in enumerate(bodies)]
    shard.send(*[Publish((1,), batch) for batch in batches])
    assert [(one.consumer, one.first) for one in shard.delivered(4)] == [(each, each) for each in range(4)]


def test_a_consumer_without_room_gets_on_when_its_window_frees(shard: Shard) -> None:
    shard.send(Call(5, Consume(1, 1, 0, False, 40)), consume(2, prefetch=1), Publish((1,), run_of(0, 40)))
    got = shard.delivered(2)
    while len(numbers(got)) < 40:
        shard.send(Ack(2, [(0, 99)]), Ack(1, [(0, 99)]), Credit(1, 40))
        got += shard.delivered(1)
        got += [one for one in shard.inbox if isinstance(one, Delivered)]
        shard.inbox.clear()
    assert sorted(numbers(got)) == list(range(40))


def test_a_batch_is_not_cut_for_what_is_left_of_a_small_window(shard: Shard) -> None:
    batch = run_of(0, 10)
    window = len(batch.records) * 3 // 2
    shard.send(Call(5, Consume(1, 1, 0, False, window)), Publish((1,), batch))
    assert shard.expect(Delivered).batch.count == 10
    shard.send(Credit(1, window // 4))
    shard.publish(Publish((1,), run_of(10, 10)))
    assert not [one for one in shard.inbox if isinstance(one, Delivered)]
    shard.send(Credit(1, window))
    assert shard.expect(Delivered).batch.count == 10


def test_an_exclusive_consumer_is_alone(shard: Shard) -> None:
    shard.ask(consume(1))
    exclusive = Call(7, Consume(2, 1, 0, False, DELIVERY_WINDOW_BYTES, 0, True))
    shard.send(exclusive)
    assert shard.expect(Refusal).code == 403
    shard.send(Release(1))
    shard.ask(exclusive)
    shard.send(consume(3))
    refusal = shard.expect(Refusal)
    assert (refusal.code, refusal.text) == (403, "queue 'q' in vhost '/' in exclusive use")
    shard.send(Release(2))
    shard.ask(consume(4))


def test_a_single_active_consumer_is_followed_by_the_highest_priority_then_the_oldest(shard: Shard) -> None:
    shard.send(ranked(1, 0, 2), ranked(2, 1, 2), ranked(3, 9, 2), ranked(4, 9, 2))
    followers = []
    for number in range(4):
        shard.send(Publish((2,), run_of(number, 1)))
        active = shard.expect(Delivered).consumer
        followers.append(active)
        assert [c["consumer"] for c in shard.queue(2)["consumer_list"] if c["active"]] == [active]
        shard.send(Ack(active, [(0, 10)]))
        shard.ask(Call(50 + number, Cancel(active)))
    assert followers == [1, 3, 4, 2]


def test_only_what_is_overdue_returns_and_only_if_it_is_still_held(shard: Shard) -> None:
    shard.send(consume(1, queue=3, prefetch=4))
    for _ in range(20):  # where the machine was too busy for the ack to be in time, again
        began = time.monotonic()
        shard.send(Publish((3,), run_of(0, 4)))
        first = min(numbers(shard.delivered(4)))
        shard.send(Ack(1, [(first + 1, first + 2)]))
        shard.ask(Call(8, Counts(3)))
        was_in_time = time.monotonic() - began < SLOW_MS / 1000
        again = shard.delivered(3)
        assert time.monotonic() - began >= (SLOW_MS - 1) / 1000  # a shard's clock counts whole milliseconds
        acks = Ack(1, [(first, first + 4)])
        shard.send(acks)
        if was_in_time:
            break
        shard.until(lambda acks=acks: shard.send(acks) or shard.queue(3)["valid"] == 0)
        shard.inbox.clear()
    assert sorted(numbers(again)) == [first, first + 2, first + 3]
    assert all(one.redelivered for one in again)
    assert shard.ask(Call(9, Counts(3))) == [0, 1]
    assert shard.queue(3)["valid"] == 0


def test_what_was_overdue_is_nothing_to_its_consumer_any_more(shard: Shard) -> None:
    shard.send(consume(1, queue=3), Publish((3,), run_of(0, 1)))
    shard.delivered(1)
    shard.ask(Call(8, Cancel(1)))
    shard.until(lambda: shard.ask(Call(9, Counts(3))) == [1, 0])
    shard.send(Ack(1, [(0, 1)]), Nack(1, [(0, 1)], False))
    assert shard.ask(Call(10, Counts(3))) == [1, 0]


def test_renewed_messages_have_their_time_again(shard: Shard) -> None:
    shard.send(consume(1, queue=3, prefetch=2), Publish((3,), run_of(0, 2)))
    shard.delivered(2)
    ends_at = time.monotonic() + 4 * SLOW_MS / 1000
    again: list[int] = []
    while time.monotonic() < ends_at:
        shard.send(Renew(1, [(0, 1)]))
        shard.poll(shard.dialer)
        for one in [one for one in shard.inbox if isinstance(one, Delivered)]:
            shard.inbox.remove(one)
            again += numbers([one])
            shard.send(Ack(1, [(1, 2)]))
    assert again == [1]


def test_a_consumers_own_timeout_comes_before_the_queues(shard: Shard) -> None:
    shard.send(Call(7, Consume(1, 3, 0, False, DELIVERY_WINDOW_BYTES, 0, False, 30_000)), Publish((3,), run_of(0, 1)))
    shard.send(Call(8, Consume(2, 1, 0, False, DELIVERY_WINDOW_BYTES, 0, False, 100)), Publish((1,), run_of(9, 1)))
    shard.delivered(2)
    assert numbers([shard.expect(Delivered)]) == [9]
    assert shard.queue(3)["unacked"] == 1


def test_what_was_got_is_overdue_too(shard: Shard) -> None:
    shard.send(Publish((3,), run_of(0, 1)), Call(5, Get(1, 3, False)))
    shard.expect(Got)
    shard.until(lambda: shard.ask(Call(9, Counts(3))) == [1, 0])
