"""Answers on the short way: from a responder to the consumer of a reply queue, where both are clients of this gateway.

    responder ─► gateway ─┬───────────────────────────► requester
                          └─► shard ─► gateway ───────►   where the requester is elsewhere, or behind

A reply queue is transient, and its only consumer settles what it gets at once: its shard would pass an answer on and
keep nothing of it. Two of the six hops of a request and its answer are saved so, and two turns of a shard.

Answers of one responder stay in order: once one goes by the shard, as its requester is slow to read, all do until that
one has come back.
"""

from typing import Final, Protocol

from shardmq.gateway.links.consumer import Consumer
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import REPLY_QUEUES, Queue

_FOR_EVER: Final = -1


class DirectReceiver(Protocol):
    """Whoever takes answers: a channel's consumers."""

    def deliver_directly(self, consumer: Consumer, batch: RecordBatch) -> bool:
        """Take messages that come past the shard; returns whether there is room for them now."""


class _Taker:
    """The consumer of a reply queue.

    Attributes:
        consumer: it.
        receiver: its channel's consumers.
        is_started: whether its client has heard so.
        awaited: serial of the last message that went by the shard and has not come back; 0 where all have.
    """

    __slots__ = ("awaited", "consumer", "is_started", "receiver")

    def __init__(self, consumer: Consumer, receiver: DirectReceiver) -> None:
        self.consumer = consumer
        self.receiver = receiver
        self.is_started = False
        self.awaited = 0

    def take(self, batch: RecordBatch) -> bool:
        """Take answers that may come directly; returns whether they may."""
        return self.is_started and not self.awaited and self.receiver.deliver_directly(self.consumer, batch)


class DirectReplies:
    """The consumers of reply queues among this gateway's clients.

    Args:
        origin: of the messages that are published here.
    """

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._takers: dict[int, _Taker] = {}

    def add(self, queue: Queue, consumer: Consumer, receiver: DirectReceiver) -> bool:
        """Note a consumer, if its queue is one of replies; returns whether it is.

        A second consumer of the same queue has both served by the shard.
        """
        if not queue.name.startswith(REPLY_QUEUES):
            return False
        taken = self._takers.get(queue.id)
        if taken is None:
            self._takers[queue.id] = _Taker(consumer, receiver)
        else:
            taken.awaited = _FOR_EVER
        return True

    def start(self, consumer: Consumer) -> None:
        """Deliver directly from now on, where it is a consumer of replies."""
        taker = self._takers.get(consumer.queue)
        if taker is not None and taker.consumer is consumer:
            taker.is_started = True

    def remove(self, consumer: Consumer) -> None:
        """Forget a consumer, if it is known."""
        taker = self._takers.get(consumer.queue)
        if taker is not None and taker.consumer is consumer:
            del self._takers[consumer.queue]

    def deliver(self, queues: tuple[int, ...], batch: RecordBatch, is_alone: bool) -> bool:
        """Pass answers on to the consumer of their queue.

        Args:
            queues: ids of the reply queues that they go to.
            batch: the answers; time, origin and serial are written into it.
            is_alone: whether they go to one queue and no other.

        Returns:
            Whether that was done; if not, they are to go by the shard.
        """
        takers = [self._takers[queue] for queue in queues if queue in self._takers]
        if is_alone and takers and takers[0].take(batch):
            return True
        for taker in takers:
            if taker.awaited != _FOR_EVER:
                taker.awaited = batch.serial + batch.count - 1
        return False

    def arrived(self, consumer: Consumer, batch: RecordBatch) -> None:
        """Note what has come by the shard: behind the last of it, the short way is open again."""
        taker = self._takers.get(consumer.queue)
        if taker is not None and batch.origin == self._origin and 0 <= taker.awaited - batch.serial < batch.count:
            taker.awaited = 0
