"""What is sent to the client: the writing half of a native connection."""

from collections.abc import Iterable
from typing import Final

from shardmq.bus.messages.shard import Delivered
from shardmq.errors import ReplyCode, RequestError
from shardmq.gateway.session.connection import ClientConnection, ConnectionHost
from shardmq.gateway.session.front import ConfirmingChannel
from shardmq.message.keyed_records import runs
from shardmq.message.record_batch import KEYED, RecordBatch
from shardmq.protocol.native.operations.basic import (
    BasicCancelled,
    BasicConfirm,
    BasicDeliver,
    BasicRefused,
    BasicReturn,
)
from shardmq.protocol.native.operations.codec import encode
from shardmq.protocol.native.operations.connection import Heartbeat
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.groups import GroupAssigned, GroupRevoked
from shardmq.protocol.translation import to_native

NO_ROUTE: Final = "NO_ROUTE"
"""The text of a return; RabbitMQ's."""

_HEARTBEAT: Final = encode(Heartbeat())


class Outbox(ClientConnection):
    """Encodes what the client is told, and queues it for the end of the pass.

    Args:
        host: the server that has accepted it.

    Attributes:
        reads_keys: whether the client reads batches in which each message has a routing key of its own; for others they
            are cut.
    """

    __slots__ = ("reads_keys",)

    def __init__(self, host: ConnectionHost) -> None:
        super().__init__(host)
        self.reads_keys = False

    def send(self, operation: Operation) -> None:
        """Queue an operation for the end of the pass."""
        self.send_frame(encode(operation))

    def send_heartbeat(self) -> None:
        """Give a sign of life."""
        self.send_frame(_HEARTBEAT)

    def encode_confirms(self, channel: ConfirmingChannel) -> bytes:
        """A channel's confirms, as a frame."""
        return encode(BasicConfirm(channel.number, channel.take_confirms()))

    def send_read(self, channel: int, consumer: str, tag: int, offset: int, batch: RecordBatch) -> None:
        """Send messages of a stream to a consumer, as `Front.send_read` has them."""
        for part in self._parts(batch):
            place = part.serial - batch.serial
            self.send_frame(encode(_delivered(channel, consumer, tag + place, False, part, 0, offset + place)))

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, batch: RecordBatch, deliveries: int
    ) -> None:
        """Send messages to a consumer, as `Front.send_delivery` has them."""
        for part in self._parts(batch):
            first = tag + part.serial - batch.serial
            self.send_frame(encode(_delivered(channel, consumer, first, redelivered, part, deliveries, None)))

    def send_partition(self, channel: int, consumer: str, tag: int, delivered: Delivered, partition: int) -> None:
        """Send messages of a partition to a consumer, as `Front.send_partition` has them."""
        batch, redelivered, deliveries = delivered.batch, delivered.redelivered, delivered.deliveries
        for part in self._parts(batch):
            place = part.serial - batch.serial
            first, offset = tag + place, delivered.first + place
            read = _delivered(channel, consumer, first, redelivered, part, deliveries, offset, partition)
            self.send_frame(encode(read))

    def _parts(self, batch: RecordBatch) -> Iterable[RecordBatch]:
        """A batch as the client reads it: cut where keys change, if it does not read keys of messages."""
        return (batch,) if self.reads_keys or not batch.flags & KEYED else runs(batch)

    def send_assigned(self, channel: int, consumer: str, partitions: list[tuple[int, int]]) -> None:
        """Say that a consumer has partitions from now on: number and next offset of each."""
        self.send(GroupAssigned(channel, consumer, partitions))

    def send_revoked(self, channel: int, consumer: str, partitions: list[int], *, is_lost: bool) -> bool:
        """Say that a consumer is to let go of partitions, or has lost them; returns whether the client will answer."""
        self.send(GroupRevoked(channel, consumer, partitions, is_lost))
        return not is_lost

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        """Refuse publishes `first` to `last`; where it is one, its first `taken` messages are stored."""
        self.send(BasicRefused(channel, [(first, last)], code, text, taken))

    def send_return(self, channel: int, request: int, batch: RecordBatch) -> None:
        """Return mandatory messages of a publish that no queue took; before its confirm."""
        for part in self._parts(batch):
            exchange, key, flags = part.exchange, part.routing_key, part.flags
            self.send(
                BasicReturn(
                    channel, request, ReplyCode.NO_ROUTE, NO_ROUTE, exchange, key, flags, part.count, part.records
                )
            )

    def send_cancelled(self, channel: int, consumer: str, fault: RequestError | None) -> None:
        """Say that a consumer gets nothing more: its queue is deleted where there is no fault."""
        if fault is None:
            self.send(BasicCancelled(channel, consumer))
        else:
            self.send(BasicCancelled(channel, consumer, fault.code, fault.text))


def _delivered(
    channel: int,
    consumer: str,
    tag: int,
    redelivered: bool,
    batch: RecordBatch,
    deliveries: int,
    offset: int | None,
    partition: int | None = None,
) -> BasicDeliver:
    batch = to_native(batch)
    return BasicDeliver(
        channel,
        consumer,
        tag,
        redelivered,
        batch.exchange,
        batch.routing_key,
        batch.flags,
        batch.timestamp_ms,
        batch.origin,
        batch.serial,
        batch.count,
        batch.records,
        deliveries,
        offset,
        partition,
    )
