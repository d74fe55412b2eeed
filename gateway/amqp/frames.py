"""Frames in: bytes to what they say, without any I/O.

    frame      type u8, channel u16, size u32, payload, 0xCE
    type       1 method · 2 content header · 3 content body · 8 heartbeat

A parser has three outcomes: an event, a fault, or "need more", which ends `feed`. Publishes that follow one another on
a channel with the same exchange, key and flags come as one event: most clients send the same method frame, and often
the same content header, for every message, byte for byte; such neighbours are found by comparing bytes.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from shardmq.errors import ReplyCode
from shardmq.gateway.amqp import methods
from shardmq.gateway.amqp.faults import AmqpFault
from shardmq.gateway.amqp.methods import BasicPublish, ChannelClose, ChannelCloseOk, Method

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE

FRAME_OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""

FRAME_MIN: Final = 4096
"""The smallest `frame_max` (section 4.2.3 of the specification), and the largest frame before one is agreed on is…"""

FRAME_BEFORE_TUNE: Final = 8192
"""… twice that, as in RabbitMQ (`initial_frame_max`): client properties and tokens may need it."""

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_BASIC: Final = 60
_PUBLISH: Final = b"\x00\x3c\x00\x28"


@dataclass(slots=True)
class Published:
    """Messages that were published one after the other on a channel, by the same method.

    Attributes:
        contents: each one's property list and body.
    """

    channel: int
    method: BasicPublish
    contents: list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Came:
    """A method."""

    channel: int
    method: Method


@dataclass(slots=True)
class Beat:
    """A heartbeat, which is on channel 0."""

    channel: int = 0


Event = Published | Came | Beat


@dataclass(slots=True)
class _Content:
    """A message whose frames have not all come."""

    method: BasicPublish
    properties: bytes | None = None
    missing: int = 0
    parts: list[bytes] = field(default_factory=list)


class FrameReader:
    """See the module. One for each connection.

    Attributes:
        frame_max: the largest frame allowed, in bytes, all of it counted; 0 is no limit.
        body_max: the largest message body, in bytes.
        ignored: channels that the server has closed: until the client has heard, nothing else counts there.
    """

    __slots__ = ("_contents", "_publishes", "_rest", "body_max", "frame_max", "ignored")

    def __init__(self, body_max: int) -> None:
        self.frame_max = FRAME_BEFORE_TUNE
        self.body_max = body_max
        self.ignored: frozenset[int] = frozenset()
        self._rest = b""
        self._contents: dict[int, _Content] = {}
        self._publishes: dict[bytes, BasicPublish] = {}

    def ignore(self, channel: int) -> None:
        """The server closes a channel."""
        self.ignored |= {channel}
        self._contents.pop(channel, None)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take bytes in, and say what they say.

        Raises:
            AmqpFault: they make no sense; nothing after them does.
        """
        buffer = self._rest + data if self._rest else data
        at, size = 0, len(buffer)
        gathered: Published | None = None
        while size - at >= FRAME_OVERHEAD:
            kind, channel, length = _FRAME.unpack_from(buffer, at)
            if self.frame_max and length > self.frame_max - FRAME_OVERHEAD:
                raise AmqpFault(
                    ReplyCode.FRAME_ERROR,
                    f"type {kind}, frame of {length + FRAME_OVERHEAD} bytes is larger than "
                    f"the negotiated frame_max of {self.frame_max}",
                )
            end = at + 7 + length
            if end >= size:
                break
            if buffer[end] != END:
                raise AmqpFault(ReplyCode.FRAME_ERROR, f"type {kind}, no frame end (206) but {buffer[end]}")
            payload = buffer[at + 7 : end]
            at = end + 1
            event = self._take(kind, channel, payload)
            if (
                type(event) is Published
                and gathered is not None
                and gathered.channel == channel
                and gathered.method is event.method
            ):
                gathered.contents += event.contents
                continue
            if event is None:
                continue
            if gathered is not None:
                yield gathered
                gathered = None
            if type(event) is Published:
                gathered = event
            else:
                yield event
        self._rest = buffer[at:]
        if gathered is not None:
            yield gathered

    def _take(self, kind: int, channel: int, payload: bytes) -> Event | None:
        if kind == HEARTBEAT:
            if channel or payload:
                raise AmqpFault(ReplyCode.FRAME_ERROR, f"a heartbeat on channel {channel} with {len(payload)} bytes")
            return Beat()
        content = self._contents.get(channel)
        if kind == METHOD:
            return self._method(channel, payload, content)
        if kind not in (HEADER, BODY):
            raise AmqpFault(ReplyCode.FRAME_ERROR, f"unknown frame type {kind}")
        if channel in self.ignored:
            return None
        if kind == HEADER:
            return self._header(channel, payload, content)
        return self._body(channel, payload, content)

    def _method(self, channel: int, payload: bytes, content: _Content | None) -> Event | None:
        if channel in self.ignored:
            method = methods.decode(payload, channel)
            return Came(channel, method) if isinstance(method, ChannelClose | ChannelCloseOk) else None
        if content is not None:
            expected = "header" if content.properties is None else "body"
            raise AmqpFault(
                ReplyCode.UNEXPECTED_FRAME,
                f"expected content {expected} for class 60, got method frame instead",
                content.method.id,
            )
        if not payload.startswith(_PUBLISH):
            return Came(channel, methods.decode(payload, channel))
        publish = self._publishes.get(payload)
        if publish is None:
            decoded = methods.decode(payload, channel)
            assert isinstance(decoded, BasicPublish)
            publish = self._publishes[payload] = decoded
        self._contents[channel] = _Content(publish)
        return None

    def _header(self, channel: int, payload: bytes, content: _Content | None) -> Event | None:
        if content is None or content.properties is not None:
            raise AmqpFault(ReplyCode.UNEXPECTED_FRAME, f"a content header on channel {channel} where none belongs")
        if len(payload) < _CONTENT.size + 2:
            raise AmqpFault(ReplyCode.SYNTAX_ERROR, f"a content header of {len(payload)} bytes")
        class_id, _, size = _CONTENT.unpack_from(payload)
        if class_id != _BASIC:
            raise AmqpFault(
                ReplyCode.UNEXPECTED_FRAME,
                f"expected content header for class 60, got one for class {class_id} instead",
            )
        content.properties = payload[_CONTENT.size :]
        content.missing = size
        return self._finished(channel, content)

    def _body(self, channel: int, payload: bytes, content: _Content | None) -> Event | None:
        if content is None or content.properties is None:
            raise AmqpFault(ReplyCode.UNEXPECTED_FRAME, f"a content body on channel {channel} where none belongs")
        content.missing -= len(payload)
        if content.missing < 0:
            raise AmqpFault(ReplyCode.UNEXPECTED_FRAME, f"a body {-content.missing} bytes longer than its header said")
        content.parts.append(payload)
        return self._finished(channel, content)

    def _finished(self, channel: int, content: _Content) -> Event | None:
        if content.missing:
            return None
        del self._contents[channel]
        assert content.properties is not None
        return Published(channel, content.method, [(content.properties, b"".join(content.parts))])
