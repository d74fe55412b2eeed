"""Cutting record batches: pieces hold the messages asked for, and joined they are the batch."""

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record import Record
from shardmq.message.record_batch import PERSISTENT, RecordBatch, can_join, join
from shardmq.shards.segments.shared_batch import ENDS_KEPT_MAX, SharedBatch, shared_batch
from shardmq.shards.segments.slicer import BatchSlicer, single_batches

properties = st.none() | st.builds(Properties, content_type=st.none() | st.text(max_size=20))
messages = st.lists(st.tuples(properties, st.binary(max_size=200)), min_size=1, max_size=30)


def run_of(items: list[tuple[Properties | None, bytes]]) -> RecordBatch:
    packed = b"".join(records.pack(*item) for item in items)
    return RecordBatch("flights", "UA.EWR", PERSISTENT, 1_700_000_000_000, 2**63, 7, len(items), packed)


@given(messages, st.data())
def test_a_batch_cut_in_two_and_joined_is_the_batch(
    items: list[tuple[Properties | None, bytes]], data: st.DataObject
) -> None:
    batch = run_of(items)
    place = data.draw(st.integers(0, batch.count))
    if 0 < place < batch.count:
        left, right = BatchSlicer().cut(batch, 0, place), BatchSlicer().cut(batch, place, batch.count)
        assert right.serial == batch.serial + place
        assert can_join(left, right)
        assert join([left, right]) == batch


@given(messages, st.data())
def test_a_cut_holds_the_messages_asked_for(items: list[tuple[Properties | None, bytes]], data: st.DataObject) -> None:
    batch = run_of(items)
    start = data.draw(st.integers(0, batch.count - 1))
    stop = data.draw(st.integers(start + 1, batch.count))
    part = BatchSlicer().cut(batch, start, stop)
    assert records.unpack(part.records, part.count) == [Record(*item) for item in items[start:stop]]


@given(messages, st.lists(st.integers(1, 5)))
def test_one_cutter_cuts_a_batch_piece_by_piece_from_the_front(
    items: list[tuple[Properties | None, bytes]], sizes: list[int]
) -> None:
    batch, slicer, pieces, start = run_of(items), BatchSlicer(), [], 0
    for size in [*sizes, len(items)]:
        stop = min(start + size, batch.count)
        if start < stop:
            pieces.append(slicer.cut(batch, start, stop))
        start = stop
    assert join(pieces) == batch


@given(messages, st.data())
def test_a_view_of_a_shared_batch_is_the_cut_without_a_copy(
    items: list[tuple[Properties | None, bytes]], data: st.DataObject
) -> None:
    batch = run_of(items)
    shared = shared_batch(batch, 3, 100, 100 + len(batch.records))
    start = data.draw(st.integers(0, batch.count - 1))
    stop = data.draw(st.integers(start + 1, batch.count))
    view, cut = BatchSlicer().view(shared, start, stop), BatchSlicer().cut(batch, start, stop)
    assert isinstance(view, SharedBatch)
    assert msgspec.msgpack.encode(view) == msgspec.msgpack.encode(cut)
    assert bytes(view.source.records)[view.begin - 100 :].startswith(view.records)
    assert view.body == 3
    assert (view is shared) is (stop - start == batch.count)


def test_queues_of_a_shared_batch_look_for_its_records_once() -> None:
    batch = run_of([(None, b"x" * 100)] * ENDS_KEPT_MAX)
    shared = shared_batch(batch, 1, 0, len(batch.records))
    assert shared.ends() is shared.ends()
    longer = run_of([(None, b"x")] * (ENDS_KEPT_MAX + 1))
    many = shared_batch(longer, 2, 0, len(longer.records))
    assert many.ends() is not many.ends()


@given(messages, st.booleans(), st.data())
def test_the_messages_of_a_batch_one_by_one_are_the_batch(
    items: list[tuple[Properties | None, bytes]], is_shared: bool, data: st.DataObject
) -> None:
    batch = run_of(items)
    if is_shared:
        start = data.draw(st.integers(0, batch.count - 1))
        whole = shared_batch(batch, 5, 0, len(batch.records))
        batch = BatchSlicer().view(whole, start, whole.count)
    singles = list(single_batches(batch))
    assert [single.count for single in singles] == [1] * batch.count
    assert join(singles).records == bytes(batch.records)
    assert [single.serial for single in singles] == [*range(batch.serial, batch.serial + batch.count)]
    assert all(can_join(left, right) for left, right in pairwise(singles))
    if isinstance(batch, SharedBatch):
        assert all(isinstance(single, SharedBatch) and single.source is batch.source for single in singles)
