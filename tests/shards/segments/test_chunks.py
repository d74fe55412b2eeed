"""Chunks have the messages of their segment, cut anywhere, within a budget."""

from hypothesis import given
from hypothesis import strategies as st

from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.chunks import CHUNK_BYTES, ChunkCache, chunk_at
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.segments.shared_batch import SharedBatch

sizes = st.lists(st.lists(st.sampled_from([1, 50, 5000]), min_size=1, max_size=30), min_size=1, max_size=8)


def segment_of(sizes: list[list[int]], first: int = 5) -> tuple[Segment, list[NumberedBatch], list[bytes]]:
    segment, bodies = Segment(1, first, True, 0.0), []
    batches: list[NumberedBatch] = []
    for counts in sizes:
        own = [b"%d" % (len(bodies) + place) * size for place, size in enumerate(counts)]
        batch = RecordBatch("ex", "key", 1, 5, 9, len(bodies), len(own), pack_many(own))
        batches.append((first + len(bodies), batch))
        bodies += own
        segment.bytes += len(batch.records)
    segment.end = first + len(bodies)
    segment.count = len(bodies)
    return segment, batches, bodies


@given(sizes, st.data())
def test_parts_of_chunks_are_the_messages_that_were_asked_for(sizes: list[list[int]], data: st.DataObject) -> None:
    segment, batches, bodies = segment_of(sizes)
    chunks = ChunkCache(1 << 30).make(segment, batches)
    assert [chunk.first for chunk in chunks] == [5, *[chunk.end for chunk in chunks[:-1]]]
    assert chunks[-1].end == segment.end
    start = data.draw(st.integers(segment.first, segment.end - 1))
    chunk = chunks[chunk_at(chunks, start)]
    end = data.draw(st.integers(start + 1, chunk.end))
    room = data.draw(st.sampled_from([0, 60, 6000, 1 << 20]))
    part = chunk.part(start, end, room)
    expected = bodies[start - 5 : end - 5]
    if part is None:
        assert len(pack_many(expected[:1])) > room
        return
    assert len(part.records) <= room
    assert part.serial == start - 5
    assert [record.body for record in unpack(part.records, part.count)] == expected[: part.count]
    if part.count < len(expected):
        assert len(part.records) + len(pack_many([expected[part.count]])) > room


def test_chunks_that_are_large_enough_are_sent_once() -> None:
    segment, batches, _ = segment_of([[100] * 100] * 30)
    chunks = ChunkCache(1 << 20).make(segment, batches)
    assert len(chunks) > 1
    assert all(isinstance(chunk.batch, SharedBatch) for chunk in chunks)
    assert all(len(chunk.batch.records) <= CHUNK_BYTES for chunk in chunks)
    numbers = [chunk.batch.body for chunk in chunks if isinstance(chunk.batch, SharedBatch)]
    assert len(set(numbers)) == len(numbers)


def test_chunks_are_kept_within_a_budget_and_made_again_when_their_segment_has_grown() -> None:
    cache = ChunkCache(100_000)
    kept = [segment_of([[100] * 100]) for _ in range(20)]
    made = [cache.make(segment, batches) for segment, batches, _ in kept]
    assert cache.find(kept[0][0]) is None
    assert cache.find(kept[-1][0]) is made[-1]
    assert cache._bytes <= 100_000
    kept[-1][0].end += 1
    assert cache.find(kept[-1][0]) is None
    assert not cache.takes(segment_of([[100_000]])[0])
    assert not cache.takes(segment_of([[100]])[0])
