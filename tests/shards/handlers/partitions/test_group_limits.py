"""The delivery limit of a group: what counts as a delivery in vain, and what does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.base import Call
from shardmq.bus.messages.groups import GroupReading, InspectPartition
from shardmq.bus.messages.shard import Ack, Cancelled, Consume, Delivered, Nack, Publish, Release
from shardmq.bus.messages.streams import Reading
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.topology.entities import Queue
from tests.shards.driver import run_of
from tests.shards.inside import Inside, inside

STREAM = Queue("/", "s", 1, 0, arguments={"x-queue-type": "stream"})
PLAIN = Queue("/", "q", 2, 0, arguments={"x-delivery-limit": 0})


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Inside]:
    """A shard with a stream of ten messages, and a queue of one."""
    with inside(tmp_path / "shard") as one:
        one.assign(STREAM)
        one.assign(PLAIN)
        one.publish(Publish((1,), run_of(0, 10)))
        yield one


def join(shard: Inside, consumer: int, epoch: int, *, shared: bool = False) -> None:
    """Consume as a member of a group whose messages die when they have come back once."""
    group = GroupReading("g", shared, epoch, f"m{consumer}", Reading("first"), delivery_limit=0)
    shard.ask(Call(100 + consumer, Consume(consumer, 1, 100, False, DELIVERY_WINDOW_BYTES, group=group)))


def got(shard: Inside, consumer: int, count: int) -> list[Delivered]:
    """The next messages that a consumer gets, so many."""
    found: list[Delivered] = []
    while sum([each.batch.count for each in found]) < count:
        found.append(shard.expect(Delivered, lambda each: each.consumer == consumer))
    return found


def is_all_again(found: list[Delivered]) -> bool:
    """Whether these are all messages, marked as delivered before, none of which counts as a delivery in vain."""
    numbers = [number for each in found for number in range(each.first, each.first + each.batch.count)]
    return numbers == list(range(10)) and all(each.redelivered and not each.deliveries for each in found)


@pytest.mark.parametrize("shared", [False, True])
def test_a_member_that_is_gone_was_given_nothing_in_vain(shard: Inside, shared: bool) -> None:
    for consumer in range(1, 4):
        join(shard, consumer, consumer, shared=shared)
        found = got(shard, consumer, 10)
        shard.send(Release(consumer))
    assert is_all_again(found)


def test_neither_was_one_whose_partition_was_given_to_another(shard: Inside) -> None:
    for consumer in range(1, 4):
        join(shard, consumer, consumer)
        found = got(shard, consumer, 10)
    assert is_all_again(found)
    assert shard.expect(Cancelled).consumer == 1


def test_neither_was_one_whose_gateway_lost_its_link(shard: Inside) -> None:
    for epoch in (1, 2):
        join(shard, 1, epoch)
        got(shard, 1, 10)
        shard.dialer._lose("for the test")
        shard.inbox.clear()
        shard.expect(LinkOpened)
    join(shard, 1, 3)
    assert is_all_again(got(shard, 1, 10))


def test_what_the_program_has_not_seen_comes_back_without_a_count_and_what_it_nacks_with_one(shard: Inside) -> None:
    join(shard, 1, 1)
    got(shard, 1, 10)
    shard.send(
        Nack(1, [(1, 10)], True, is_unhandled=True), Nack(1, [(0, 1)], True), Nack(1, [(0, 1)], True, 0, False, True)
    )
    again = got(shard, 1, 9)
    assert (again[0].first, again[0].redelivered, again[0].deliveries) == (1, True, 0)
    shard.send(Ack(1, [(1, 10)]))
    state = shard.ask(Call(55, InspectPartition(1, "g")))
    assert state[5][0][2] == 10, "the offset is not behind the message that died"  # type: ignore[index]


def test_a_queue_counts_what_returns_unseen_as_rabbitmq_does(shard: Inside) -> None:
    shard.publish(Publish((2,), run_of(0, 1)))
    shard.ask(Call(101, Consume(1, 2, 100, False, DELIVERY_WINDOW_BYTES)))
    got(shard, 1, 1)
    shard.send(Nack(1, [(0, 1)], True, is_unhandled=True))
    shard.publish(Publish((2,), run_of(1, 1)))
    assert got(shard, 1, 1)[0].first == 1, "the first message has not died"
