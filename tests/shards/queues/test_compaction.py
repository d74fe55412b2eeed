"""Collecting and merging: what is copied is stored once, and only what lives."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.compaction import Compactor
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue as Declared

DECLARED = Declared("/", "q", 1, 0)
SEGMENTS, COUNT = 80, 100


class Shelf:
    """A queue on its store, opened as a shard opens it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder)
        contents = self.store.load()
        self.buffer = WriteBuffer(self.store, 16 << 20)
        self.queue = PlainQueue(DECLARED, self.buffer, SteadyClock(), stored_queues(contents).get(1, RecoveredQueue()))

    def fill(self, segments: int, count: int) -> None:
        """Publish segment after segment, and hand everything out."""
        self.buffer.declare(DECLARED)
        for number in range(segments):
            bodies = [b"%d" % (number * count + i) for i in range(count)]
            self.queue.append(RecordBatch("", "q", 1, 0, 1, number * count, count, pack_many(bodies)))
            self.queue.seal()
            self.buffer.commit()
        self.queue.take(segments * count, 1 << 60, alone=True)

    def collect(self) -> None:
        """Let the compactor do all it can, some seconds later."""
        self.buffer.now = time.monotonic() + 5
        while Compactor(self.buffer).work():
            self.buffer.commit()
        self.buffer.commit()

    def numbers(self) -> list[int]:
        """Hand out what is ready; returns the messages' numbers."""
        deliveries = self.queue.take(1 << 40, 1 << 60, alone=True)
        return [batch.serial + i for _, _, _, batch in deliveries for i in range(batch.count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shard-0"


@pytest.fixture
def shelf(folder: Path) -> Iterator[Shelf]:
    shelf = Shelf(folder)
    shelf.fill(SEGMENTS, COUNT)
    yield shelf
    shelf.store.close()


def reopened(shelf: Shelf, folder: Path) -> Shelf:
    shelf.store.close()
    return Shelf(folder)


def test_collecting_and_merging_in_one_pass_stores_each_live_message_once(shelf: Shelf, folder: Path) -> None:
    for number in range(SEGMENTS):  # every other segment sparse, its neighbours small and well filled
        shelf.queue.settle([(number * COUNT, number * COUNT + (99 if number % 2 == 0 else 10))])
    shelf.buffer.commit()
    live = [n for n in range(SEGMENTS * COUNT) if n % COUNT >= (99 if n // COUNT % 2 == 0 else 10)]
    shelf.collect()
    assert shelf.queue.valid == len(live)
    after = reopened(shelf, folder)
    assert len(after.queue.index.segments) == len(shelf.queue.index.segments)
    assert after.queue.valid == len(live)
    assert after.numbers() == live
    shelf.store = after.store


def test_a_queue_less_than_half_valid_shrinks_to_what_is_valid(shelf: Shelf, folder: Path) -> None:
    for number in range(SEGMENTS):
        shelf.queue.settle([(number * COUNT + 3, number * COUNT + COUNT)])
    shelf.buffer.commit()
    assert shelf.queue.total == SEGMENTS * COUNT
    shelf.collect()
    assert shelf.queue.total == shelf.queue.valid == 3 * SEGMENTS
    after = reopened(shelf, folder)
    assert after.queue.total == after.queue.valid == 3 * SEGMENTS
    assert after.numbers() == [number * COUNT + i for number in range(SEGMENTS) for i in range(3)]
    shelf.store = after.store


def test_messages_settled_after_they_were_copied_are_gone_after_a_restart(shelf: Shelf, folder: Path) -> None:
    for number in range(SEGMENTS):
        shelf.queue.settle([(number * COUNT + 3, number * COUNT + COUNT)])
    shelf.buffer.commit()
    shelf.collect()
    for number in range(SEGMENTS):
        shelf.queue.settle([(number * COUNT, number * COUNT + 2)])
    shelf.buffer.demand()
    shelf.buffer.commit()
    after = reopened(shelf, folder)
    assert after.numbers() == [number * COUNT + 2 for number in range(SEGMENTS)]
    shelf.store = after.store


def test_small_neighbours_become_one(shelf: Shelf) -> None:
    assert len(shelf.queue.index.segments) == SEGMENTS
    shelf.collect()
    assert len(shelf.queue.index.segments) == 1
    assert shelf.queue.valid == SEGMENTS * COUNT
