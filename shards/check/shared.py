"""Looks at shared bodies: are all there that segments refer to, can they be read, and does somebody refer to each?

A damaged body loses its messages in every queue that has them; the rest of their segments is kept.
"""

from collections.abc import Iterator
from struct import error as StructError
from typing import Final

import msgspec

from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.check.queues import Look, lost
from shardmq.shards.segments.index_entry import extent_of
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.segments.shared_batch import BY_REFERENCE, Reference, reference_of
from shardmq.shards.segments.timed_segment import TimedSegment
from shardmq.shards.storage.schema import (
    INDEX,
    NUMBER,
    SEGMENTS,
    SHARED,
    number_of,
    segment_key,
)
from shardmq.storage.checksums import sealed_row
from shardmq.storage.repair.findings import Finding, Repair

_encode: Final = msgspec.msgpack.Encoder().encode


def look_at_bodies(look: Look) -> Iterator[Finding]:
    """Look at all shared bodies: before segments, which refer to them."""
    for key, content in look.store.rows(SHARED):
        look.seen()
        if len(key) != NUMBER.size or content is None:
            what = "a shared body is not what was written" if content is None else f"the key has {len(key)} bytes"
            mend = "deletes it; what its queues lose is told of each"
            yield look.found(SHARED, key, what, repair=Repair(mend, edits=((SHARED, key, None),)))
        else:
            look.bodies[number_of(key)] = len(content)


def look_at_unreferred(look: Look) -> Iterator[Finding]:
    """Look for shared bodies that nothing refers to: behind segments and staged messages."""
    for number in look.bodies:
        if number not in look.referred:
            key = NUMBER.pack(number)
            what = "no message refers to this shared body"
            yield look.found(SHARED, key, what, repair=Repair("deletes it", edits=((SHARED, key, None),)))


def bytes_of(batch: RecordBatch) -> int:
    """Return how many bytes of records a stored batch has, here or elsewhere."""
    reference = reference_of(batch)
    return len(batch.records) if reference is None else reference.bytes


def referred_by(batches: list[NumberedBatch]) -> RangeSet | None:
    """Return the numbers of the bodies that stored batches refer to; None where they have all records themselves."""
    numbers = [reference.body for _, batch in batches if (reference := reference_of(batch)) is not None]
    return RangeSet([(number, number + 1) for number in numbers]) or None


def is_reference(batch: RecordBatch) -> bool:
    """Whether a batch that is stored by reference has one."""
    try:
        return reference_of(batch) is not None
    except StructError:
        return False


def without_bodies(look: Look, entry: Segment, batches: list[NumberedBatch]) -> Finding | None:
    """Return the finding where shared bodies are damaged or missing that a segment refers to.

    Args:
        look: what is known so far.
        entry: the segment's, which agrees with its batches.
        batches: of the segment, as they are stored.
    """
    kept = [(first, batch) for first, batch in batches if has_records(look, batch)]
    for _, batch in kept:
        reference = reference_of(batch)
        if reference is not None:
            look.referred.add(reference.body, reference.body + 1)
    if len(kept) == len(batches):
        return None
    gone = [(first, first + batch.count) for first, batch in batches if not has_records(look, batch)]
    numbers = [part for start, end in gone for part in entry.living(start, end)]
    messages = sum([end - start for start, end in numbers])
    key = segment_key(entry)
    return look.found(
        SEGMENTS,
        key,
        "a shared body of these messages is damaged or not there",
        queue=entry.queue,
        repair=Repair(
            lost(messages, numbers),
            edits=_kept(key, entry, kept, gone) + look.kept_end(entry),
            messages=messages,
            numbers=numbers,
        ),
    )


def has_records(look: Look, batch: RecordBatch) -> bool:
    """Whether a stored batch has its records, or refers to a body that has them."""
    if not batch.flags & BY_REFERENCE:
        return True
    reference = Reference._make(reference_of(batch) or ())
    return reference.begin + reference.bytes <= look.bodies.get(reference.body, -1)


def _kept(
    key: bytes, entry: Segment, kept: list[NumberedBatch], gone: list[tuple[int, int]]
) -> tuple[tuple[int, bytes, bytes | None], ...]:
    """The edits that leave a segment the batches that are kept."""
    both = ((INDEX, key, None), (SEGMENTS, key, None))
    if not kept:
        return both
    last, batch = kept[-1]
    segment = type(entry)(entry.queue, entry.first, durable=True, born=0.0)
    if isinstance(segment, TimedSegment) and isinstance(entry, TimedSegment):
        segment.first_ms, segment.last_ms = kept[0][1].timestamp_ms, batch.timestamp_ms
        segment.tags = entry.tags
    segment.end = last + batch.count
    missing = RangeSet(entry.gone or ())
    for start, end in gone:
        missing.add(start, end)
    missing.remove(segment.end, entry.end)
    segment.count = sum([batch.count for _, batch in kept])
    segment.bytes = sum([bytes_of(batch) for _, batch in kept])
    segment.can_expire = entry.can_expire
    segment.gone = missing or None
    segment.shared = referred_by(kept)
    if entry.counts is not None:
        segment.counts = entry.counts
        for start, end in [*gone, (segment.end, entry.end)]:
            segment.counts.remove(start, end)
    if segment.end - segment.first == missing.count:
        return both
    return (INDEX, key, extent_of(segment)), (SEGMENTS, key, sealed_row(SEGMENTS, key, _encode(kept)))
