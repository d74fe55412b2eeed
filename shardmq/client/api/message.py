"""What a consumer gets: messages one by one, or whole deliveries as batches."""

from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from shardmq.errors import PreconditionFailed
from shardmq.message import keyed_records
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import KEYED, PERSISTENT, message_id
from shardmq.protocol.native.operations.basic import BasicDeliver

NO_PROPERTIES: Final = Properties()

SHOWN_BYTES: Final = 32
"""Of a body in `repr`."""


class Settler(Protocol):
    """Passes acks and nacks on to the broker."""

    def ack_one(self, tag: int) -> None:
        """Ack a delivery tag."""

    def ack(self, first: int, last: int) -> None:
        """Ack the delivery tags first to last."""

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:
        """Nack the delivery tags first to last."""

    def renew(self, first: int, last: int) -> None:
        """Begin the acknowledgement timeout of the delivery tags first to last anew."""


# A Struct of four fields, with all that a delivery has in common left in one object: made in 110 ns, where a class with
# slots takes 250.
class Message(msgspec.Struct, gc=False, eq=False):
    """One delivered message. Consumers and reads hand it out; programs do not make one.

    Attributes:
        body: the bytes that were published.
        delivery_tag: its number on the channel, for basic_ack.
    """

    body: bytes
    delivery_tag: int
    _properties: Properties | None
    _delivery: "Delivery"

    @property
    def properties(self) -> Properties:
        """What the publisher set; all None when it set nothing.

        The broker adds headers where RabbitMQ does: x-death and its like, x-delivery-count, which is `deliveries`, and
        x-stream-offset, which is `offset`.
        """
        properties = self._properties or NO_PROPERTIES
        count, offset = self._delivery.frame.deliveries, self.offset
        if offset is not None:
            return replace(properties, headers={**(properties.headers or {}), "x-stream-offset": offset})
        if not count:
            return properties
        return replace(properties, headers={**(properties.headers or {}), "x-delivery-count": count})

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._delivery.queue

    @property
    def exchange(self) -> str:
        """Where it was published to."""
        return self._delivery.frame.exchange

    @property
    def routing_key(self) -> str:
        """The key it was published with."""
        return self._delivery.frame.routing_key

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before; False means that it never was."""
        return self._delivery.frame.redelivered

    @property
    def deliveries(self) -> int:
        """How often it was delivered before and came back, where its queue counts that (x-delivery-limit); else 0."""
        return self._delivery.frame.deliveries

    @property
    def persistent(self) -> bool:
        """Whether it survives a restart in a durable queue."""
        return bool(self._delivery.frame.flags & PERSISTENT)

    @property
    def timestamp_ms(self) -> int:
        """When the broker received it, in milliseconds since 1970."""
        return self._delivery.frame.timestamp_ms

    @property
    def consumer_tag(self) -> str:
        """The consumer it was delivered to; "" for basic_get."""
        return self._delivery.frame.consumer

    @property
    def offset(self) -> int | None:
        """Its number in the stream that it was read from; None for messages of other queues."""
        first = self._delivery.frame.offset
        return None if first is None else first + self.delivery_tag - self._delivery.frame.tag

    @property
    def partition(self) -> int | None:
        """The number of the partition that it was delivered from to a member of a group; None for other messages."""
        return self._delivery.frame.partition

    @property
    def position(self) -> int | None:
        """Its number in its queue, which it keeps for as long as it is there; None unless `queue_read` read it."""
        first = self._delivery.first
        return None if first is None else first + self.delivery_tag - self._delivery.frame.tag

    @property
    def message_id(self) -> str:
        """The publisher's id for it, or else the broker's: the same in every queue and after every restart."""
        if self._properties is not None and self._properties.message_id is not None:
            return self._properties.message_id
        frame = self._delivery.frame
        return message_id(frame.origin, frame.serial + self.delivery_tag - frame.tag)

    def ack(self) -> None:
        """Ack the message: it is dealt with. Acks travel together, as ranges, a moment later.

        Raises:
            ChannelError, ConnectionFault: the channel or connection it came over is closed.
            PreconditionFailed: it was consumed with auto_ack.
        """
        self._delivery.settler.ack_one(self.delivery_tag)

    def nack(self, requeue: bool = True, delay_ms: int = 0) -> None:
        """Nack the message: requeue it at its place, or dead-letter it (drop it where its queue has no such exchange).

        Args:
            requeue: whether it returns to the queue.
            delay_ms: it is delivered again no sooner than so many milliseconds from now; 0 where it does not return.

        Raises:
            ChannelError, ConnectionFault: the channel or connection it came over is closed.
            PreconditionFailed, InvalidRequest: it was consumed with auto_ack; the delay cannot be.
        """
        self._delivery.settler.nack(self.delivery_tag, self.delivery_tag, requeue, delay_ms)

    def reject(self) -> None:
        """Reject the message: it is dead-lettered, or dropped where its queue or group has no such exchange.

        Raises:
            ChannelError, ConnectionFault: the channel or connection it came over is closed.
            PreconditionFailed: it was consumed with auto_ack.
        """
        self.nack(requeue=False)

    def renew(self) -> None:
        """Restart the message's acknowledgement timeout: it is still being worked on.

        Raises:
            ChannelError, ConnectionFault: the channel or connection it came over is closed.
            PreconditionFailed: it was consumed with auto_ack.
        """
        self._delivery.settler.renew(self.delivery_tag, self.delivery_tag)

    def __repr__(self) -> str:
        shown = self.body if len(self.body) <= SHOWN_BYTES else self.body[:SHOWN_BYTES] + b"..."
        again = ", redelivered" if self.redelivered else ""
        return (
            f"<Message {self.delivery_tag} from queue '{self.queue}', routing key '{self.routing_key}', "
            f"{len(self.body)} bytes: {shown!r}{again}>"
        )


class KeyedMessage(Message, gc=False, eq=False):
    """One message of a delivery in which each has a routing key of its own."""

    _key: str

    @property
    def routing_key(self) -> str:
        """The key it was published with."""
        return self._key


def properties_of_copy(message: Message) -> Properties:
    """A message's properties for a copy of it: with the id that the broker gave it, and as durable as it was."""
    return replace(message.properties, message_id=message.message_id, delivery_mode=2 if message.persistent else 1)


class Delivery:
    """Messages that were delivered together, and what settles them.

    Attributes:
        frame: what came.
        settler: who passes on acks.
        queue: whose messages they are.
        first: the first message's number in its queue, where that is known.
    """

    __slots__ = ("first", "frame", "queue", "settler")

    def __init__(self, frame: BasicDeliver, settler: Settler, queue: str, first: int | None = None) -> None:
        self.frame = frame
        self.settler = settler
        self.queue = queue
        self.first = first

    @property
    def size(self) -> int:
        """Bytes it holds."""
        return len(self.frame.records)

    def messages(self) -> list[Message]:
        """All of its messages, decoded at once."""
        frame = self.frame
        if frame.flags & KEYED:
            keyed = keyed_records.unpack(frame.records, frame.count)
            return [
                KeyedMessage(record.body, tag, record.properties, self, record.key)
                for tag, record in enumerate(keyed, frame.tag)
            ]
        unpacked = records.unpack(frame.records, frame.count)
        return [Message(record.body, tag, record.properties, self) for tag, record in enumerate(unpacked, frame.tag)]


class AutoAcked:
    """The settler of messages that were acked as they left the broker."""

    def ack_one(self, tag: int) -> None:
        """Refused."""
        self.ack(tag, tag)

    def ack(self, first: int, last: int) -> None:
        """Refused."""
        raise PreconditionFailed(f"delivery tags {first} to {last} were consumed with auto_ack: they are acked already")

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:  # noqa: ARG002
        """Refused."""
        self.ack(first, last)

    def renew(self, first: int, last: int) -> None:
        """Refused."""
        self.ack(first, last)


class Peeked(AutoAcked):
    """The settler of messages that were only looked at."""

    def ack(self, first: int, last: int) -> None:  # noqa: ARG002
        """Refused."""
        raise PreconditionFailed(
            "this message was only looked at (queue_peek, queue_read); get or consume it to "
            "settle it, or reserve it and end the reservation"
        )


class Pulls(AutoAcked):
    """The settler of messages that were pulled."""

    def ack(self, first: int, last: int) -> None:  # noqa: ARG002
        """Refused."""
        raise PreconditionFailed(
            "this message was pulled, which leaves all as it is; remember its offset, or commit it for a group"
        )


class Batch:
    """Messages that came together: one exchange, rising delivery tags. For bulk work.

    `Channel.consume_batches` hands it out; programs do not make one.
    """

    __slots__ = ("_bodies", "_delivery", "_messages")

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._bodies: list[bytes] | None = None
        self._messages: list[Message] | None = None

    def __len__(self) -> int:
        return self._delivery.frame.count

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __repr__(self) -> str:
        again = ", redelivered" if self.redelivered else ""
        return (
            f"<Batch of {len(self)} messages from queue '{self.queue}', delivery tags from {self.delivery_tag}, "
            f"routing key '{self.routing_key}'{again}>"
        )

    @property
    def bodies(self) -> list[bytes]:
        """Their bodies, in order."""
        if self._bodies is None:
            packed, count = self._delivery.frame.records, self._delivery.frame.count
            if self._delivery.frame.flags & KEYED:
                self._bodies = [record.body for record in keyed_records.unpack(packed, count)]
            else:
                apart = records.unpack_bodies(packed, count) or records.unpack_apart(packed, count)
                self._bodies = [body for _, body in apart]
        return self._bodies

    @property
    def messages(self) -> list[Message]:
        """All of them as messages, in order."""
        if self._messages is None:
            self._messages = self._delivery.messages()
        return self._messages

    @property
    def queue(self) -> str:
        """The queue they came from."""
        return self._delivery.queue

    @property
    def exchange(self) -> str:
        """Where they were published to."""
        return self._delivery.frame.exchange

    @property
    def routing_key(self) -> str:
        """The key they were published with; "" where each has its own, as in a topic (`routing_keys`)."""
        return self._delivery.frame.routing_key

    @property
    def routing_keys(self) -> list[str]:
        """The key that each of them was published with, in order."""
        frame = self._delivery.frame
        if frame.flags & KEYED:
            return [record.key for record in keyed_records.unpack(frame.records, frame.count)]
        return [frame.routing_key] * frame.count

    @property
    def redelivered(self) -> bool:
        """Whether they may have been delivered before; False means that none of them was."""
        return self._delivery.frame.redelivered

    @property
    def timestamp_ms(self) -> int:
        """When the broker received them, in milliseconds since 1970."""
        return self._delivery.frame.timestamp_ms

    @property
    def offset(self) -> int | None:
        """The first message's number in its stream; None for messages of other queues."""
        return self._delivery.frame.offset

    @property
    def partition(self) -> int | None:
        """The partition that they were delivered from to a member of a group; None for other messages."""
        return self._delivery.frame.partition

    @property
    def delivery_tag(self) -> int:
        """The first message's number on the channel; message i has `delivery_tag + i`."""
        return self._delivery.frame.tag

    def ack(self) -> None:
        """Ack all of them.

        Raises:
            ChannelError, ConnectionFault: the channel or connection they came over is closed.
            PreconditionFailed: they were consumed with auto_ack.
        """
        frame = self._delivery.frame
        self._delivery.settler.ack(frame.tag, frame.tag + frame.count - 1)

    def nack(self, requeue: bool = True, delay_ms: int = 0) -> None:
        """Nack all of them: requeue them at their places, or dead-letter them.

        Args:
            requeue: whether they return to the queue.
            delay_ms: they are delivered again no sooner than so many milliseconds from now.

        Raises:
            ChannelError, ConnectionFault: the channel or connection they came over is closed.
            PreconditionFailed: they were consumed with auto_ack.
        """
        frame = self._delivery.frame
        self._delivery.settler.nack(frame.tag, frame.tag + frame.count - 1, requeue, delay_ms)

    def renew(self) -> None:
        """Restart the acknowledgement timeout of all of them.

        Raises:
            ChannelError, ConnectionFault: the channel or connection they came over is closed.
            PreconditionFailed: they were consumed with auto_ack.
        """
        frame = self._delivery.frame
        self._delivery.settler.renew(frame.tag, frame.tag + frame.count - 1)
