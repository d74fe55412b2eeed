"""Looks at a shard's segments: are entries and messages both there, can both be read, and do they agree?

entry   messages    a repair
well    well        leaves both
well    damaged     deletes both; what was not acknowledged yet is lost
damaged well        makes a new entry; what was acknowledged comes again
damaged damaged     deletes both; how many messages that were, nobody knows

Where messages refer to shared bodies, what is wrong with those is told in shared.py.
"""

from collections.abc import Iterator
from struct import error as StructError
from typing import Final

import msgspec
from msgpack.exceptions import UnpackException

from shardmq.message.record_batch import RecordBatch, record_ends
from shardmq.ranges import RangeSet
from shardmq.shards.check.closed_store import ClosedStore
from shardmq.shards.check.queues import Look, lost, strange_queue
from shardmq.shards.check.shared import bytes_of, is_reference, referred_by, without_bodies
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.segments.index_entry import extent_of, segment_of
from shardmq.shards.segments.segment import NumberedBatch, Segment, body_sizes
from shardmq.shards.segments.shared_batch import BY_REFERENCE
from shardmq.shards.segments.timed_segment import TimedSegment
from shardmq.shards.storage.schema import (
    INDEX,
    NUMBER,
    PLACE,
    SEGMENTS,
    number_of,
)
from shardmq.storage.repair.findings import Finding, Repair
from shardmq.topology.arguments import is_stream

_decode_batches: Final = msgspec.msgpack.Decoder(list[NumberedBatch]).decode

Pair = tuple[bytes, bytes | None, bytes | None, bool, bool]
"""A key, what its entry and its messages say, and whether each is there."""


def look_at_segments(look: Look) -> Iterator[Finding]:
    """Look at all segments, in order of queue and number."""
    for key, entry_content, body_content, has_entry, has_body in pairs(look.store, INDEX, SEGMENTS):
        look.seen()
        if len(key) != PLACE.size:
            yield look.found(
                INDEX if has_entry else SEGMENTS,
                key,
                f"the key has {len(key)} bytes",
                repair=Repair("deletes the row", edits=((INDEX, key, None), (SEGMENTS, key, None))),
            )
            continue
        queue, _ = PLACE.unpack(key)
        if not look.is_known(queue):
            yield strange_queue(look, INDEX if has_entry else SEGMENTS, key, queue)
        entry = entry_of(key, entry_content)
        batches = batches_of(key, body_content)
        if entry is not None:
            _note_end(look, queue, entry.end)
        elif batches is not None:
            _note_end(look, queue, _end_of(batches))
        finding = _judged(look, key, entry, batches, has_entry, has_body)
        if finding is not None:
            yield finding


def _judged(
    look: Look, key: bytes, entry: Segment | None, batches: list[NumberedBatch] | None, has_entry: bool, has_body: bool
) -> Finding | None:
    """Return what is wrong with a segment, and what a repair does about it."""
    queue, first = PLACE.unpack(key)
    both = ((INDEX, key, None), (SEGMENTS, key, None))
    if batches is None:
        what = "the messages are not what was written" if has_body else "the messages are not there"
        if entry is None:
            what += ", nor is what is noted of them" if has_entry or not has_body else ", and nothing is noted of them"
            return look.found(
                SEGMENTS,
                key,
                what,
                queue=queue,
                repair=Repair(f"loses messages from number {first} on; how many, cannot be told", edits=both),
            )
        numbers = entry.living(entry.first, entry.end)
        return look.found(
            SEGMENTS,
            key,
            what,
            queue=queue,
            repair=Repair(
                lost(entry.live, numbers), edits=both + look.kept_end(entry), messages=entry.live, numbers=numbers
            ),
        )
    if entry is not None and _agree(entry, batches) and not _lacks_times(look, entry):
        return without_bodies(look, entry, batches)
    what = "what is noted of the messages is not what was written" if has_entry else "nothing is noted of the messages"
    if entry is not None:
        others = "a queue, not a stream" if _agree(entry, batches) else "others"
        what = f"what is noted of the messages is of {others}"
    rebuilt = _rebuilt(look, key, batches)
    broken = without_bodies(look, rebuilt, batches)
    if broken is not None:
        return broken
    mend = f"keeps messages {first} to {rebuilt.end - 1}; those that were acknowledged come again"
    return look.found(INDEX, key, what, queue=queue, repair=Repair(mend, edits=((INDEX, key, extent_of(rebuilt)),)))


def entry_of(key: bytes, content: bytes | None) -> Segment | None:
    """Decode an index entry; None where it cannot be read."""
    if content is None:
        return None
    try:
        entry = segment_of(key, content)
    except (msgspec.DecodeError, StructError, ValueError):
        return None
    return entry if entry.end > entry.first and 0 < entry.live <= entry.count else None


def batches_of(key: bytes, content: bytes | None) -> list[NumberedBatch] | None:
    """A segment's messages; None where one of them cannot be read."""
    if content is None:
        return None
    try:
        batches = _decode_batches(content)
    except msgspec.DecodeError:
        return None
    following = number_of(key[NUMBER.size :])
    for first, batch in batches:
        if first < following or not is_whole(batch):
            return None
        following = first + batch.count
    return batches or None


def is_whole(batch: RecordBatch) -> bool:
    """Whether a batch has as many messages as it says, one behind the other."""
    if batch.count < 1:
        return False
    if batch.flags & BY_REFERENCE:
        return is_reference(batch)
    try:
        return record_ends(batch.records, batch.count)[-1] == len(batch.records)
    except (UnpackException, ValueError):
        return False


def pairs(store: ClosedStore, entries: int, bodies: int) -> Iterator[Pair]:
    """The rows of two databases with the same keys, side by side."""
    first, second = store.rows(entries), store.rows(bodies)
    entry, body = next(first, None), next(second, None)
    while entry is not None or body is not None:
        if body is None or (entry is not None and entry[0] < body[0]):
            assert entry is not None
            yield entry[0], entry[1], None, True, False
            entry = next(first, None)
        elif entry is None or body[0] < entry[0]:
            yield body[0], None, body[1], False, True
            body = next(second, None)
        else:
            yield entry[0], entry[1], body[1], True, True
            entry, body = next(first, None), next(second, None)


def _agree(entry: Segment, batches: list[NumberedBatch]) -> bool:
    return (
        entry.end == _end_of(batches)
        and entry.count == sum([batch.count for _, batch in batches])
        and entry.bytes == sum([bytes_of(batch) for _, batch in batches])
        and entry.shared == referred_by(batches)
        and (type(entry) is not TimedSegment or _times(entry) == (_time(batches[0]), _time(batches[-1])))
    )


def _lacks_times(look: Look, entry: Segment) -> bool:
    """Whether an entry is of a stream, and says nothing of its messages' times: earlier versions' repairs made such."""
    declared = look.declared(entry.queue)
    return declared is not None and is_stream(declared.arguments) and type(entry) is not TimedSegment


def _times(entry: TimedSegment) -> tuple[int, int]:
    return entry.first_ms, entry.last_ms


def _time(numbered: NumberedBatch) -> int:
    return numbered[1].timestamp_ms


def _end_of(batches: list[NumberedBatch]) -> int:
    first, batch = batches[-1]
    return first + batch.count


def _note_end(look: Look, queue: int, end: int) -> None:
    subqueue = queue, (end - 1) >> SUBQUEUE_BITS
    look.ends[subqueue] = max(look.ends.get(subqueue, 0), end)


def _rebuilt(look: Look, key: bytes, batches: list[NumberedBatch]) -> Segment:
    """A segment as its messages tell it: numbers between them were never there."""
    queue, first = PLACE.unpack(key)
    declared = look.declared(queue)
    kind = TimedSegment if declared is not None and is_stream(declared.arguments) else Segment
    segment = kind(queue, first, durable=True, born=0.0)
    if isinstance(segment, TimedSegment):
        segment.first_ms, segment.last_ms = _time(batches[0]), _time(batches[-1])
    segment.end = _end_of(batches)
    gone = RangeSet([(first, segment.end)])
    for start, batch in batches:
        gone.remove(start, start + batch.count)
        segment.count += batch.count
        segment.bytes += bytes_of(batch)
        segment.can_expire = segment.can_expire or batch.ttl_ms is not None
    segment.live = segment.count
    segment.gone = gone or None
    segment.shared = referred_by(batches)
    has_length_limit = kind is Segment and declared is not None and "x-max-length-bytes" in declared.effective
    if segment.shared is None and has_length_limit:
        segment.body_bytes = sum([size for _, batch in batches for size in body_sizes(batch)])
    return segment
