"""Acks on their way to a shard: as few messages as say them."""

from collections.abc import Callable, Collection

from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.columns import COLUMN_ENTRIES_MAX, Acks
from shardmq.bus.messages.shard import Ack
from shardmq.gateway.links.consumer import Consumer


def post_acks(consumers: Collection[Consumer], post: Callable[[BusMessage], None]) -> None:
    """Post what consumers have settled, in their order; they have nothing settled then.

    Args:
        consumers: them.
        post: posts a message.
    """
    if len(consumers) == 1:
        (consumer,) = consumers
        post(Ack(consumer.number, consumer.settled))
        consumer.settled = []
        return
    acks = Acks([], [], [])
    for consumer in consumers:
        settled = consumer.settled
        if len(settled) == 1:
            start, end = settled[0]
            acks.consumers.append(consumer.number)
            acks.starts.append(start)
            acks.ends.append(end)
            settled.clear()
            if len(acks.ends) == COLUMN_ENTRIES_MAX:
                post(acks)
                acks = Acks([], [], [])
        else:
            if acks.consumers:
                post(acks)
                acks = Acks([], [], [])
            post(Ack(consumer.number, settled))
            consumer.settled = []
    if acks.consumers:
        post(acks)
