"""Frames out: methods, contents, confirms."""

import struct
from collections.abc import Sequence
from typing import Final

from shardmq.gateway.amqp import methods
from shardmq.gateway.amqp.frames import BODY, END, FRAME_OVERHEAD, HEADER, HEARTBEAT, METHOD
from shardmq.gateway.amqp.methods import BasicAck, BasicDeliver, BasicNack, Method

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_END: Final = bytes((END,))
BEAT: Final = _FRAME.pack(HEARTBEAT, 0, 0) + _END


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return b"%b%b%b" % (_FRAME.pack(kind, channel, len(payload)), payload, _END)


def method_frame(channel: int, method: Method) -> bytes:
    """A method's frame."""
    return frame(METHOD, channel, methods.encode(method))


def content_frames(channel: int, properties: bytes, body: bytes, frame_max: int) -> bytes:
    """A content's frames: its header, and its body in as many as it takes."""
    parts = [frame(HEADER, channel, _CONTENT.pack(60, 0, len(body)) + properties)]
    room = frame_max - FRAME_OVERHEAD if frame_max else max(1, len(body))
    parts += [frame(BODY, channel, body[at : at + room]) for at in range(0, len(body), room)]
    return b"".join(parts)


def deliveries(
    channel: int,
    consumer: str,
    tag: int,
    redelivered: bool,
    exchange: str,
    key: str,
    contents: Sequence[tuple[bytes, bytes]],
    frame_max: int,
) -> bytes:
    """Messages for a consumer, numbered from `tag`."""
    parts = []
    for number, (properties, body) in enumerate(contents, tag):
        parts.append(method_frame(channel, BasicDeliver(consumer, number, redelivered, exchange, key)))
        parts.append(content_frames(channel, properties, body, frame_max))
    return b"".join(parts)


def acks(channel: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Confirms of publishes."""
    return b"".join(
        [method_frame(channel, BasicAck(number)) for first, last in ranges for number in range(first, last + 1)]
    )


def nacks(channel: int, first: int, last: int) -> bytes:
    """Publishes that were not taken."""
    return b"".join([method_frame(channel, BasicNack(number, requeue=False)) for number in range(first, last + 1)])
