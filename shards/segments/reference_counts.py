"""How many segments refer to each shared body, kept by ranges: neighbours mostly go to the same queues."""

from collections.abc import Iterable
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Self

from shardmq.ranges import RangeSet
from shardmq.shards.segments.delivery_counts import DeliveryCounts

_number = itemgetter(0)


class ReferenceCounts(DeliveryCounts):
    """Counts of numbers; all that are not in it have 0."""

    __slots__ = ()

    @classmethod
    def of(cls, sets: Iterable[RangeSet]) -> Self:
        """Count how many of some sets each number is in."""
        steps = sorted([step for ranges in sets for start, end in ranges for step in ((start, 1), (end, -1))])
        changes = [(number, sum([change for _, change in group])) for number, group in groupby(steps, key=_number)]
        counts = accumulate([change for _, change in changes])
        found = [(start, end, count) for ((start, _), (end, _)), count in zip(pairwise(changes), counts, strict=False)]
        joined: list[tuple[int, int, int]] = []
        for start, end, count in found:
            if joined and joined[-1][1:] == (start, count):
                joined[-1] = (joined[-1][0], end, count)
            elif count:
                joined.append((start, end, count))
        return cls(joined)

    def __contains__(self, number: int) -> bool:
        return self.pieces(number, number + 1)[0][2] > 0

    def refer(self, start: int, end: int, times: int) -> None:
        """Count [start, end) so many times more."""
        self._replace(start, end, [(first, stop, count + times) for first, stop, count in self.pieces(start, end)])

    def release(self, start: int, end: int, times: int) -> list[tuple[int, int]]:
        """Count [start, end) so many times less; returns those that nothing refers to any more."""
        before = self.pieces(start, end)
        assert min([count for _, _, count in before]) >= times, f"bodies {start} to {end} have fewer references"
        self._replace(start, end, [(first, stop, count - times) for first, stop, count in before if count > times])
        return [(first, stop) for first, stop, count in before if count == times]
