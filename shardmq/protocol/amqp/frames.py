"""Bytes in: a frame reader that yields events, neighbours of a kind together.

    frame      type u8, channel u16, size u32, payload, 0xCE
    type       1 method · 2 content header · 3 content body · 8 heartbeat

The reader has three outcomes: an event, an `AmqpError`, or "need more", which ends `feed`.

Neighbouring publishes (publish_frames.py) are one event, and so are neighbouring acks of
single deliveries. All other frames are read one by one: those that the end
of the input cuts off, and those that are unusual in any way. Both ways yield the same.
"""

import struct
from collections.abc import Iterator
from typing import Final

from shardmq.errors import ReplyCode
from shardmq.limits import REQUEST_BYTES_MAX
from shardmq.message.record import too_large_text
from shardmq.protocol.amqp.errors import NO_METHOD, AmqpError
from shardmq.protocol.amqp.events import (
    BODY,
    END,
    FRAME_MIN,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    METHOD,
    AcksReceived,
    Event,
    HeartbeatReceived,
    MethodReceived,
    PublishesReceived,
    PublishTooLarge,
)
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk
from shardmq.protocol.amqp.publish_frames import PUBLISH, known_publish, read_publishes

UNFINISHED_BYTES_MAX: Final = 64 << 20
"""The most that a connection may have sent of incomplete messages, on all its channels; one of the largest fits in any
case. Without this limit a connection could make the broker keep 2047 times the largest message."""

SNIPPET_BYTES: Final = 16
"""How much of a frame error texts show."""

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_HEADER_SIZES: Final = struct.Struct(">I4sQ")
_BODY_START: Final = struct.Struct(">4sI")
_START: Final = struct.Struct(">BH")
_ACK: Final = struct.Struct(">11sQ2s")
_BASIC: Final = 60
_BASIC_CONTENT: Final = b"\x00\x3c\x00\x00"
_ACK_HEAD: Final = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
_ACK_SINGLE: Final = b"\x00\xce"
_END: Final = b"\xce"
_IDS: Final = 4
_ON_IGNORED: Final = {struct.pack(">HH", *method.id) for method in (ChannelClose, ChannelCloseOk)}


class _Content:
    """A message whose frames have not all come.

    Attributes:
        properties: its property list; None before the header.
        missing: bytes of the body that have not come.
        body: the bytes that have. One buffer that grows: a list of parts of one byte each would take 40 times as much.
    """

    __slots__ = ("body", "method", "missing", "properties")

    def __init__(self, method: BasicPublish) -> None:
        self.method = method
        self.properties: bytes | None = None
        self.missing = 0
        self.body = bytearray()

    @property
    def size(self) -> int:
        return len(self.body) + len(self.properties or b"")


class FrameReader:
    """Reads the frames of one connection.

    Args:
        message_max: the largest body of a message, in bytes. Property lists are as long as a frame at most.

    Attributes:
        frame_max: the largest frame agreed on, in bytes. Payloads may be as large, as in RabbitMQ, since clients
            forget the eight bytes around them.
        ignored: channels that the server has closed. Until the client has confirmed that, all else on them is dropped.
    """

    __slots__ = ("_contents", "_needed", "_rest", "_unfinished_bytes", "frame_max", "ignored", "message_max")

    def __init__(self, message_max: int) -> None:
        self.frame_max = FRAME_MIN
        self.message_max = message_max
        self.ignored: frozenset[int] = frozenset()
        self._rest = bytearray()  # the beginning of a frame; it is not looked at before `_needed` bytes have come
        self._needed = 0
        self._contents: dict[int, _Content] = {}
        self._unfinished_bytes = 0

    def ignore(self, channel: int) -> None:
        """Drop what comes on a channel that the server closes, until the client confirms."""
        self.ignored |= {channel}
        content = self._contents.pop(channel, None)
        if content is not None:
            self._unfinished_bytes -= content.size

    def feed(self, data: bytes) -> Iterator[Event]:
        """Read bytes, and yield the events in them. Iterate to the end before feeding more.

        Raises:
            AmqpError: the bytes break the protocol; nothing after them can be read.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at, size = 0, len(data)
        while size - at >= FRAME_OVERHEAD:
            kind, channel, length = _FRAME.unpack_from(data, at)
            end = at + 7 + length
            if length > self.frame_max:
                reason = f"{{frame_too_large,{length},{self.frame_max - FRAME_OVERHEAD}}}"
                raise AmqpError(ReplyCode.FRAME_ERROR, f"{_shown(kind, b'')}: {reason}")
            if end >= size:
                break
            if data[end] != END:
                reason = f"{{invalid_frame_end_marker,{data[end]}}}"
                raise AmqpError(ReplyCode.FRAME_ERROR, f"{_shown(kind, data[at + 7 : end])}: {reason}")
            event: Event | None
            if kind == METHOD and channel and channel not in self._contents and channel not in self.ignored:
                if data.startswith(PUBLISH, at + 7):
                    event, after = read_publishes(data, at, end, channel, self.frame_max, self.message_max)
                    if event is not None:
                        at = after
                        yield event
                        continue
                elif data.startswith(_ACK_HEAD, at + 3) and data.startswith(_ACK_SINGLE, end - 1):
                    event, at = _acks(data, at, size, channel)
                    yield event
                    continue
            event = self._take(kind, channel, data[at + 7 : end])
            at = end + 1
            if event is not None:
                yield event
        if at < size:
            self._rest += data[at:] if at else data
            self._needed = FRAME_OVERHEAD if size - at < FRAME_OVERHEAD else FRAME_OVERHEAD + length

    def _take(self, kind: int, channel: int, payload: bytes) -> Event | None:
        content = self._contents.get(channel)
        if kind == METHOD and len(payload) >= _IDS:
            return self._method(channel, payload, content)
        if kind == HEARTBEAT and not payload:
            if channel:
                raise AmqpError(ReplyCode.UNEXPECTED_FRAME, _shown(kind, payload))
            return HeartbeatReceived()
        if kind != BODY and (kind != HEADER or len(payload) < _CONTENT.size):
            raise AmqpError(ReplyCode.FRAME_ERROR, f"{_shown(kind, payload)}: unknown_frame")
        if channel == 0:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, _shown(kind, payload))
        if channel in self.ignored:
            return None
        if content is None:
            raise _unexpected("expected method frame, got non method frame instead")
        if content.properties is None:
            return self._header(kind, channel, payload, content)
        return self._body(kind, channel, payload, content)

    def _method(self, channel: int, payload: bytes, content: _Content | None) -> Event | None:
        if channel in self.ignored and payload[:_IDS] not in _ON_IGNORED:
            return None
        if content is not None:
            raise _misplaced(content)
        if channel and payload.startswith(PUBLISH):
            self._contents[channel] = _Content(known_publish(payload, channel))
            return None
        return MethodReceived(channel, methods.decode(payload, channel), len(payload))

    def _header(self, kind: int, channel: int, payload: bytes, content: _Content) -> Event | None:
        class_id, weight, size = _CONTENT.unpack_from(payload) if kind == HEADER else (0, 1, 0)
        if weight:
            raise _misplaced(content)
        if class_id != _BASIC:
            text = f"expected content header for class {_BASIC}, got one for class {class_id} instead"
            raise _unexpected(text, content.method.id)
        properties = payload[_CONTENT.size :]
        if size > self.message_max:
            self.ignore(channel)
            text = too_large_text(size, self.message_max)
            return PublishTooLarge(
                channel, content.method, AmqpError(ReplyCode.PRECONDITION_FAILED, text, content.method.id)
            )
        content.properties = properties
        content.missing = size
        self._count(len(properties), content)
        return None if size else self._finished(channel, content, b"")

    def _body(self, kind: int, channel: int, payload: bytes, content: _Content) -> Event | None:
        if kind != BODY:
            raise _misplaced(content)
        if len(payload) > content.missing:
            text = "content body frame exceeds remaining content size"
            raise AmqpError(ReplyCode.FRAME_ERROR, text, content.method.id)
        content.missing -= len(payload)
        if not content.missing:
            return self._finished(channel, content, b"".join((content.body, payload)) if content.body else payload)
        content.body += payload
        self._count(len(payload), content)
        return None

    def _count(self, size: int, content: _Content) -> None:
        self._unfinished_bytes += size
        most = max(UNFINISHED_BYTES_MAX, self.message_max + REQUEST_BYTES_MAX)
        if self._unfinished_bytes > most:
            text = f"over {most} bytes of messages that are not complete; finish some before others"
            raise AmqpError(ReplyCode.RESOURCE_ERROR, text, content.method.id)

    def _finished(self, channel: int, content: _Content, body: bytes) -> Event:
        del self._contents[channel]
        self._unfinished_bytes -= content.size
        assert content.properties is not None
        return PublishesReceived(channel, content.method, [content.properties], [body])


def _acks(data: bytes, at: int, size: int, channel: int) -> tuple[AcksReceived, int]:
    """Read neighbouring acks of single deliveries, from offset `at` on; also returns where they end."""
    head, first, _ = _ACK.unpack_from(data, at)
    last, step = first, _ACK.size
    ranges = []
    at += step
    while at + step <= size:
        start, tag, end = _ACK.unpack_from(data, at)
        if start != head or end != _ACK_SINGLE:
            break
        if tag != last + 1:
            ranges.append((first, last))
            first = tag
        last = tag
        at += step
    ranges.append((first, last))
    return AcksReceived(channel, ranges), at


def _unexpected(text: str, method: tuple[int, int] = NO_METHOD) -> AmqpError:
    return AmqpError(ReplyCode.UNEXPECTED_FRAME, text, method)


def _misplaced(content: _Content) -> AmqpError:
    """The error for a frame of another type where a part of a message belongs."""
    if content.properties is None:
        text = f"expected content header for class {_BASIC}, got non content header frame instead"
    else:
        text = "expected content body, got non content body frame instead"
    return _unexpected(text, content.method.id)


def _shown(kind: int, payload: bytes) -> str:
    """A frame as error texts show it, in RabbitMQ's form."""
    snippet = payload[:SNIPPET_BYTES]
    shown = ",".join(map(str, snippet))
    if snippet and snippet.isascii() and snippet.decode().isprintable():
        shown = '"' + snippet.decode().replace("\\", "\\\\").replace('"', '\\"') + '"'
    extent = "all" if len(payload) <= SNIPPET_BYTES else f"first {SNIPPET_BYTES}"
    return f"type {kind}, {extent} octets = <<{shown}>>"
