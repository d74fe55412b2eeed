"""One prefetch for all consumers of a channel; what comes beyond it waits here, in the order it came.

Each consumer's shard knows its own limit alone, and every one of them may use up the whole of the channel's: so more
may come than there is room for. It waits until something is settled, and counts as held by its consumer meanwhile.
Consumers without acknowledgements take no room, but get nothing while there is none, as in RabbitMQ; what waits for
them is held by their shard until it is handed out, and so returns to its queue should the channel close.

A channel that has had no room for a while tells the shards of its consumers to send nothing until it has, so that other
consumers of their queues get what comes there. A channel that is busy has room again sooner, and tells nothing.
"""

from collections import deque
from typing import Final

import msgspec

from shardmq.bus.messages.shard import Delivered
from shardmq.gateway.links.consumer import Consumer
from shardmq.message.record_batch import record_ends

PAUSE_SECONDS: Final = 0.1
"""Without room for so long, a channel's consumers are paused: their shards hear of that ten times a second at most."""

PAUSED: Final = -1
"""The prefetch of a consumer that is to get nothing, as its shard is told."""


class SharedPrefetch:
    """The limit of what a channel's consumers hold together, and what waits for room within it.

    Args:
        limit: how many messages, at least 1.

    Attributes:
        is_paused: whether the consumers are to get nothing.
        is_watched: whether there was no room, and this will be checked again in a while.
    """

    __slots__ = ("_waiting", "is_paused", "is_watched", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_paused = self.is_watched = False
        self._waiting: deque[tuple[Consumer, int, Delivered]] = deque()  # with the life of its link

    @property
    def has_waiting(self) -> bool:
        """Whether messages wait for room."""
        return bool(self._waiting)

    def put(self, consumer: Consumer, delivered: Delivered) -> None:
        """Add messages that have come."""
        self._waiting.append((consumer, consumer.link.life, delivered))

    def take(self, room: int | None) -> tuple[Consumer, Delivered] | None:
        """Take the next messages that their shard has not lost meanwhile.

        Args:
            room: how many at most, but for a consumer that takes no room; None for all.

        Returns:
            None where there are none.
        """
        waiting = self._waiting
        while waiting and (room is None or room > 0):
            consumer, life, delivered = waiting.popleft()
            if life != consumer.link.life:
                continue
            if room is not None and not consumer.auto_ack and delivered.batch.count > room:
                delivered, rest = _split(delivered, room)
                waiting.appendleft((consumer, life, rest))
            return consumer, delivered
        return None

    def drop(self, consumer: Consumer, start: int = 0, end: int | None = None) -> list[Delivered]:
        """Drop a consumer's messages [start, end); returns those that its shard has not lost."""
        kept: deque[tuple[Consumer, int, Delivered]] = deque()
        dropped: list[Delivered] = []
        for whose, life, delivered in self._waiting:
            first, last = delivered.first, delivered.first + delivered.batch.count
            low, high = max(first, start), last if end is None else min(last, end)
            if whose is not consumer or low >= high:
                kept.append((whose, life, delivered))
                continue
            if first < low:
                head, delivered = _split(delivered, low - first)
                kept.append((whose, life, head))
            if high < last:
                delivered, tail = _split(delivered, high - low)
                kept.append((whose, life, tail))
            if life == consumer.link.life:
                dropped.append(delivered)
        self._waiting = kept
        return dropped


def _split(delivered: Delivered, count: int) -> tuple[Delivered, Delivered]:
    """The first `count` messages, and the others."""
    batch = delivered.batch
    place = record_ends(batch.records, count)[-1]
    replace = msgspec.structs.replace
    head = replace(batch, count=count, records=batch.records[:place])
    tail = replace(batch, serial=batch.serial + count, count=batch.count - count, records=batch.records[place:])
    return replace(delivered, batch=head), replace(delivered, first=delivered.first + count, batch=tail)
