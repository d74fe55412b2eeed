"""A segment's entry in a shard's index: all that a start has to know of it."""

from struct import Struct
from typing import Final

import msgspec

from shardmq.ranges import RangeSet
from shardmq.shards.segments.delivery_counts import DeliveryCounts
from shardmq.shards.segments.segment import Segment
from shardmq.shards.segments.timed_segment import TimedSegment

EXTENT: Final = Struct(">QII")
NUMBER: Final = Struct(">Q")
PLACE: Final = Struct(">QQ")
LENGTH: Final = Struct(">I")
REFERRING: Final = 1 << 31
TIMED: Final = 1 << 30
TAGGED: Final = 1 << 29
COUNT: Final = TAGGED - 1
"""Of an index entry's count."""
CAN_EXPIRE: Final = 1 << 31
BODIES: Final = 1 << 30
COUNTED: Final = 1 << 29
BYTES: Final = COUNTED - 1
"""Of an index entry's last number. A segment is some MB most often; one with a message of 512 MiB may have a little
more, and counts so much."""

_NOTHING: Final = b"\x90"
_TWO: Final = b"\x92"
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_counted: Final = msgspec.msgpack.Decoder(tuple[list[tuple[int, int]], list[tuple[int, int, int]]]).decode


def extent_of(segment: Segment) -> bytes:
    """Return a segment's index entry. Most have no flags.

    MORTAL    a message in it brought a time to live
    BODIES    bytes of its bodies u64 follow
    TIMED     (of the count) times of the first and of the last message u64 u64 follow: it is a partition's
    TAGGED    (of the count) length u8 and a summary of tags (tag_summary.py) follow
    REFERRING (of the count) length u32 and msgpack [[start, end], ...] follow: the shared bodies it refers to
    COUNTED   msgpack [[[start, end], ...], [[start, end, count], ...]]: what is gone, what was delivered in vain
              without it: msgpack [[start, end], ...]: what is gone
    """
    if (
        segment.gone is None
        and segment.shared is None
        and segment.body_bytes is None
        and not (segment.can_expire or segment.counts)
        and segment.bytes <= BYTES
        and type(segment) is not TimedSegment
    ):
        return EXTENT.pack(segment.end, segment.count, segment.bytes) + _NOTHING
    flags = min(segment.bytes, BYTES)
    ranges = _encode(list(segment.gone)) if segment.gone is not None else _NOTHING
    if segment.can_expire:
        flags |= CAN_EXPIRE
    if segment.counts:
        flags |= COUNTED
        ranges = _TWO + ranges + _encode(list(segment.counts))
    if segment.body_bytes is not None:
        flags |= BODIES
        ranges = NUMBER.pack(segment.body_bytes) + ranges
    count = segment.count
    if segment.shared is not None:
        count |= REFERRING
        shared = _encode(list(segment.shared))
        ranges = LENGTH.pack(len(shared)) + shared + ranges
    if type(segment) is TimedSegment:
        count |= TIMED
        if segment.tags is not None:
            count |= TAGGED
            ranges = bytes((len(segment.tags),)) + segment.tags + ranges
        ranges = PLACE.pack(segment.first_ms, segment.last_ms) + ranges
    return EXTENT.pack(segment.end, count, flags) + ranges


def segment_of(key: bytes, content: bytes) -> Segment:
    """Return the segment that an index entry describes.

    Raises:
        struct.error, ValueError, msgspec.DecodeError: it cannot be read.
    """
    queue, first = PLACE.unpack(key)
    end, count, flags = EXTENT.unpack_from(content)
    rest = content[EXTENT.size :]
    segment = Segment(queue, first, durable=True, born=0.0)
    if count & TIMED:
        segment = timed = TimedSegment(queue, first, durable=True, born=0.0)
        (timed.first_ms, timed.last_ms), rest = PLACE.unpack(rest[: PLACE.size]), rest[PLACE.size :]
        if count & TAGGED:
            timed.tags, rest = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
    segment.end, segment.count = end, count & COUNT
    if count & REFERRING:
        end = LENGTH.size + LENGTH.unpack_from(rest)[0]
        segment.shared, rest = RangeSet(_decode_ranges(rest[LENGTH.size : end])), rest[end:]
    segment.bytes, segment.can_expire = flags & BYTES, flags & CAN_EXPIRE != 0
    if flags & BODIES:
        segment.body_bytes, rest = int.from_bytes(rest[: NUMBER.size], "big"), rest[NUMBER.size :]
    if flags & COUNTED:
        ranges, counted = _decode_counted(rest)
        segment.counts = DeliveryCounts(counted)
    else:
        ranges = _decode_ranges(rest)
    gone = RangeSet(ranges)
    segment.gone = gone or None
    segment.live = segment.end - segment.first - gone.count
    segment.stored, segment.batches = True, None
    return segment
