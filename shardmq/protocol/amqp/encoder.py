"""Bytes out: methods, contents, deliveries by the batch.

    ├─────── basic.deliver ───────┤├──── header ────┤├──── body ────┤
    method, consumer  tag  exchange, key  size, properties  size, body  end
    └─── the same ──┘ +1   └─────────── often the same ───────┘

What the deliveries of a consumer have in common, its envelope, is put together once. Deliveries with the same
properties and bodies of one size take one packing each.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count, repeat
from typing import Final, NamedTuple

from shardmq.protocol.amqp.events import BODY, END, FRAME_OVERHEAD, HEADER, HEARTBEAT, METHOD
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicDeliver
from shardmq.protocol.amqp.methods.fields import SHORTSTR_BYTES_MAX, Method, shortstr_bytes

ENVELOPES_KEPT: Final = 16_384
"""Envelopes remembered, of all connections: some hundred bytes each. With 10,000 queues in turn and fewer than those,
none would be found: each takes 8 µs."""

PACKINGS_KEPT: Final = 1024
"""Sizes of envelopes, or of all that deliveries have, for which it is remembered how they are put together."""

ALIKE_BYTES_MAX: Final = 4096
"""The largest bodies that are packed together with their frames; for larger ones that would be one copy more."""

DELIVERY_BYTES: Final = 54
"""Bytes of a delivery's frames beside its names, properties and body."""

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_START: Final = struct.Struct(">BH")
_END: Final = bytes((END,))
_DELIVER: Final = struct.pack(">HH", *BasicDeliver.id)
_DELIVER_BYTES: Final = len(_DELIVER) + 1 + 8 + 1 + 1 + 1  # of the method, beside its names
_BASIC: Final = b"\x00\x3c\x00\x00"
BEAT: Final = _FRAME.pack(HEARTBEAT, 0, 0) + _END
"""A heartbeat's frame."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"%b%b%b" % (_FRAME.pack(kind, channel, len(payload)), payload, _END)


def method_frame(channel: int, method: Method) -> bytes:
    """A method's frame."""
    return frame(METHOD, channel, methods.encode(method))


def content_frames(channel: int, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """A content's frames: its header, and as many for the body as it takes."""
    header = frame(HEADER, channel, _CONTENT.pack(60, 0, len(body)) + properties)
    return b"".join((header, *_body_frames(channel, body, frame_max)))


def _body_frames(channel: int, body: bytes, frame_max: int) -> list[bytes | memoryview]:
    """The parts of a body's frames, with views of the body: it is copied once only, when the parts are joined."""
    room = frame_max - FRAME_OVERHEAD
    view = memoryview(body)
    parts: list[bytes | memoryview] = []
    for at in range(0, len(body), room):
        piece = view[at : at + room]
        parts += (_FRAME.pack(BODY, channel, len(piece)), piece, _END)
    return parts


class Envelope(NamedTuple):
    """What deliveries of a consumer have in common.

    Attributes:
        channel: the consumer's.
        before: a basic.deliver's frame up to the delivery tag.
        behind: the same frame after the tag, and the next one up to the size of the content header.
        body: the end of the content header's frame, and the body's frame up to its size.
        pack: joins all of a delivery up to its property list: before, tag, behind, and the header's fields.
    """

    channel: int
    before: bytes
    behind: bytes
    body: bytes
    pack: Callable[..., bytes]


@lru_cache(maxsize=ENVELOPES_KEPT)
def envelope(channel: int, consumer_tag: str, redelivered: bool, exchange: str, routing_key: str) -> Envelope:
    """The envelope of deliveries with these values in their basic.deliver; the last ones made are remembered."""
    tag, source, key = consumer_tag.encode(), exchange.encode(), routing_key.encode()
    if len(key) > SHORTSTR_BYTES_MAX:
        key = shortstr_bytes(routing_key)
    size = _DELIVER_BYTES + len(tag) + len(source) + len(key)
    before = b"%b%b%c%b" % (_FRAME.pack(METHOD, channel, size), _DELIVER, len(tag), tag)
    start = _START.pack(HEADER, channel)
    behind = b"%c%c%b%c%b%b%b" % (redelivered, len(source), source, len(key), key, _END, start)
    return Envelope(channel, before, behind, _END + _START.pack(BODY, channel), _packing(len(before), len(behind)))


@lru_cache(maxsize=PACKINGS_KEPT)
def _packing(before: int, behind: int) -> Callable[..., bytes]:
    """What joins envelopes of these sizes and a delivery's values; the sizes of names that are in use are few."""
    return struct.Struct(f">{before}sQ{behind}sI4sQ").pack


@lru_cache(maxsize=PACKINGS_KEPT)
def _packing_alike(before: int, middle: int, body: int) -> Callable[..., bytes]:
    """What joins deliveries of these sizes: to make it takes as long as to pack ten."""
    return struct.Struct(f">{before}sQ{middle}s{body}sB").pack


def deliveries(
    envelope: Envelope, first_tag: int, lists: Sequence[bytes], bodies: Sequence[bytes], frame_max: int
) -> bytes:
    """The frames of messages for a consumer.

    Args:
        envelope: what they have in common.
        first_tag: the delivery tag of the first; the others' follow.
        lists: each one's property list.
        bodies: each one's body.
        frame_max: the largest frame agreed on, in bytes.
    """
    if len(bodies) == 1 and len(bodies[0]) <= frame_max - FRAME_OVERHEAD:
        return one(envelope, first_tag, lists[0], bodies[0])
    sizes = set(map(len, bodies))
    longest = max(sizes)
    if longest > frame_max - FRAME_OVERHEAD:
        return _long(envelope, first_tag, lists, bodies, frame_max)
    if len(sizes) == 1 and 0 < longest <= ALIKE_BYTES_MAX and len(lists) > 1 and lists.count(lists[0]) == len(lists):
        return _alike(envelope, first_tag, lists[0], bodies, longest)
    return _different(envelope, first_tag, lists, bodies)


def one(envelope: Envelope, tag: int, properties: bytes, body: bytes) -> bytes:
    """The frames of one message with a body of one frame at most; a third of the time that several take each.

    Args:
        envelope: of its consumer.
        tag: its delivery tag.
        properties: its property list.
        body: its body.
    """
    _, before, behind, start, pack = envelope
    size = len(body)
    head = pack(before, tag, behind, _CONTENT.size + len(properties), _BASIC, size)
    if not size:
        return b"%b%b%b" % (head, properties, _END)
    return b"%b%b%b%b%b%b" % (head, properties, start, size.to_bytes(4, "big"), body, _END)


def delivery_pieces(
    envelope: Envelope, first_tag: int, lists: Sequence[bytes], bodies: Sequence[bytes], frame_max: int
) -> list[bytes | memoryview]:
    """The frames of messages with large bodies, as pieces to be written one behind the other: no body is copied.

    A message to 100 consumers is 1 MB to the socket where it has 10 KB: copied twice on the way there, as by
    `deliveries`, it takes 710 us; in pieces 210.

    Args:
        envelope: what they have in common.
        first_tag: the delivery tag of the first; the others' follow.
        lists: each one's property list.
        bodies: each one's body.
        frame_max: the largest frame agreed on, in bytes.
    """
    sizes = set(map(len, bodies))
    size = max(sizes)
    if len(sizes) > 1 or not 0 < size <= frame_max - FRAME_OVERHEAD or lists.count(lists[0]) < len(lists):
        return _long_pieces(envelope, first_tag, lists, bodies, frame_max)
    start, middle = _END + envelope.before, _middle(envelope, lists[0], size)
    pack = struct.Struct(f">{len(start)}sQ{len(middle)}s").pack
    pieces: list[bytes | memoryview] = [b""] * (2 * len(bodies))
    pieces[::2] = map(pack, repeat(start), range(first_tag, first_tag + len(bodies)), repeat(middle))
    pieces[1::2] = bodies
    pieces[0] = pieces[0][1:]  # each begins with the end of the one before
    pieces.append(_END)
    return pieces


def pieces_with_keys(
    envelopes: Iterable[Envelope], first_tag: int, lists: Sequence[bytes], bodies: Sequence[bytes], frame_max: int
) -> list[bytes | memoryview]:
    """The frames of messages that have routing keys of their own, as pieces to be written one behind the other.

    Args:
        envelopes: of each message.
        first_tag: the delivery tag of the first; the others' follow.
        lists: each one's property list.
        bodies: each one's body.
        frame_max: the largest frame agreed on, in bytes.
    """
    room = min(ALIKE_BYTES_MAX, frame_max - FRAME_OVERHEAD)
    parts: list[bytes | memoryview] = []
    for own, tag, properties, body in zip(envelopes, count(first_tag), lists, bodies, strict=False):
        if len(body) <= room:
            parts.append(one(own, tag, properties, body))
        else:
            parts += _long_pieces(own, tag, (properties,), (body,), frame_max)
    return parts


def _middle(envelope: Envelope, properties: bytes, size: int) -> bytes:
    """What lies between a delivery's tag and its body."""
    return b"%b%b%b%b%b" % (
        envelope.behind,
        (_CONTENT.size + len(properties)).to_bytes(4, "big"),
        _CONTENT.pack(60, 0, size),
        properties,
        envelope.body + size.to_bytes(4, "big"),
    )


def _alike(envelope: Envelope, tag: int, properties: bytes, bodies: Sequence[bytes], size: int) -> bytes:
    """Messages with the same property list, and bodies of one size: 0.15 µs each."""
    before, middle = envelope.before, _middle(envelope, properties, size)
    pack = _packing_alike(len(before), len(middle), size)
    tags = range(tag, tag + len(bodies))
    return b"".join(map(pack, repeat(before), tags, repeat(middle), bodies, repeat(END)))


def _different(envelope: Envelope, tag: int, lists: Sequence[bytes], bodies: Sequence[bytes]) -> bytes:
    """Messages whose bodies fit into one frame each."""
    _, before, behind, start, pack = envelope
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


def _long(envelope: Envelope, tag: int, lists: Sequence[bytes], bodies: Sequence[bytes], frame_max: int) -> bytes:
    """Messages of which some have bodies of several frames."""
    return b"".join(_long_pieces(envelope, tag, lists, bodies, frame_max))


def _long_pieces(
    envelope: Envelope, tag: int, lists: Sequence[bytes], bodies: Sequence[bytes], frame_max: int
) -> list[bytes | memoryview]:
    channel, before, behind, _, pack = envelope
    parts: list[bytes | memoryview] = []
    for number, properties, body in zip(count(tag), lists, bodies, strict=False):
        parts += [
            pack(before, number, behind, _CONTENT.size + len(properties), _BASIC, len(body)),
            properties,
            _END,
            *_body_frames(channel, body, frame_max),
        ]
    return parts
