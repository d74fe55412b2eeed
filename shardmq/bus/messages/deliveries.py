"""Deliveries of shared records: a gateway is sent those once, and then each consumer's part of them.

    [ CommonDelivery 7: the records ] [ DeliveredPart of 7 to consumer 1 ] [ … 2 ] …  [ CommonForgotten 7 ]

The shard makes them of `Delivered` as it sends; the gateway makes `Delivered` of them as it reads.
"""

from shardmq.bus.messages.base import BusMessage
from shardmq.message.batch_parts import CommonBatch


class CommonDelivery(BusMessage, frozen=True, tag=84):
    """Messages that deliveries behind it have, in this session, until a CommonForgotten names it.

    Attributes:
        number: what those deliveries name it by; one that was there before is replaced.
        batch: the messages.
    """

    number: int
    batch: CommonBatch


class CommonForgotten(BusMessage, frozen=True, tag=86):
    """No delivery will name these any more."""

    numbers: list[int]


class DeliveredPart(BusMessage, frozen=True, tag=85):
    """`Delivered`, whose messages are those of a CommonDelivery, or some of them.

    Attributes:
        consumer: its number.
        first: sequence number of the first.
        redelivered: whether they were delivered before.
        common: number of the CommonDelivery.
        start: place of the first message in its batch.
        count: how many.
        begin: offset of the first record, in bytes.
        size: of the records, in bytes.
        deliveries: how often each was delivered and returned before, where the queue counts that.
    """

    consumer: int
    first: int
    redelivered: bool
    common: int
    start: int
    count: int
    begin: int
    size: int
    deliveries: int = 0
