"""Messages that a gateway gave their consumer before they came to the shard, and when it is told that it may."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shardmq.bus.messages.base import Call, Refusal
from shardmq.bus.messages.columns import FORWARDED, TELL, MayForward, Publishes
from shardmq.bus.messages.shard import (
    Ack,
    AtomicCommit,
    Confirmed,
    Consume,
    Delivered,
    Gateways,
    Get,
    Got,
    Nack,
    Publish,
    PublishRefusal,
    Release,
)
from shardmq.message.record import pack_many
from shardmq.topology.entities import Queue
from tests.shards.driver import consume, numbers, run_of
from tests.shards.inside import Inside, inside

Q = Queue("/", "q", 1, 0)


@pytest.fixture
def shard() -> Iterator[Inside]:
    with inside() as shard:
        shard.assign(Q, Queue("/", "other", 2, 0), Queue("/", "sorted", 3, 0, True, {"x-max-priority": 3}))
        shard.expect(Gateways)
        yield shard


def asking(number: int, queue: int = 1, count: int = 1) -> Publish:
    return Publish((queue,), run_of(number, count), forwarded=TELL)


def forwarded(number: int, first: int, consumer: int = 1, count: int = 1) -> Publish:
    return Publish((1,), run_of(number, count), forwarded=consumer, forwarded_as=first)


def told(shard: Inside) -> list[MayForward]:
    return [message for message in shard.inbox if isinstance(message, MayForward)]


def begin(shard: Inside, prefetch: int = 0, *, auto_ack: bool = False) -> int:
    """Have a consumer, to which may be forwarded; returns the number of the next message."""
    shard.ask(consume(1, prefetch=prefetch, auto_ack=auto_ack))
    shard.publish(asking(0))
    first = shard.expect(Delivered).first
    assert shard.expect(MayForward) == MayForward([1], [first + 1], shard.published)
    if not auto_ack:
        shard.send(Ack(1, [(first, first + 1)]))
    return first + 1


def settle_down(shard: Inside) -> None:
    """Until everything that was sent has been taken in."""
    shard.ask(Call(1, AtomicCommit([], [], [])))


def counts(shard: Inside, queue: int = 1) -> tuple[int, int]:
    """Ready and unacked messages."""
    settle_down(shard)
    table = next(table for table in shard.loop.table()["queues"] if table["id"] == queue)
    return table["ready"], table["unacked"]


def redelivered(shard: Inside, consumer: int = 2, queue: int = 1) -> list[tuple[int, bool]]:
    """What another consumer gets: bodies, and whether they were delivered before."""
    ready, _ = counts(shard, queue)
    shard.ask(consume(consumer, queue))
    found: list[tuple[int, bool]] = []
    while len(found) < ready:
        one = shard.expect(Delivered, lambda one: one.consumer == consumer)
        found += [(number, one.redelivered) for number in numbers([one])]
    return found


@pytest.mark.parametrize(
    ("before", "publishes"),
    [
        ([consume(1)], [Publish((1,), run_of(1, 1))]),
        ([], [asking(1)]),
        ([consume(1), consume(2)], [asking(1)]),
        ([consume(1, prefetch=1)], [asking(1), asking(2)]),
        ([consume(1, 3)], [asking(1, 3)]),
    ],
    ids=["nobody asks", "no consumer", "two consumers", "some is ready", "its queue sorts"],
)
def test_a_gateway_is_not_told_where(shard: Inside, before: list[Any], publishes: list[Publish]) -> None:
    for request in before:
        shard.ask(request)
    shard.publish(*publishes)
    settle_down(shard)
    assert told(shard) == []


def test_what_was_forwarded_is_held_and_settled_by_the_numbers_that_its_gateway_gave(shard: Inside) -> None:
    first = begin(shard)
    shard.publish(forwarded(1, first), forwarded(2, first + 1, count=3))
    assert counts(shard) == (0, 4)
    assert not [message for message in shard.inbox if isinstance(message, Delivered)]
    shard.send(Ack(1, [(FORWARDED + first, FORWARDED + first + 2)]))
    assert counts(shard) == (0, 2)
    shard.send(Release(1))
    assert redelivered(shard) == [(3, True), (4, True)]


def test_it_may_be_returned_or_dropped(shard: Inside) -> None:
    first = begin(shard)
    shard.publish(forwarded(1, first, count=2))
    shard.send(Nack(1, [(FORWARDED + first, FORWARDED + first + 1)], requeue=False))
    shard.send(Nack(1, [(FORWARDED + first + 1, FORWARDED + first + 2)], requeue=True))
    again = shard.expect(Delivered)
    assert (numbers([again]), again.redelivered, again.first) == ([2], True, first + 1)


def test_what_is_published_in_columns_is_forwarded_one_by_one(shard: Inside) -> None:
    first = begin(shard)
    shard.ask(consume(2, 2))
    records = [pack_many([body]) for body in (b"1", b"2", b"3")]
    shard.send(
        Publishes(
            "ex",
            1,
            0,
            5,
            9,
            1,
            [1, 2, 1],
            ["q", "other", "q"],
            [1, 1, 1],
            records,
            False,
            [1, TELL, 1],
            [first, 0, first + 1],
        )
    )
    delivered = shard.expect(Delivered)
    assert (delivered.consumer, numbers([delivered])) == (2, [2])
    assert shard.expect(MayForward).consumers == [2]
    assert counts(shard) == (0, 2)
    shard.send(Ack(1, [(FORWARDED + first, FORWARDED + first + 2)]))
    assert counts(shard) == (0, 0)


def test_without_acknowledgements_it_is_settled_at_once(shard: Inside) -> None:
    first = begin(shard, auto_ack=True)
    shard.publish(forwarded(1, first))
    assert counts(shard) == (0, 0)
    table = next(table for table in shard.loop.table()["queues"] if table["id"] == 1)
    assert (table["published"], table["delivered"], table["acked"]) == (2, 2, 2)


def test_what_the_gateway_did_not_know_of_is_delivered_first(shard: Inside) -> None:
    """And the numbers that the gateway counted on are others': an ack settles what it is meant for."""
    first = begin(shard)
    unknown = Publish((1,), run_of(7, 1))
    shard.send(Call(6, AtomicCommit([unknown], [], [])), forwarded(1, first), forwarded(2, first + 1))
    assert numbers([shard.expect(Delivered)]) == [7]
    shard.send(Ack(1, [(FORWARDED + first, FORWARDED + first + 1)]))
    assert counts(shard) == (0, 2)
    assert told(shard) == []  # it may go on: the queue has nothing ready
    shard.send(Release(1))
    assert redelivered(shard) == [(7, True), (2, True)]


def test_where_older_messages_must_wait_nothing_more_is_forwarded(shard: Inside) -> None:
    first = begin(shard, prefetch=2)
    older = Publish((1,), run_of(7, 3))
    shard.send(Call(6, AtomicCommit([older], [], [])), forwarded(1, first))
    assert numbers([shard.expect(Delivered)]) == [7, 8]
    assert shard.expect(MayForward).firsts == [0]
    assert counts(shard) == (1, 3)
    shard.send(Ack(1, [(first, first + 2)]), Ack(1, [(FORWARDED + first, FORWARDED + first + 1)]))
    assert numbers([shard.expect(Delivered)]) == [9]
    assert counts(shard) == (0, 1)


def test_a_message_of_a_consumer_that_is_gone_is_delivered_again_and_says_so(shard: Inside) -> None:
    first = begin(shard)
    shard.send(Release(1), forwarded(1, first))
    assert redelivered(shard) == [(1, True)]


def test_so_is_one_of_a_queue_that_has_got_a_policy_and_nothing_more_is_forwarded(shard: Inside) -> None:
    first = begin(shard)
    shard.assign(Queue("/", "q", 1, 0, policy={"x-max-length": 10}))
    shard.send(forwarded(1, first), forwarded(2, first + 1))
    again = shard.expect(Delivered)
    assert (numbers([again]), again.redelivered) == ([1, 2], True)
    assert shard.expect(MayForward).firsts == [0]
    shard.send(Ack(1, [(FORWARDED + first, FORWARDED + first + 1)]))  # for the first time it came: that is over
    assert counts(shard) == (0, 2)


def test_an_acknowledgement_of_what_was_refused_settles_nothing(shard: Inside) -> None:
    first = begin(shard)
    space = shard.store.space
    left, space.left = space.left, 0
    assert len(shard.publish(forwarded(1, first))) == 1
    space.left = left
    shard.publish(forwarded(2, first + 1))
    shard.send(Ack(1, [(FORWARDED + first, FORWARDED + first + 1)]))
    assert counts(shard) == (0, 1)
    shard.send(Ack(1, [(FORWARDED + first + 1, FORWARDED + first + 2)]))
    assert counts(shard) == (0, 0)


def test_what_the_disk_has_room_for_is_forwarded_though_its_neighbour_has_none(shard: Inside) -> None:
    first = begin(shard)
    records = [pack_many([b"x" * 3000]), pack_many([b"y" * 3000])]
    shard.store.space.left = 4000
    columns = [1, 2], ["q", "other"], [1, 1], records, False, [1, 0], [first, 0]
    shard.send(Publishes("ex", 1, 0, 5, 9, 1, *columns))
    shard.published += 2
    assert shard.expect(PublishRefusal).number == shard.published
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published)
    assert counts(shard) == (0, 1)
    assert not [message for message in shard.inbox if isinstance(message, Delivered)]


@pytest.mark.parametrize("priority", [0, 127, 128, 255])
def test_no_number_of_another_message_is_taken_for_one_that_was_forwarded(shard: Inside, priority: int) -> None:
    """The numbers of a queue's lowest priority are the highest there are."""
    shard.assign(Queue("/", "widest", 4, 0, True, {"x-max-priority": 255}))
    shard.ask(consume(9, 4))
    shard.publish(Publish((4,), replace(run_of(1, 2), priority=priority)))
    first = shard.expect(Delivered).first
    shard.send(Ack(9, [(first, first + 1)]), Nack(9, [(first + 1, first + 2)], requeue=True))
    again = shard.expect(Delivered)
    assert (numbers([again]), again.redelivered) == ([2], True)
    assert counts(shard, 4) == (0, 1)


def delayed(shard: Inside) -> None:
    shard.publish(Publish((1,), run_of(8, 1), delay_ms=60_000))


def returned_later(shard: Inside) -> None:
    shard.publish(Publish((1,), run_of(8, 1)))
    first = shard.expect(Delivered).first
    shard.send(Nack(1, [(first, first + 1)], requeue=True, delay_ms=60_000))


def staged(shard: Inside) -> None:
    shard.publish(Publish((2,), run_of(8, 1), producer=1, sequence=1, transaction=5))


@pytest.mark.parametrize("comes_later", [delayed, returned_later, staged])
def test_a_gateway_is_not_told_while_something_may_come_without_it(
    shard: Inside, comes_later: Callable[[Inside], None]
) -> None:
    shard.ask(consume(1))
    comes_later(shard)
    shard.publish(asking(1))
    settle_down(shard)
    assert told(shard) == []


def test_a_commit_may_settle_it_while_it_is_held(shard: Inside) -> None:
    first = begin(shard)
    shard.publish(forwarded(1, first))
    ack = Ack(1, [(FORWARDED + first, FORWARDED + first + 1)])
    shard.ask(Call(7, AtomicCommit([], [ack], [])))
    assert counts(shard) == (0, 0)
    shard.send(Call(8, AtomicCommit([], [ack], [])))
    assert "not settled in time" in shard.expect(Refusal).text


def test_after_a_crash_it_is_there_and_says_that_it_was_delivered(shard: Inside, tmp_path: Path) -> None:
    first = begin(shard)
    shard.publish(forwarded(1, first))
    with inside(shard.copy(tmp_path / "crashed")) as again:
        assert redelivered(again)[-1] == (1, True)  # the first one's ack may not be on disk


def test_it_takes_nothing_of_its_consumers_window(shard: Inside) -> None:
    shard.ask(Call(101, Consume(1, 1, 0, False, 4000)))
    shard.publish(asking(0))
    first = shard.expect(Delivered).first + 1
    large = replace(run_of(1, 1), records=pack_many([b"x" * 1000]))
    for number in range(10):
        shard.publish(Publish((1,), large, forwarded=1, forwarded_as=first + number))
    shard.publish(Publish((1,), run_of(7, 1)))
    assert numbers([shard.expect(Delivered)]) == [7]


def test_what_is_got_beside_it_has_its_own_number(shard: Inside) -> None:
    first = begin(shard, prefetch=1)
    shard.publish(forwarded(1, first), Publish((1,), run_of(2, 1)))
    shard.send(Call(5, Get(9, 1, False, 1 << 20)))
    got = shard.expect(Got)
    assert got.first == first + 1
    shard.send(Ack(9, [(got.first, got.first + 1)]))
    assert counts(shard) == (0, 1)


def test_a_gateway_is_told_together_what_it_may_forward(shard: Inside) -> None:
    shard.ask(consume(1))
    shard.ask(consume(2, 2))
    shard.send(asking(1), asking(2, 2))
    shard.published += 2
    message = shard.expect(MayForward)
    assert (message.consumers, message.firsts, message.upto) == ([1, 2], [1, 1], 2)
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 2)
