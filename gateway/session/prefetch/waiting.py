"""The limit of what a channel's consumers hold together, and what waits for room within it."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from shardmq.bus.messages.shard import Delivered
from shardmq.gateway.links.consumer import Consumer
from shardmq.message.record_batch import record_ends
from shardmq.ranges import RangeSet

WAIT_PAUSES: Final = 10
"""What would be handed out in so many pauses, at the pace of the last one, does not wait long."""


class SharedPrefetch:
    """The limit of what a channel's consumers hold together, and what waits for room within it.

    Args:
        limit: how many messages, at least 1.

    Attributes:
        is_paused: whether the consumers are to get nothing; where it `is_resuming`, those that are not `first`.
        is_resuming: whether there is room since a moment ago, and shards know of no more than that.
        is_watched: whether there was no room, or little, and this will be checked again in a while.
        first: consumers whose messages went back, in the order in which those had waited.
        unheard: those of them whose shards have not answered yet.
        handed_on: messages that have waited and were handed out.
    """

    __slots__ = ("_waiting", "first", "handed_on", "is_paused", "is_resuming", "is_watched", "limit", "unheard")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.is_paused = self.is_resuming = self.is_watched = False
        self.first: dict[Consumer, None] = {}
        self.unheard: set[Consumer] = set()
        self.handed_on = 0
        self._waiting: deque[tuple[Consumer, int, Delivered]] = deque()  # with the life of its link

    @property
    def is_for_first(self) -> bool:
        """Whether there is room again, for now for those consumers alone that come first."""
        return self.is_paused and self.is_resuming

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
            self.handed_on += delivered.batch.count
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

    def drop_all(self, *, with_unasked: bool) -> dict[Consumer, list[Delivered]]:
        """Drop all messages.

        Args:
            with_unasked: whether with those of consumers without acknowledgements, which wait on else.

        Returns:
            By consumer, in the order in which they have waited, those that their shards have not lost.
        """
        kept: deque[tuple[Consumer, int, Delivered]] = deque()
        dropped: dict[Consumer, list[Delivered]] = {}
        for consumer, life, delivered in self._waiting:
            if consumer.auto_ack and not with_unasked:
                kept.append((consumer, life, delivered))
            elif life == consumer.link.life:
                dropped.setdefault(consumer, []).append(delivered)
        self._waiting = kept
        return dropped

    def waits_long(self, handed_on: int) -> bool:
        """Whether what waits would wait long, at the pace since so many messages were handed out."""
        waiting = sum([delivered.batch.count for *_, delivered in self._waiting])
        return waiting > WAIT_PAUSES * (self.handed_on - handed_on)


def numbers_of(messages: Sequence[Delivered]) -> list[tuple[int, int]]:
    """The numbers of messages, as ranges in rising order."""
    return list(RangeSet([(each.first, each.first + each.batch.count) for each in messages]))


def _split(delivered: Delivered, count: int) -> tuple[Delivered, Delivered]:
    """The first `count` messages, and the others."""
    batch = delivered.batch
    place = record_ends(batch.records, count)[-1]
    replace = msgspec.structs.replace
    head = replace(batch, count=count, records=batch.records[:place])
    tail = replace(batch, serial=batch.serial + count, count=batch.count - count, records=batch.records[place:])
    return replace(delivered, batch=head), replace(delivered, first=delivered.first + count, batch=tail)
