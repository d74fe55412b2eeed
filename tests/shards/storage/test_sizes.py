"""What a store says of its size."""

import math
from pathlib import Path

from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.topology.entities import Queue as Declared


def test_used_bytes_fall_when_messages_go_though_the_file_does_not(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "shard-0")
    store.load()
    segment = Segment(1, 0, durable=True, born=0.0)
    batch = RecordBatch("e", "k", 1, 1, 1, 0, 50, pack_many([bytes(100_000)] * 50))
    segment.batches, segment.end, segment.count, segment.bytes = [(0, batch)], 50, 50, len(batch.records)
    before = store.sizes()["used_bytes"]
    store.write(WriteBatch(queues=[Declared("/", "q", 1, 0)], put=[segment]))
    full = store.sizes()
    assert full["used_bytes"] > before + 5_000_000
    store.write(WriteBatch(delete=[segment]))
    store.rest(math.inf, False)
    assert store.sizes()["used_bytes"] < before + 100_000
    assert store.sizes()["file_bytes"] >= full["file_bytes"]
    store.close()
