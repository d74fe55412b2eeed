"""Who published what to a queue before: numbers of producers' messages, so that one sent again is stored once.

A producer numbers its messages upwards and sends them in order; what a connection's end left unconfirmed it sends
again, with the same numbers. Each queue keeps what it has seen of each producer as ranges, but not for ever: below a
horizon, it does not know any more. What the SDK's channels send again from there was stored, or went elsewhere, as they
send again before all else. Programs that number their messages themselves may come with anything, and are told.

Queues are producers of their dead letters (dead_letter_outbox.py); those come in any order, an old one after a million
others. They are never taken for stored because they are old: the queue says which numbers will not come any more, and
beyond many ranges the lowest are forgotten, and not filled up.
"""

from collections import OrderedDict
from typing import Final

from shardmq.limits import FRAMED_PRODUCERS
from shardmq.shards.storage.entries import SequenceSet

PRODUCERS_MAX: Final = 4096
"""Producers a queue remembers; who has published least recently is forgotten first."""


class ProducerSequences:
    """The producers of one queue and the numbers it has of them.

    Attributes:
        seen: by producer; who has published least recently is first, as far as passes tell.
    """

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: OrderedDict[int, SequenceSet] = OrderedDict()

    def __len__(self) -> int:
        return len(self.seen)

    def load(self, producer: int, ranges: list[tuple[int, int]]) -> None:
        """What was stored of one."""
        self.seen[producer] = SequenceSet(producer, ranges)

    def unseen(self, producer: int, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that this queue does not have yet."""
        seen = self.seen.get(producer)
        return [(start, end)] if seen is None or start >= seen.end else seen.gaps(start, end)

    def saw(self, producer: int, start: int, end: int) -> SequenceSet:
        """Numbers [start, end) are in the queue; returns all that are."""
        seen = self.seen.get(producer)
        if seen is None:
            seen = self.seen[producer] = SequenceSet(producer)
        seen.add(start, end)
        seen.trim()
        return seen

    def gone(self, producer: int, ranges: list[tuple[int, int]]) -> None:
        """Numbers that never come again need not be told from those that are there."""
        seen = self.seen.get(producer)
        if seen is not None:
            for start, end in ranges:
                seen.add(start, end)

    def has_forgotten(self, producer: int, number: int) -> bool:
        """Whether nobody can say if that message of a program's own numbers was stored."""
        seen = self.seen.get(producer) if producer < FRAMED_PRODUCERS else None
        return seen is not None and number < seen.horizon

    def surplus(self) -> int | None:
        """Take out one that is to be forgotten, if there are too many."""
        return self.seen.popitem(last=False)[0] if len(self.seen) > PRODUCERS_MAX else None
