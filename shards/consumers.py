"""Consumers, their credit, and whose turn it is."""

from typing import Final

from shardmq.bus.link import Peer
from shardmq.bus.messages import Delivered
from shardmq.limits import DELIVERY_CREDIT_SHARE
from shardmq.ranges import RangeSet
from shardmq.shards.queue import Queue

UNLIMITED: Final = 1 << 62
"""The credit of a consumer without a prefetch."""


class Consumer:
    """Who gets messages of one queue: a consumer, or a client of basic.get, which only holds what it got.

    Attributes:
        peer: the gateway it is at.
        number: the gateway's number for it.
        queue: whose messages it gets.
        prefetch: how many it may hold unacked; 0 is no limit.
        auto_ack: whether messages are done with as they go out.
        window: bytes that may be under way to it.
        room: bytes of it that are free now; below 0 after a message larger than the window.
        held: numbers of the messages it holds unacked.
    """

    __slots__ = ("auto_ack", "held", "number", "peer", "prefetch", "queue", "room", "window")

    def __init__(self, peer: Peer, number: int, queue: Queue, prefetch: int, auto_ack: bool, window: int) -> None:
        self.peer = peer
        self.number = number
        self.queue = queue
        self.prefetch = prefetch
        self.auto_ack = auto_ack
        self.window = window
        self.room = window
        self.held = RangeSet()

    def credit(self) -> int:
        """How many messages it may get now.

        None while less than a quarter of the window is free: slivers cut off large runs cost more than they bring, and
        what is under way will give room.
        """
        if self.room * 4 < self.window:
            return 0
        return self.prefetch - self.held.count if self.prefetch else UNLIMITED

    def is_clear(self) -> bool:
        """Whether nothing may be under way to it, so that a message larger than the window can go by itself.

        What is missing is then less than what the gateway keeps to itself before it gives credit back.
        """
        return (self.window - self.room) * DELIVERY_CREDIT_SHARE < self.window

    def release(self, start: int, end: int) -> list[tuple[int, int]]:
        """Take numbers out of what it holds; returns those it really held."""
        if start >= end:
            return []
        parts = self.held.within(start, end)
        self.held.remove(start, end)
        return parts


class Ring:
    """The consumers of a queue, in the order of their turns."""

    __slots__ = ("_consumers", "_queue")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._consumers: list[Consumer] = []

    def __len__(self) -> int:
        return len(self._consumers)

    def join(self, consumer: Consumer) -> None:
        """One more, last in turn."""
        self._consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """One less, if it is in."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def deliver(self) -> None:
        """Hand out what is ready to those with credit, in turn and in equal shares."""
        queue = self._queue
        while ready := queue.ready:
            able = [consumer for consumer in self._consumers if consumer.credit() > 0]
            if not able:
                return
            share = -(-ready // len(able))
            served = [consumer for consumer in able if self._serve(consumer, share)]
            if not served:
                return
            if len(self._consumers) > 1:
                self._consumers = [other for other in self._consumers if other not in served] + served

    def _serve(self, consumer: Consumer, share: int) -> bool:
        queue = self._queue
        parcels = queue.take(min(share, consumer.credit()), consumer.room, consumer.is_clear())
        post = consumer.peer.post
        for first, redelivered, deliveries, run in parcels:
            end = first + run.count
            consumer.room -= len(run.records)
            if consumer.auto_ack:
                queue.settle([(first, end)])
            else:
                consumer.held.add(first, end)
            post(Delivered(consumer.number, first, redelivered, run, deliveries))
        return bool(parcels)
