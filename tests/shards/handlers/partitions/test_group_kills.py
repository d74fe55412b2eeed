"""A shard is killed again and again while groups consume: nothing is skipped, and what is done with stays so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.groups import GroupReading, InspectPartition
from shardmq.bus.messages.shard import Ack, AtomicCommit, Consume, Delivered, Nack, Publish
from shardmq.bus.messages.streams import Reading
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.ranges import RangeSet
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, run_of

COUNT = 3000
KILLS = 8
SHARED = 3
"""How many members the shared group has."""

DONE = [("ordered", COUNT, 0), ("shared", COUNT, 0)]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(Queue("/", "s", 1, 0, arguments={"x-queue-type": "stream"}))
    yield shard
    shard.close()


def join(shard: Shard, consumer: int, name: str, epoch: int, is_shared: bool) -> int:
    group = GroupReading(name, is_shared, epoch, f"m{consumer}", Reading("first"))
    answer = shard.ask(Call(100 + consumer, Consume(consumer, 1, 50, False, DELIVERY_WINDOW_BYTES, group=group)))
    assert isinstance(answer, int)
    return answer


class Seen:
    """What a group was delivered and has acknowledged, and what of that is on disk for certain."""

    def __init__(self) -> None:
        self.delivered = RangeSet()
        self.acked = RangeSet()
        self.lately = RangeSet()  # since the shard was started, and may not be on disk
        self.written = RangeSet()

    def handle(self, shard: Shard, one: Delivered) -> None:
        """Acknowledge most of a delivery; a message in ten comes again first."""
        first, end = one.first, one.first + one.batch.count
        assert not self.written.within(first, end), "what was acknowledged on disk came again"
        assert one.redelivered or not self.delivered.within(first, end)
        self.delivered.add(first, end)
        again = [] if one.redelivered else [(place, place + 1) for place in range(first, end) if place % 10 == 3]
        done = RangeSet([(first, end)])
        for start, stop in again:
            done.remove(start, stop)
        for start, stop in done:
            self.acked.add(start, stop)
            self.lately.add(start, stop)
        shard.send(Ack(one.consumer, list(done)), *([Nack(one.consumer, again, True)] if again else []))

    def write(self) -> None:
        for start, stop in self.lately:
            self.written.add(start, stop)


def groups(shard: Shard) -> list[tuple[str, int, int]]:
    """Name, offset and unsettled messages of each group."""
    return [(group[0], group[2], group[6]) for group in shard.ask(Call(9, InspectPartition(1)))[5]]


def test_killed_shards_skip_nothing_of_what_groups_read(shard: Shard) -> None:
    shard.send(*[Publish((1,), run_of(start, 100)) for start in range(0, COUNT, 100)])
    shard.until(lambda: shard.queue()["ready"] == COUNT)
    seen = ordered, shared = Seen(), Seen()
    for life in range(1, KILLS + 2):
        assert join(shard, 1, "ordered", life, is_shared=False) <= ordered.acked.gaps(0, COUNT + 1)[0][0]
        for member in range(SHARED):
            join(shard, 2 + member, "shared", life, is_shared=True)
        handled, is_written = 0, life % 2 == 0  # in every other life, nobody waits for the disk
        while handled < 2 * COUNT / KILLS if life <= KILLS else groups(shard) != DONE:
            one = shard.expect(Delivered)
            (ordered if one.consumer == 1 else shared).handle(shard, one)
            handled += one.batch.count
            if not is_written and handled > COUNT / KILLS:
                is_written = True
                shard.ask(Call(7, AtomicCommit([], [], [])))
                for each in seen:
                    each.write()
        if life <= KILLS:
            shard.restart()
            for each in seen:
                each.lately.clear()
    assert [list(each.delivered) for each in seen] == [[(0, COUNT)], [(0, COUNT)]]


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_a_group_is_told_that_it_has_acknowledged_survives_a_kill(shard: Shard, is_shared: bool) -> None:
    for life in range(1, 4):
        shard.send(Publish((1,), run_of(10 * life, 10)))
        join(shard, 1, "told", life, is_shared)
        one = shard.expect(Delivered)
        shard.send(Ack(1, [(one.first, one.first + one.batch.count)]))
        [group] = shard.ask(Call(9, InspectPartition(1, "told")))[5]
        assert group[2] == 10 * life
        shard.restart()
        assert groups(shard) == [("told", 10 * life, 0)]
