"""How often each of some messages was delivered in vain, kept by ranges: most were not, and others were together."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter

Counted = tuple[int, int, int]
"""Numbers [start, end) and their count."""

_end = itemgetter(1)


class DeliveryCounts:
    """Counts of numbers; all that are not in it have 0.

    Args:
        counted: ranges with their counts, in rising order.
    """

    __slots__ = ("_counted",)

    def __init__(self, counted: Iterable[Counted] = ()) -> None:
        self._counted: list[Counted] = list(counted)

    def __iter__(self) -> Iterator[Counted]:
        return iter(self._counted)

    def __bool__(self) -> bool:
        return bool(self._counted)

    def pieces(self, start: int, end: int) -> list[Counted]:
        """Return all of [start, end), in ranges of equal counts."""
        found: list[Counted] = []
        counted = self._counted
        place = bisect_left(counted, start + 1, key=_end)
        while start < end:
            first, stop, count = counted[place] if place < len(counted) else (end, end, 0)
            if start < first:
                first = min(first, end)
                found.append((start, first, 0))
                start = first
            elif start < end:
                stop = min(stop, end)
                found.append((start, stop, count))
                start = stop
                place += 1
        return found

    def add(self, start: int, end: int) -> list[Counted]:
        """Count [start, end) once more; returns them with their counts."""
        raised = [(first, stop, count + 1) for first, stop, count in self.pieces(start, end)]
        self._replace(start, end, raised)
        return raised

    def remove(self, start: int, end: int) -> None:
        """Forget [start, end)."""
        self._replace(start, end, [])

    def _replace(self, start: int, end: int, new: list[Counted]) -> None:
        counted = self._counted
        low = bisect_left(counted, start, key=_end)  # the neighbours that touch are taken in, to be joined
        high = low
        while high < len(counted) and counted[high][0] <= end:
            high += 1
        old = counted[low:high]
        left = [(first, min(stop, start), count) for first, stop, count in old if first < start]
        right = [(max(first, end), stop, count) for first, stop, count in old if stop > end]
        joined: list[Counted] = []
        for first, stop, count in left + new + right:
            if joined and joined[-1][1:] == (first, count):
                joined[-1] = (joined[-1][0], stop, count)
            else:
                joined.append((first, stop, count))
        counted[low:high] = joined
