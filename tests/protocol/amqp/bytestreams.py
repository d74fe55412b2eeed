"""What clients send, as bytes; and a reader of it that is as plain as can be, to compare the broker's with."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp import encoder
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import (
    BODY,
    END,
    HEADER,
    HEARTBEAT,
    METHOD,
    AcksReceived,
    Event,
    MethodReceived,
    PublishesReceived,
    PublishTooLarge,
)
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicPublish
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk

CONTENT: Final = struct.Struct(">HHQ")
PUBLISH: Final = BasicPublish(0, "", "q")
PERSISTENT_LIST: Final = b"\x10\x00\x02"

PlainEvent = tuple[Any, ...]
"""An event, told so that it can be compared: a publish or an acknowledgement each."""


def header(channel: int, size: int, properties: bytes = b"\0\0", class_id: int = 60, weight: int = 0) -> bytes:
    """A content header's frame."""
    return encoder.frame(HEADER, channel, CONTENT.pack(class_id, weight, size) + properties)


def body(channel: int, data: bytes) -> bytes:
    """A frame of a body."""
    return encoder.frame(BODY, channel, data)


def publish(
    data: bytes, channel: int = 1, properties: bytes = b"\0\0", method: BasicPublish = PUBLISH, room: int = 4000
) -> bytes:
    """A message's frames, with at most `room` bytes of it in each."""
    return encoder.method_frame(channel, method) + encoder.content_frames(channel, properties, data, room + 8)


def ack(tag: int, channel: int = 1, *, multiple: bool = False) -> bytes:
    """A basic.ack's frame."""
    return encoder.method_frame(channel, BasicAck(tag, multiple=multiple))


def plain_events(event: Event) -> list[PlainEvent]:
    """What an event says, message by message."""
    match event:
        case PublishesReceived(channel, method, lists, bodies, methods):
            contents = zip(methods or [method] * len(bodies), lists, bodies, strict=True)
            return [("publish", channel, published, properties, data) for published, properties, data in contents]
        case AcksReceived(channel, ranges):
            return [("ack", channel, tag) for first, last in ranges for tag in range(first, last + 1)]
        case MethodReceived(channel, BasicAck(tag, False)):
            return [("ack", channel, tag)]
        case MethodReceived(channel, method):
            return [("method", channel, method)]
        case PublishTooLarge(channel, _, error):
            return [("refused", channel, error.text)]
    return [("beat",)]


def read(reader: FrameReader, chunks: Iterable[bytes]) -> tuple[list[PlainEvent], PlainEvent | None]:
    """All events, and the error at their end, if there is one: code, text, method."""
    events: list[PlainEvent] = []
    try:
        for chunk in chunks:
            for event in reader.feed(chunk):
                events += plain_events(event)
    except AmqpError as error:
        return events, (error.code, error.text, error.method)
    return events, None


class PlainReader:
    """Reads everything frame by frame, from bytes that are all there."""

    def __init__(self, frame_max: int, message_max: int) -> None:
        self._frame_max = frame_max
        self._message_max = message_max
        self._started: dict[int, list[Any]] = {}  # channel: method, properties, size, body
        self._ignored: set[int] = set()
        self._events: list[PlainEvent] = []

    def read(self, data: bytes) -> tuple[list[PlainEvent], PlainEvent | None]:
        """Read all of the bytes; returns the events, and the fault that ended them, if there was one."""
        try:
            while len(data) >= 8:
                kind, channel, size = struct.unpack_from(">BHI", data)
                if size > self._frame_max:
                    reason = f"{{frame_too_large,{size},{self._frame_max - 8}}}"
                    raise AmqpError(ReplyCode.FRAME_ERROR, f"{shown(kind, b'')}: {reason}")
                if len(data) < size + 8:
                    break
                payload, end, data = data[7 : size + 7], data[size + 7], data[size + 8 :]
                if end != END:
                    reason = f"{{invalid_frame_end_marker,{end}}}"
                    raise AmqpError(ReplyCode.FRAME_ERROR, f"{shown(kind, payload)}: {reason}")
                self._take(kind, channel, payload)
        except AmqpError as error:
            return self._events, (error.code, error.text, error.method)
        return self._events, None

    def _take(self, kind: int, channel: int, payload: bytes) -> None:
        sizes = {METHOD: len(payload) >= 4, HEADER: len(payload) >= 12, BODY: True, HEARTBEAT: not payload}
        if not sizes.get(kind):
            raise AmqpError(ReplyCode.FRAME_ERROR, f"{shown(kind, payload)}: unknown_frame")
        if (kind == HEARTBEAT) == (channel != 0) and kind != METHOD:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, shown(kind, payload))
        if kind == HEARTBEAT:
            self._events.append(("beat",))
        elif kind == METHOD and channel in self._ignored:
            if struct.unpack_from(">HH", payload) in (ChannelClose.id, ChannelCloseOk.id):
                self._events += plain_events(MethodReceived(channel, methods.decode(payload, channel), len(payload)))
        elif channel not in self._ignored:
            self._take_on_channel(kind, channel, payload)

    def _take_on_channel(self, kind: int, channel: int, payload: bytes) -> None:
        started = self._started.get(channel)
        if started is None and kind == METHOD:
            method = methods.decode(payload, channel)
            if isinstance(method, BasicPublish) and channel:
                self._started[channel] = [method, None, 0, b""]
            else:
                self._events += plain_events(MethodReceived(channel, method, len(payload)))
        elif started is None:
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        elif started[1] is None:
            self._take_header(kind, channel, payload, started)
        elif kind != BODY:
            text = "expected content body, got non content body frame instead"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text, BasicPublish.id)
        else:
            started[3] += payload
            if len(started[3]) > started[2]:
                text = "content body frame exceeds remaining content size"
                raise AmqpError(ReplyCode.FRAME_ERROR, text, BasicPublish.id)
            self._finish(channel, started)

    def _take_header(self, kind: int, channel: int, payload: bytes, started: list[Any]) -> None:
        class_id, weight, size = CONTENT.unpack_from(payload) if kind == HEADER else (0, 1, 0)
        if weight:
            text = "expected content header for class 60, got non content header frame instead"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text, BasicPublish.id)
        if class_id != 60:
            text = f"expected content header for class 60, got one for class {class_id} instead"
            raise AmqpError(ReplyCode.UNEXPECTED_FRAME, text, BasicPublish.id)
        if size > self._message_max:
            self._ignored.add(channel)
            text = f"message size {size} is larger than configured max size {self._message_max}"
            self._events.append(("refused", channel, text))
            return
        started[1:3] = payload[12:], size
        self._finish(channel, started)

    def _finish(self, channel: int, started: Sequence[Any]) -> None:
        method, properties, size, data = started
        if len(data) == size:
            del self._started[channel]
            self._events.append(("publish", channel, method, properties, data))


def shown(kind: int, payload: bytes) -> str:
    """A frame in RabbitMQ's error texts."""
    is_text = all(32 <= byte < 127 for byte in payload[:16])
    text = payload[:16].decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    octets = f'"{text}"' if is_text and payload else ",".join([str(byte) for byte in payload[:16]])
    return f"type {kind}, {'all' if len(payload) <= 16 else 'first 16'} octets = <<{octets}>>"
