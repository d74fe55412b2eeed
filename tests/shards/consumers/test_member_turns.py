"""Members of a shared group at a shard: those that have used up their prefetch are asked to take what waits."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.groups import Declined, GroupReading, Starved
from shardmq.bus.messages.shard import Consume, Delivered, Nack, Publish, Qos
from shardmq.bus.messages.streams import Reading
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.topology.entities import Queue
from tests.shards.driver import numbers, run_of
from tests.shards.inside import Inside, inside


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Inside]:
    """A shard with a stream of ten messages."""
    with inside(tmp_path / "shard") as one:
        one.assign(Queue("/", "s", 1, 0, arguments={"x-queue-type": "stream"}))
        one.publish(Publish((1,), run_of(0, 10)))
        yield one


def join(shard: Inside, consumer: int, prefetch: int) -> None:
    group = GroupReading("g", True, 0, f"m{consumer}", Reading("first"))
    shard.ask(Call(100 + consumer, Consume(consumer, 1, prefetch, False, DELIVERY_WINDOW_BYTES, group=group)))


def got(shard: Inside, consumer: int, count: int) -> list[int]:
    found: list[Delivered] = []
    while sum([one.batch.count for one in found]) < count:
        found.append(shard.expect(Delivered, lambda one: one.consumer == consumer))
    return numbers(found)


def test_members_without_prefetch_are_asked_while_messages_wait(shard: Inside) -> None:
    for consumer in (1, 2, 3):
        join(shard, consumer, -1)
    assert {shard.expect(Starved).consumer for _ in range(3)} == {1, 2, 3}
    shard.ask(Call(9, Qos(2, 10)))
    assert got(shard, 2, 10) == list(range(10))


def test_as_many_are_asked_as_messages_wait_and_another_where_one_declines(shard: Inside) -> None:
    join(shard, 9, 100)
    got(shard, 9, 10)
    for consumer in (1, 2):
        join(shard, consumer, -1)
    shard.ask(Call(8, Qos(9, -1)))
    shard.send(Nack(9, [(9, 10)], True))
    first = shard.expect(Starved).consumer
    shard.send(Declined(first))
    second = shard.expect(Starved).consumer
    shard.send(Declined(second))
    third = shard.expect(Starved).consumer
    assert {first, second, third} == {1, 2, 9}
