"""Summaries never lack a tag, and mostly exclude what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.message.properties import Properties
from shardmq.message.record import pack_many
from shardmq.message.record_batch import AMQP, RecordBatch
from shardmq.protocol.amqp import properties, records
from shardmq.shards.segments.index_entry import PLACE, extent_of, segment_of
from shardmq.shards.segments.tag_summary import (
    SUMMARY_BYTES,
    TAG,
    may_have,
    seems_tagged,
    summary_of,
    tags_in,
    union,
)
from shardmq.shards.segments.timed_segment import TimedSegment

texts = st.text(st.characters(codec="utf-8"), max_size=300)
headers = st.dictionaries(st.sampled_from([TAG, "a", "x-stream", "zz"]), texts | st.integers(0, 99), max_size=4)


def batch_of(tables: list[dict[str, str | int]], is_amqp: bool) -> RecordBatch:
    owns = [Properties(headers=dict(table), message_id=f"m{place}") for place, table in enumerate(tables)]
    bodies = [b"x" * place for place in range(len(tables))]
    if is_amqp:
        packed = records.pack([properties.encode(own) for own in owns], bodies)
    else:
        packed = b"".join([pack_many([body], own) for own, body in zip(owns, bodies, strict=True)])
    return RecordBatch("ex", "key", AMQP if is_amqp else 0, 5, 9, 0, len(tables), packed)


@given(st.lists(headers, min_size=1, max_size=20), st.booleans(), st.integers(16, 255))
def test_every_tag_is_found_and_in_the_summary(tables: list[dict[str, str | int]], is_amqp: bool, size: int) -> None:
    expected = {tag.encode() for table in tables if isinstance(tag := table.get(TAG), str)}
    found = tags_in(batch_of(tables, is_amqp))
    assert expected <= found
    assert found - expected <= {b""}
    summary = summary_of(found, size)
    assert len(summary) == size
    assert all(may_have(summary, [tag]) for tag in expected)


@pytest.mark.parametrize("is_amqp", [True, False])
def test_a_tag_at_the_beginning_is_noticed_without_looking_further(is_amqp: bool) -> None:
    assert seems_tagged(batch_of([{TAG: "a"}, {}], is_amqp))
    assert not seems_tagged(batch_of([{}] * 300 + [{TAG: "a"}], is_amqp))


def test_few_tags_exclude_most_others() -> None:
    summary = summary_of([b"tag %d" % number for number in range(20)], SUMMARY_BYTES)
    believed = sum([may_have(summary, [b"other %d" % number]) for number in range(1000)])
    assert believed < 30


def test_a_union_has_the_tags_of_all_and_is_unknown_where_one_is() -> None:
    parts = [summary_of([b"%d" % number], 16) for number in range(5)]
    together = union(parts)
    assert together is not None
    assert all(may_have(together, [b"%d" % number]) for number in range(5))
    assert union([*parts, None]) is None
    assert union([*parts, summary_of([b"9"], 32)]) is None
    assert union([]) is None


@given(st.none() | st.binary(min_size=16, max_size=255))
def test_an_index_entry_keeps_the_summary(tags: bytes | None) -> None:
    segment = TimedSegment(7, 100, True, 0.0)
    segment.end, segment.count, segment.live, segment.bytes = 110, 10, 10, 999
    segment.first_ms, segment.last_ms, segment.tags = 5, 6, tags
    found = segment_of(PLACE.pack(7, 100), extent_of(segment))
    assert isinstance(found, TimedSegment)
    assert (found.first_ms, found.last_ms, found.tags) == (5, 6, tags)
    assert (found.end, found.count, found.live, found.bytes) == (110, 10, 10, 999)
