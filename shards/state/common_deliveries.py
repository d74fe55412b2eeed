"""Deliveries whose records are shared: a gateway has them once, and is told each consumer's part of them.

    posted   Delivered c1 [a b c]   Delivered c2 [a b c]   Delivered c3 [a b]      later: Delivered c3 [c]
    sent     CommonDelivery [a b c]   DeliveredPart c1 0-3   DeliveredPart c2 0-3   DeliveredPart c3 0-2

A message of 10 KB to 100 queues of four shards takes 40 KB through ZeroMQ, not 1 MB. Consumers with small windows are
behind others, so the gateway keeps the records for a while.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.deliveries import CommonDelivery, CommonForgotten, DeliveredPart
from shardmq.bus.messages.shard import Delivered
from shardmq.message.batch_parts import CommonBatch
from shardmq.shards.segments.shared_batch import SharedBatch

KEPT_TICKS: Final = 10
"""So many ticks without a shared delivery, the gateway may forget all of them."""


class _Kept(NamedTuple):
    """What a gateway has of a body.

    Attributes:
        serial: of the first message.
        begin: where its record begins in the body, in bytes.
        end: where the last one ends.
    """

    serial: int
    begin: int
    end: int


class CommonDeliveries:
    """What one gateway has of shared records, in one session.

    Args:
        bytes_max: about what it may keep; it has them twice, as AMQP clients get bodies alone. Where that is less than
            what consumers are behind one another, records are sent several times (2,000 messages of 10 KB to 100
            queues, with consumers half of them behind: 1,500 us a message with 8 MB, 1,150 with 24).
    """

    __slots__ = ("_bytes", "_bytes_max", "_idle_ticks", "_kept")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by the body's number, the last used at the end
        self._bytes = 0
        self._idle_ticks = 0

    def shorten(self, messages: list[BusMessage]) -> list[BusMessage]:
        """Return the messages of an envelope, with shared records only where the gateway does not have them."""
        wanted: dict[int, int] = {}
        for message in messages:
            if type(message) is Delivered and type(message.batch) is SharedBatch:
                body = message.batch.body
                wanted[body] = wanted.get(body, 0) + len(message.batch.records)
        if not wanted:
            return messages
        self._idle_ticks = 0
        sent: list[BusMessage] = []
        for message in messages:
            if type(message) is Delivered and type(message.batch) is SharedBatch:
                self._send(message, message.batch, wanted, sent)
            else:
                sent.append(message)
        forgotten = []
        while self._bytes > self._bytes_max:
            body, kept = self._kept.popitem(last=False)
            self._bytes -= kept.end - kept.begin
            forgotten.append(body)
        if forgotten:
            sent.append(CommonForgotten(forgotten))
        return sent

    def tick(self, post: Callable[[BusMessage], None]) -> None:
        """Have the gateway forget everything, when nothing was shared for a while."""
        self._idle_ticks += 1
        if self._kept and self._idle_ticks > KEPT_TICKS:
            post(CommonForgotten(list(self._kept)))
            self._kept.clear()
            self._bytes = 0

    def _send(self, message: Delivered, batch: SharedBatch, wanted: dict[int, int], sent: list[BusMessage]) -> None:
        body, begin = batch.body, batch.begin
        end = begin + len(batch.records)
        kept = self._kept.get(body)
        if kept is None or begin < kept.begin or kept.end < end:
            source = batch.source
            if wanted[body] * 2 < len(source.records):  # all of it would be more than what is saved
                sent.append(message)
                return
            if kept is not None:
                self._bytes -= kept.end - kept.begin
            kept = self._kept[body] = _Kept(source.serial, source.begin, source.begin + len(source.records))
            self._bytes += kept.end - kept.begin
            sent.append(CommonDelivery(body, _common(source)))
        self._kept.move_to_end(body)
        start = batch.serial - kept.serial
        sent.append(
            DeliveredPart(
                message.consumer,
                message.first,
                message.redelivered,
                body,
                start,
                batch.count,
                begin - kept.begin,
                end - begin,
                message.deliveries,
            )
        )


def _common(batch: SharedBatch) -> CommonBatch:
    return CommonBatch(
        batch.exchange,
        batch.routing_key,
        batch.flags,
        batch.timestamp_ms,
        batch.origin,
        batch.serial,
        batch.count,
        batch.records,
        batch.priority,
        batch.ttl_ms,
    )
