"""Frames out: methods, contents, deliveries by the run.

    ├─────── basic.deliver ───────┤├──── header ────┤├──── body ────┤
    method, consumer  tag  exchange, key  size, properties  size, body  end
    └─── the same ──┘ +1   └─────────── often the same ───────┘

What deliveries of a consumer have in common is put together once; of those that are alike, each takes one packing.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count, repeat
from typing import Final, NamedTuple

from shardmq.protocol.amqp.events import (
    BODY,
    END,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    METHOD,
)
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicDeliver
from shardmq.protocol.amqp.methods.fields import Method

ENVELOPES_KEPT: Final = 4096
"""What deliveries have in common, of all connections: some hundred bytes each."""

ALIKE_BYTES_MAX: Final = 4096
"""Longer bodies are not packed into their messages, as that would copy them once more."""

DELIVERY_BYTES: Final = 54
"""What a delivery takes in its frames beside its names, properties and body."""

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_END: Final = bytes((END,))
_BASIC: Final = b"\x00\x3c\x00\x00"
_TAG_BYTES: Final = 8
BEAT: Final = _FRAME.pack(HEARTBEAT, 0, 0) + _END


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"%b%b%b" % (_FRAME.pack(kind, channel, len(payload)), payload, _END)


def method_frame(channel: int, method: Method) -> bytes:
    """A method's frame."""
    return frame(METHOD, channel, methods.encode(method))


def content_frames(channel: int, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """A content's frames: its header, and its body in as many as it takes."""
    header = frame(HEADER, channel, _CONTENT.pack(60, 0, len(body)) + properties)
    return b"".join((header, *_body_frames(channel, body, frame_max)))


def _body_frames(channel: int, body: bytes, frame_max: int) -> list[bytes | memoryview]:
    """The parts of a body's frames, its bytes uncopied: whoever joins them copies once, which takes long enough."""
    room = frame_max - FRAME_OVERHEAD
    view = memoryview(body)
    parts: list[bytes | memoryview] = []
    for at in range(0, len(body), room):
        piece = view[at : at + room]
        parts += (_FRAME.pack(BODY, channel, len(piece)), piece, _END)
    return parts


class _Envelope(NamedTuple):
    """What deliveries of a consumer have in common.

    Attributes:
        before: the tag: a method's frame up to there.
        behind: it, up to the size of the content header.
        body: what begins the frame of a body, up to its size, the end of the header included.
        pack: puts together all of a message up to its property list: before, tag, behind, and the header's fields.
    """

    before: bytes
    behind: bytes
    body: bytes
    pack: Callable[..., bytes]


@lru_cache(maxsize=ENVELOPES_KEPT)
def _envelope(channel: int, consumer: str, redelivered: bool, exchange: str, key: str) -> _Envelope:
    whole = method_frame(channel, BasicDeliver(consumer, 0, redelivered, exchange, key))
    tag_at = _FRAME.size + 4 + 1 + len(consumer.encode())
    before = whole[:tag_at]
    behind = whole[tag_at + _TAG_BYTES :] + struct.pack(">BH", HEADER, channel)
    pack = struct.Struct(f">{len(before)}sQ{len(behind)}sI4sQ").pack
    return _Envelope(before, behind, _END + struct.pack(">BH", BODY, channel), pack)


def deliveries(
    channel: int,
    consumer: str,
    tag: int,
    redelivered: bool,
    exchange: str,
    key: str,
    lists: Sequence[bytes],
    bodies: Sequence[bytes],
    frame_max: int,
) -> bytes:
    """Messages for a consumer, numbered from `tag`.

    Args:
        channel: of the consumer.
        consumer: its tag.
        tag: the first one's delivery tag.
        redelivered: as in basic.deliver, as are `exchange` and `key`.
        lists: each one's property list.
        bodies: each one's body.
        frame_max: the largest frame agreed on.
    """
    envelope = _envelope(channel, consumer, redelivered, exchange, key)
    sizes = set(map(len, bodies))
    longest = max(sizes)
    if longest > frame_max - FRAME_OVERHEAD:
        return _long(envelope, channel, tag, lists, bodies, frame_max)
    if len(sizes) == 1 and 0 < longest <= ALIKE_BYTES_MAX and len(lists) > 1 and lists.count(lists[0]) == len(lists):
        return _alike(envelope, tag, lists[0], bodies, longest)
    return _different(envelope, tag, lists, bodies)


def _alike(envelope: _Envelope, tag: int, properties: bytes, bodies: Sequence[bytes], size: int) -> bytes:
    """Messages with the same property list, and bodies of the same size: 0.15 µs each."""
    before, behind, body, _ = envelope
    middle = b"%b%b%b%b%b" % (
        behind,
        (_CONTENT.size + len(properties)).to_bytes(4, "big"),
        _CONTENT.pack(60, 0, size),
        properties,
        body + size.to_bytes(4, "big"),
    )
    pack = struct.Struct(f">{len(before)}sQ{len(middle)}s{size}sB").pack
    tags = range(tag, tag + len(bodies))
    return b"".join(map(pack, repeat(before), tags, repeat(middle), bodies, repeat(END)))


def _different(envelope: _Envelope, tag: int, lists: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Messages whose bodies fit into a frame each."""
    before, behind, start, pack = envelope
    parts = []
    for number, properties, body in zip(count(tag), lists, bodies, strict=False):
        size = len(body)
        parts.append(pack(before, number, behind, _CONTENT.size + len(properties), _BASIC, size))
        parts.append(properties)
        if size:
            parts.append(start)
            parts.append(size.to_bytes(4, "big"))
            parts.append(body)
        parts.append(_END)
    return b"".join(parts)


def _long(
    envelope: _Envelope, channel: int, tag: int, lists: Sequence[bytes], bodies: Sequence[bytes], frame_max: int
) -> bytes:
    """Messages of which some have bodies of several frames."""
    before, behind, _, pack = envelope
    parts: list[bytes | memoryview] = []
    for number, properties, body in zip(count(tag), lists, bodies, strict=False):
        parts += [
            pack(before, number, behind, _CONTENT.size + len(properties), _BASIC, len(body)),
            properties,
            _END,
            *_body_frames(channel, body, frame_max),
        ]
    return b"".join(parts)
