"""How a consumer is served: what fits into its window, and what needs a permit."""

from collections.abc import Sequence
from typing import Protocol

from shardmq.bus.listener import Peer
from shardmq.bus.messages.columns import COLUMN_ENTRIES_MAX, Deliveries
from shardmq.bus.messages.shard import Delivered, Spent, Wanted
from shardmq.limits import NAME_BYTES_MAX
from shardmq.message.record_batch import RecordBatch, cost
from shardmq.shards.consumers.ack_latency import ARMED
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.segments.shared_batch import SHARED_BYTES_MIN
from shardmq.shards.segments.slicer import single_batches


class Source(Protocol):
    """What a consumer is served from: a queue (queues/queue.py), its own cursor in a partition, or its group's."""

    @property
    def ready(self) -> int:
        """Return how many messages wait."""

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Deliver ready messages, in order; as `Queue.take`."""

    def stored_bytes(self) -> int:
        """Return the bytes of the message that would be delivered next, where it is not in memory; else 0."""

    def head_bytes(self) -> int:
        """Return the bytes of the message that would be delivered next."""

    def settle(self, ranges: Ranges) -> None:
        """Settle messages that went out to a consumer that acknowledges nothing."""


def serve(source: Source, consumer: Consumer, limit: int) -> bool:
    """Hand out `limit` messages at most; returns whether there were any that may go."""
    room = max(consumer.room, consumer.permit)
    stored = source.stored_bytes()
    if stored > max(room, consumer.window):  # not read before it may go
        _may_go(consumer, stored)
        return False
    if consumer.overhead:
        limit = min(limit, max(1, room // (consumer.overhead + 2 * NAME_BYTES_MAX)))
    deliveries = source.take(limit, room, alone=False)
    if not deliveries and source.ready and _may_go(consumer, source.head_bytes()):
        deliveries = source.take(1, consumer.window, alone=False)
    if consumer.permit and deliveries:
        _spend(consumer, sum([len(batch.records) for *_, batch in deliveries]))
    for first, redelivered, delivery_count, batch in deliveries:
        end = first + batch.count
        consumer.room -= cost(batch, consumer.overhead)
        if not consumer.settles:
            source.settle([(first, end)])
        elif consumer.timeouts is None and consumer.latency.timed != ARMED:
            consumer.held.add(first, end)
        else:
            consumer.hold(first, end, redelivered)
        if redelivered and end > consumer.fresh_from:
            consumer.fresh_from = end
        if redelivered or delivery_count or consumer.cursor is not None:
            consumer.peer.post(Delivered(consumer.number, first, redelivered, batch, delivery_count))
        else:
            post_fresh(consumer.peer, consumer.number, first, batch)
    if consumer.is_tallied:
        consumer.tally_delivered(sum([batch.count for *_, batch in deliveries]))
    return bool(deliveries)


def post_fresh(peer: Peer, number: int, first: int, batch: RecordBatch) -> None:
    """Deliver messages that nobody was delivered before: small ones for several consumers go as one message."""
    if len(batch.records) >= SHARED_BYTES_MIN or type(batch) is not RecordBatch:
        peer.post(Delivered(number, first, False, batch))
        return
    newest = peer.newest
    if type(newest) is Deliveries and len(newest.firsts) < COLUMN_ENTRIES_MAX:
        newest.consumers.append(number)
        newest.firsts.append(first)
        newest.batches.append(batch)
    else:
        peer.post(Deliveries([number], [first], [batch]))


def serve_each(source: Source, consumers: Sequence[Consumer]) -> int:
    """Hand out a message to each consumer, all taken at once: a quarter of the time of `serve` for each.

    Where a message may not fit into one of their windows, nothing is handed out: `serve` sees to each by itself.

    Args:
        source: has as many messages ready as there are consumers.
        consumers: with credit.

    Returns:
        How many of them got one; the others are those behind.
    """
    room = min([0 if consumer.permit else consumer.room for consumer in consumers])
    if room <= 0 or source.stored_bytes() > room:
        return 0
    served = 0
    for first, redelivered, delivery_count, batch in source.take(len(consumers), room, alone=False):
        for number, single in enumerate(single_batches(batch), first):
            consumer = consumers[served]
            served += 1
            consumer.room -= cost(single, consumer.overhead)
            if not consumer.settles:
                source.settle([(number, number + 1)])
            elif consumer.timeouts is None and consumer.latency.timed != ARMED:
                consumer.held.add(number, number + 1)
            else:
                consumer.hold(number, number + 1, redelivered)
            if redelivered and number >= consumer.fresh_from:
                consumer.fresh_from = number + 1
            if consumer.is_tallied:
                consumer.tally_delivered(1)
            if redelivered or delivery_count:
                consumer.peer.post(Delivered(consumer.number, number, redelivered, single, delivery_count))
            else:
                post_fresh(consumer.peer, consumer.number, number, single)
    return served


def _may_go(consumer: Consumer, size: int) -> bool:
    """Tell whether a message may go that does not fit into the free part of the window.

    One as large as the window may go when nothing else is under way; a larger one needs a permit.
    """
    if size <= consumer.window:
        return consumer.is_clear()
    if not consumer.is_asking:
        consumer.is_asking = True
        consumer.peer.post(Wanted(consumer.number, size))
    return False


def _spend(consumer: Consumer, size: int) -> None:
    """Charge what goes now to the permit, and not to the window."""
    consumer.peer.post(Spent(consumer.number, consumer.permit, size))
    consumer.room += size
    consumer.permit = 0
