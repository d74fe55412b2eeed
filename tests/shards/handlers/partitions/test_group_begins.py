"""What a shard keeps of how a group began."""

from pathlib import Path

import pytest

from shardmq.bus.messages.groups import CommitOffset, GroupReading, InspectPartition
from shardmq.bus.messages.shard import Consume, Release
from shardmq.bus.messages.streams import Reading
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked


@pytest.mark.parametrize(("is_of_a_member", "kept"), [(True, 3), (False, 0)])
def test_with_how_many_partitions_a_group_began_is_kept_by_the_member_that_made_its_cursor(
    tmp_path: Path, is_of_a_member: bool, kept: int
) -> None:
    shard = Clocked(tmp_path)
    shard.assign(Queue("/", "log", 1, 0, durable=True, arguments={"x-queue-type": "stream"}))

    def join(partitions_at_begin: int, epoch: int) -> None:
        reading = Reading("next")
        group = GroupReading("g", False, epoch, "m", reading, partitions_at_begin=partitions_at_begin)
        shard.do(Consume, epoch, 1, 0, False, DELIVERY_WINDOW_BYTES, 0, False, 0, False, 0, None, group)
        shard.tell(Release(epoch))

    def told() -> int:
        [group] = shard.do(InspectPartition, 1)[5]
        return int(group[12])

    if is_of_a_member:
        join(3, 1)
    else:
        shard.do(CommitOffset, 1, "g", 0, 0)
    join(4, 2)
    assert told() == kept
    shard.stop()
    assert told() == kept
    shard.close()
