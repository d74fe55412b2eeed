"""What the reader yields: publishes, acks, methods, heartbeats, errors; and the frame constants."""

from dataclasses import dataclass
from typing import Final

from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicPublish
from shardmq.protocol.amqp.methods.fields import Method

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
"""What a client sends before its first frame."""

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
"""Types of frames."""

END: Final = 0xCE
"""The last octet of a frame."""

FRAME_OVERHEAD: Final = 8
"""Bytes of a frame beside its payload."""

FRAME_MIN: Final = 4096
"""The smallest `frame_max` (section 4.2.3 of the specification), and the largest frame before one is agreed on. A
client that sends a larger one then is refused, as in RabbitMQ."""

DECODED_BYTES: Final = 40
"""What a byte of a method may take in memory once it is decoded. Tables in one another, each the one entry of the one
around it, take 32."""

RANGE_BYTES: Final = 144
"""What a range of acks takes in memory."""


@dataclass(slots=True)
class PublishesReceived:
    """Neighbouring messages on a channel.

    Attributes:
        method: the first one's.
        lists: each one's property list; one object for neighbours whose lists are equal.
        bodies: each one's body.
        methods: each one's, the same object for equal ones that come close together; None where all have the same.
        turn: after so many messages, methods and property lists begin again, the same objects; 0 where they do not.
    """

    channel: int
    method: BasicPublish
    lists: list[bytes]
    bodies: list[bytes]
    methods: list[BasicPublish] | None = None
    turn: int = 0

    @property
    def size(self) -> int:
        """Bytes of all property lists and bodies."""
        return sum(map(len, self.lists)) + sum(map(len, self.bodies))


@dataclass(slots=True)
class AcksReceived:
    """Neighbouring acks on a channel, each of a single delivery.

    Attributes:
        ranges: their delivery tags in the order of the acks, as (first, last), both included.
    """

    channel: int
    ranges: list[tuple[int, int]]

    @property
    def size(self) -> int:
        """Bytes that the ranges take in memory."""
        return len(self.ranges) * RANGE_BYTES

    @property
    def method(self) -> BasicAck:
        """The first ack."""
        return BasicAck(self.ranges[0][0])


@dataclass(slots=True)
class MethodReceived:
    """A method other than a publish, or an ack with `multiple`.

    Attributes:
        payload_bytes: of its frame.
    """

    channel: int
    method: Method
    payload_bytes: int

    @property
    def size(self) -> int:
        """Bytes that the method takes in memory at most."""
        return self.payload_bytes * DECODED_BYTES


@dataclass(slots=True)
class PublishTooLarge:
    """A publish of a message that is too large. The reader ignores its channel from then on."""

    channel: int
    method: BasicPublish
    error: AmqpError


@dataclass(slots=True)
class HeartbeatReceived:
    """A heartbeat; its channel is 0."""

    channel: int = 0


Event = PublishesReceived | AcksReceived | MethodReceived | PublishTooLarge | HeartbeatReceived
"""What `FrameReader.feed` yields."""
