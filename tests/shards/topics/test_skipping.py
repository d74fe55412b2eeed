"""A reader with tags does not read segments that have none of them, also after a restart."""

from pathlib import Path

import pytest

from shardmq.bus.messages.streams import Reading
from shardmq.message.properties import Properties
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.segments.tag_summary import TAG
from shardmq.shards.storage.recovery import stored_queues
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.cursor import cursor_at
from shardmq.shards.topics.partition import Partition
from shardmq.topology.entities import Queue as Declared

MEMORY = 1000
"""So little that every segment is read from the store."""

SEGMENTS = 40
DECLARED = Declared("/", "s", 7, 0, arguments={"x-queue-type": "stream"})


class CountingBuffer(WriteBuffer):
    """Notes which segments are read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, MEMORY)
        self.looked_at: list[int] = []

    def batches(self, segment: Segment) -> list[NumberedBatch]:
        self.looked_at.append(segment.first)
        return super().batches(segment)


def opened(folder: Path) -> tuple[Store, CountingBuffer, Partition]:
    store = Store.open(folder, 0)
    contents = store.load()
    buffer = CountingBuffer(store)
    stored = stored_queues(contents)
    if 7 not in stored:
        buffer.declare(DECLARED)
        return store, buffer, Partition(DECLARED, buffer, SteadyClock(1))
    return store, buffer, Partition(DECLARED, buffer, SteadyClock(1), stored[7])


def fill(buffer: WriteBuffer, partition: Partition, first_is_tagged: bool) -> None:
    """Segments of ten messages, the second of which has the segment's tag, and maybe the first."""
    for place in range(SEGMENTS):
        tagged = pack_many([b"x"], Properties(headers={TAG: f"tag {place}"}))
        plain = pack_many([bytes(600)])
        packed = (tagged if first_is_tagged else plain) + tagged + plain * 8
        partition.append(RecordBatch("", "s", 0, 1, 9, 10 * place, 10, packed))
        partition.seal()
        buffer.demand()
        buffer.commit()


def read(partition: Partition, *tags: str) -> list[int]:
    cursor = cursor_at(partition, Reading("first", tags=list(tags)))
    offsets = []
    while cursor.ready or cursor.is_behind:
        if cursor.ready:
            for first, _, _, batch in cursor.take(100, 1 << 20, alone=True):
                offsets += range(first, first + batch.count)
    return offsets


@pytest.mark.parametrize("is_restarted", [False, True])
def test_segments_without_a_readers_tags_are_not_read(tmp_path: Path, is_restarted: bool) -> None:
    store, buffer, partition = opened(tmp_path)
    fill(buffer, partition, first_is_tagged=True)
    if is_restarted:
        store.close()
        store, buffer, partition = opened(tmp_path)
    buffer.looked_at.clear()
    assert read(partition, "tag 7", "tag 31") == [70, 71, 310, 311]
    assert set(buffer.looked_at) == {70, 310}
    assert read(partition, "tag") == []
    store.close()


def test_what_one_reader_has_looked_through_is_known_to_the_next_also_after_a_restart(tmp_path: Path) -> None:
    store, buffer, partition = opened(tmp_path)
    fill(buffer, partition, first_is_tagged=False)
    assert [segment.tags for segment in partition._segments] == [None] * SEGMENTS
    assert read(partition, "tag 7") == [71]
    buffer.demand()
    buffer.commit()
    store.close()
    store, buffer, partition = opened(tmp_path)
    assert read(partition, "tag 31") == [311]
    assert set(buffer.looked_at) == {310}
    store.close()
