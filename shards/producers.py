"""Who published what to a queue before: numbers of producers' messages, so that one sent again is stored once.

A producer numbers its messages upwards and sends them in order; what a connection's end left unconfirmed it sends
again, with the same numbers. Each queue keeps what it has seen of each producer as ranges.
"""

from collections import OrderedDict
from typing import Final

from shardmq.ranges import RangeSet

RANGES_MAX: Final = 64
"""Ranges kept of one producer. Beyond, all up to the end of the second is taken as seen: a producer that spreads its
messages over queues leaves a gap at each that went elsewhere."""

PRODUCERS_MAX: Final = 4096
"""Producers a queue remembers; who has published least recently is forgotten first."""


class Producers:
    """The producers of one queue and the numbers it has of them."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: OrderedDict[int, RangeSet] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def load(self, producer: int, ranges: list[tuple[int, int]]) -> None:
        """What was stored of one."""
        self._seen[producer] = RangeSet(ranges)

    def unseen(self, producer: int, start: int, end: int) -> list[tuple[int, int]] | None:
        """The parts of [start, end) that this queue does not have yet; None for all of it, as it nearly always is."""
        seen = self._seen.get(producer)
        if seen is None or start >= seen.end:
            return None
        return seen.gaps(start, end)

    def saw(self, producer: int, start: int, end: int) -> RangeSet:
        """Numbers [start, end) are in the queue; returns all that are, to be stored."""
        seen = self._seen.get(producer)
        if seen is None:
            seen = self._seen[producer] = RangeSet()
        else:
            self._seen.move_to_end(producer)
        seen.add(start, end)
        if len(seen) > RANGES_MAX:
            seen.fill(2)
        return seen

    def surplus(self) -> int | None:
        """Take out one that is to be forgotten, if there are too many."""
        return self._seen.popitem(last=False)[0] if len(self._seen) > PRODUCERS_MAX else None

    def names(self) -> list[int]:
        """All of them."""
        return list(self._seen)
