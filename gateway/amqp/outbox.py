"""What is sent to the client: the writing half of an AMQP connection; confirms in as few frames as say it.

Shards confirm in the order they were published to, but not in step with one another, so there may be gaps:

    publishes    1  2  3  4  5  6  7  8  9         1 to 3 are confirmed: ack 3, multiple
                 ├─────┤  ·  ├──┤  ·  │            5, 6 and 8 are: ack 5, ack 6, ack 8
                                                   4 is: all up to 6 are settled now: ack 4
"""

import struct
from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Final

from shardmq.bus.messages.shard import Delivered
from shardmq.gateway.session.connection import ClientConnection, ConnectionHost
from shardmq.message.batch_parts import Contents
from shardmq.message.keyed_records import keys_of
from shardmq.message.record_batch import AMQP, KEYED, RecordBatch
from shardmq.protocol.amqp import encoder
from shardmq.protocol.amqp.events import END, FRAME_MIN, FRAME_OVERHEAD, METHOD, Event, PublishesReceived
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicNack, BasicReturn
from shardmq.protocol.amqp.methods.connection import ConnectionBlocked, ConnectionUnblocked
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.records import unpack
from shardmq.protocol.amqp.stream_offsets import with_offsets
from shardmq.protocol.translation import to_amqp

_FRAME: Final = struct.Struct(">BHIHHQBB")
_START: Final = struct.Struct(">BHIHH")
_ALONE: Final = struct.Struct(f">{_START.size}sQH")  # the last two bytes are one number: not multiple, and the end
_PAYLOAD_BYTES: Final = 13
MULTIPLE: Final = 1
"""The lowest bit of either method. The next of basic.nack is requeue, which says nothing to publishers."""


ALONE_BYTES_MAX: Final = FRAME_MIN - FRAME_OVERHEAD
"""A body of this size is one frame, whatever was agreed on."""


class ConfirmWriter:
    """What a client knows of its publishes, as numbered from 1. Everything up to `settled` has been told."""

    __slots__ = ("_beyond", "settled")

    def __init__(self) -> None:
        self.settled = 0
        self._beyond: dict[int, int] = {}  # first to last of what was told behind a gap

    def acks(self, channel: int, ranges: Iterable[tuple[int, int]]) -> bytes:
        """The frames that tell of publishes `ranges`, both ends included, that they are where they should be."""
        return self._tell(BasicAck.id, channel, ranges)

    def nacks(self, channel: int, ranges: Iterable[tuple[int, int]]) -> bytes:
        """The frames that tell of publishes `ranges` that they are not."""
        return self._tell(BasicNack.id, channel, ranges)

    def _tell(self, method: tuple[int, int], channel: int, ranges: Iterable[tuple[int, int]]) -> bytes:
        ranges = list(ranges)
        beyond = self._beyond
        if len(ranges) == 1 and not beyond and ranges[0][0] == self.settled + 1:  # one in flight: 0.6 µs, not 3
            first, self.settled = ranges[0]
            is_multiple = MULTIPLE if first < self.settled else 0
            return _FRAME.pack(METHOD, channel, _PAYLOAD_BYTES, *method, self.settled, is_multiple, END)
        before = self.settled
        beyond.update(ranges)
        while last := beyond.pop(self.settled + 1, 0):
            self.settled = last
        settled, alone, frames = self.settled, ranges, b""
        if settled > before:
            alone = [each for each in ranges if each[0] > settled]
            together = [each for each in ranges if each[0] <= settled] if alone else ranges
            first, last = max(together)
            multiple = MULTIPLE if first < last or len(together) > 1 else 0
            frames = _FRAME.pack(METHOD, channel, _PAYLOAD_BYTES, *method, last, multiple, END)
        if alone:
            start = _START.pack(METHOD, channel, _PAYLOAD_BYTES, *method)
            numbers = [first for first, last in alone if first == last]
            if len(numbers) < len(alone):
                numbers = [number for first, last in alone for number in range(first, last + 1)]
            frames += b"".join(map(_ALONE.pack, repeat(start), numbers, repeat(END)))
        return frames


class Outbox(ClientConnection):
    """Encodes what the client is told, and queues it for the end of the pass.

    Args:
        host: the server that has accepted it.

    Attributes:
        capabilities: what the client is able to hear of, those of `handshake.ASKED_CAPABILITIES`.
    """

    __slots__ = ("_frame_max", "_is_told_blocked", "capabilities")

    def __init__(self, host: ConnectionHost) -> None:
        super().__init__(host)
        self._frame_max = 0
        self._is_told_blocked = False
        self.capabilities: frozenset[str] = frozenset()

    def send(self, channel: int, method: Method) -> None:
        """Queue a method for the end of the pass."""
        self.send_frame(encoder.method_frame(channel, method))

    def send_heartbeat(self) -> None:
        """Give a sign of life."""
        self.send_frame(encoder.BEAT)

    def send_content_return(self, channel: int, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """Return a mandatory message that no queue took."""
        self.send(channel, BasicReturn(312, "NO_ROUTE", exchange, key))
        self.send_content(channel, properties, body)

    def send_content(self, channel: int, properties: bytes, body: bytes) -> None:
        """Send a message, behind the method that it belongs to."""
        self.send_frame(encoder.content_frames(channel, properties, body, self._frame_max))

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, batch: RecordBatch, deliveries: int
    ) -> None:
        """Send messages to a consumer, as `Front.send_delivery` has them."""
        if batch.count == 1 and batch.flags & (AMQP | KEYED) == AMQP and type(batch) is RecordBatch and not deliveries:
            ((raw,), (body,)) = unpack(batch.records, 1)
            if len(body) <= ALONE_BYTES_MAX:
                envelope = encoder.envelope(channel, consumer, redelivered, batch.exchange, batch.routing_key)
                self.send_frame(encoder.one(envelope, tag, raw, body))
                return
        self._send_messages(channel, consumer, tag, redelivered, batch, to_amqp(batch, deliveries))

    def send_read(self, channel: int, consumer: str, tag: int, offset: int, batch: RecordBatch) -> None:
        """Send messages of a stream to a consumer, as `Front.send_read` has them."""
        lists, bodies = to_amqp(batch)
        self._send_messages(channel, consumer, tag, False, batch, (with_offsets(lists, offset), bodies))

    def send_partition(self, channel: int, consumer: str, tag: int, delivered: Delivered, partition: int) -> None:
        """Send messages of a partition to a consumer, as `Front.send_partition` has them."""
        batch = delivered.batch
        lists, bodies = to_amqp(batch, delivered.deliveries)
        contents = with_offsets(lists, delivered.first, partition), bodies
        self._send_messages(channel, consumer, tag, delivered.redelivered, batch, contents)

    def send_assigned(self, channel: int, consumer: str, partitions: list[tuple[int, int]]) -> None:
        """Say nothing: AMQP has no word for it."""

    def send_revoked(
        self,
        channel: int,  # noqa: ARG002  (AMQP has no word for it)
        consumer: str,  # noqa: ARG002
        partitions: list[int],  # noqa: ARG002
        *,
        is_lost: bool,  # noqa: ARG002
    ) -> bool:
        """Say nothing; the client will not answer."""
        return False

    def _send_messages(
        self, channel: int, consumer: str, tag: int, redelivered: bool, batch: RecordBatch, contents: Contents
    ) -> None:
        lists, bodies = contents
        if batch.flags & KEYED:
            envelope_of = partial(encoder.envelope, channel, consumer, redelivered, batch.exchange)
            pieces = encoder.pieces_with_keys(map(envelope_of, keys_of(batch)), tag, lists, bodies, self._frame_max)
            if len(batch.records) > batch.count * encoder.ALIKE_BYTES_MAX:
                self.send_pieces(pieces)
            else:
                self.send_frame(b"".join(pieces))
            return
        envelope = encoder.envelope(channel, consumer, redelivered, batch.exchange, batch.routing_key)
        if len(batch.records) > batch.count * encoder.ALIKE_BYTES_MAX:
            self.send_pieces(encoder.delivery_pieces(envelope, tag, lists, bodies, self._frame_max))
        else:
            self.send_frame(encoder.deliveries(envelope, tag, lists, bodies, self._frame_max))

    def delivery_bytes(self, consumer: str) -> int:
        """What each message for a consumer takes beside its record and names."""
        return encoder.DELIVERY_BYTES + len(consumer)

    def send_return(self, channel: int, request: int, batch: RecordBatch) -> None:
        """Fail: messages that came by AMQP return one by one, by `send_content_return`."""
        raise AssertionError(f"publish {request} of channel {channel} returns as one batch of {batch.count} messages")

    def block(self, reason: str) -> None:  # noqa: ARG002  (told when it publishes)
        """Hold publishes from now on: an alarm is on."""
        self.is_blocked = True

    def unblock(self) -> None:
        """Take publishes again: no alarm is on any more."""
        self.is_blocked = False
        if self._is_told_blocked:
            self._is_told_blocked = False
            self.send(0, ConnectionUnblocked())
        self.resume()

    def is_blocked_by_alarm(self, event: Event) -> bool:
        """Whether an alarm holds what came. The client is told once it publishes, as in RabbitMQ."""
        if not self.is_blocked or type(event) is not PublishesReceived:
            return False
        if not self._is_told_blocked and "connection.blocked" in self.capabilities:
            self._is_told_blocked = True
            self.send(0, ConnectionBlocked(self.state.alarms.reason))
        return True
