"""What the reader yields: publishes, acks, methods, heartbeats, errors; and the frame constants."""

from dataclasses import dataclass
from typing import Final

from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicPublish
from shardmq.protocol.amqp.methods.fields import Method

METHOD: Final = 1

HEADER: Final = 2

BODY: Final = 3

HEARTBEAT: Final = 8

END: Final = 0xCE

FRAME_OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""

FRAME_MIN: Final = 4096
"""The smallest `frame_max` (section 4.2.3 of the specification), and the largest frame before one is agreed on: who
sends a larger one is not let in, as with RabbitMQ."""


@dataclass(slots=True)
class PublishesReceived:
    """Messages that were published one after the other on a channel, by the same method.

    Attributes:
        lists: each one's property list; the same object for neighbours that have the same.
        bodies: each one's body.
    """

    channel: int
    method: BasicPublish
    lists: list[bytes]
    bodies: list[bytes]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(map(len, self.lists)) + sum(map(len, self.bodies))


@dataclass(slots=True)
class AcksReceived:
    """Deliveries were acknowledged one after the other, each by a basic.ack of its own.

    Attributes:
        ranges: their tags, in the order they came: first to last, both included.
    """

    channel: int
    ranges: list[tuple[int, int]]

    @property
    def method(self) -> BasicAck:
        """The first of those methods."""
        return BasicAck(self.ranges[0][0])


@dataclass(slots=True)
class MethodReceived:
    """A method."""

    channel: int
    method: Method


@dataclass(slots=True)
class PublishTooLarge:
    """A message that is too large; whatever comes after it on its channel is ignored already."""

    channel: int
    method: BasicPublish
    fault: AmqpError


@dataclass(slots=True)
class HeartbeatReceived:
    """A heartbeat, which is on channel 0."""

    channel: int = 0


Event = PublishesReceived | AcksReceived | MethodReceived | PublishTooLarge | HeartbeatReceived


PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
