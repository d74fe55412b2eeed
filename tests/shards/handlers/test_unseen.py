"""What waited in a gateway for a consumer, and goes back without having been seen by its client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.shard import Ack, Consume, Delivered, Nack, Qos, Release
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.driver import consume, numbers, run_of

TIMEOUT_MS = 10_000
COUNTED, TIMED, URGENT, SHORT = 2, 3, 4, 5
QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "counted", COUNTED, 0, arguments={"x-delivery-limit": 1}),
    Queue("/", "timed", TIMED, 0, arguments={"x-consumer-timeout": TIMEOUT_MS}),
    Queue("/", "urgent", URGENT, 0, arguments={"x-max-priority": 5}),
    Queue("/", "short", SHORT, 0, arguments={"x-max-length": 3}),
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def put_back(consumer: int, *ranges: tuple[int, int]) -> Nack:
    return Nack(consumer, list(ranges), requeue=True, is_unseen=True)


def come(shard: Clocked, consumer: int, count: int) -> list[Delivered]:
    """The next messages of a consumer, so many."""
    came: list[Delivered] = []
    while sum([one.batch.count for one in came]) < count:
        came.append(shard.expect(Delivered, lambda one: one.consumer == consumer))
    return came


@pytest.mark.parametrize("queue", [1, COUNTED, TIMED, URGENT, SHORT])
def test_it_comes_again_in_its_order_as_if_for_the_first_time(shard: Clocked, queue: int) -> None:
    shard.take_in(run_of(0, 3), queue=queue)
    for consumer in range(1, 5):
        shard.ask(consume(consumer, queue, prefetch=3))
        came = come(shard, consumer, 3)
        assert (numbers(came), {one.redelivered for one in came}) == ([0, 1, 2], {False})
        first = came[0].first
        shard.tell(put_back(consumer, (first, first + 3)), Release(consumer))
        assert shard.ready(queue) == 3


def test_what_the_client_has_seen_stays_with_it(shard: Clocked) -> None:
    shard.take_in(run_of(0, 4))
    shard.ask(consume(1, prefetch=4))
    come(shard, 1, 4)
    shard.ask(consume(2, prefetch=9))
    shard.send(Call(9, Qos(1, -1)), put_back(1, (2, 4)))
    assert {(one.redelivered, *numbers([one])) for one in come(shard, 2, 2)} <= {(False, 2, 3), (False, 2), (False, 3)}
    shard.tell(Ack(1, [(0, 1)]), Release(1))
    (seen,) = come(shard, 2, 1)
    assert (numbers([seen]), seen.redelivered) == ([1], True)


def test_what_was_seen_before_keeps_its_mark_and_its_count(shard: Clocked) -> None:
    shard.take_in(run_of(0, 1), queue=COUNTED)
    shard.ask(consume(1, COUNTED, prefetch=1))
    come(shard, 1, 1)
    shard.send(Nack(1, [(0, 1)], requeue=True))
    for _ in range(3):
        (again,) = come(shard, 1, 1)
        assert (again.redelivered, again.deliveries) == (True, 1)
        shard.send(put_back(1, (0, 1)))


def test_it_has_its_whole_time_when_it_comes_to_the_same_consumer_again(shard: Clocked) -> None:
    shard.take_in(run_of(0, 1), queue=TIMED)
    shard.ask(Call(101, Consume(1, TIMED, 1, False, DELIVERY_WINDOW_BYTES)))
    come(shard, 1, 1)
    shard.put_forward(TIMEOUT_MS // 2)
    shard.send(put_back(1, (0, 1)))
    come(shard, 1, 1)
    shard.put_forward(TIMEOUT_MS * 3 // 4)
    assert shard.table(TIMED)["unacked"] == 1
    assert not [one for one in shard.inbox if isinstance(one, Delivered)]
    shard.put_forward(TIMEOUT_MS // 2)
    (overdue,) = come(shard, 1, 1)
    assert overdue.redelivered


def test_what_is_settled_or_nobodys_is_left_alone(shard: Clocked) -> None:
    shard.take_in(run_of(0, 2))
    shard.ask(consume(1, prefetch=2))
    come(shard, 1, 2)
    shard.tell(Ack(1, [(0, 2)]), put_back(1, (0, 2)), put_back(7, (0, 2)))
    assert shard.ready() == 0
