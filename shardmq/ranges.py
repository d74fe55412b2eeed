"""Sets of whole numbers kept as ranges: what is acked, unacked, ready again. A queue in order costs one range."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

FEW: Final = 16
"""Up to so many ranges are put in or taken out one by one; each moves a part of the lists. More are merged at once."""


class RangeSet:
    """A set of integers as sorted, disjoint, non-touching half-open ranges [start, end).

    Adding at the end and removing at the front take constant time; anything else a binary search and a list move.
    """

    __slots__ = ("_ends", "_starts", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.count = 0
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        return len(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._starts == other._starts and self._ends == other._ends

    def __hash__(self) -> int:
        raise TypeError("a RangeSet changes; it has no hash")

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number < self._ends[place]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"

    def first(self) -> tuple[int, int]:
        """The lowest range; IndexError when empty."""
        return self._starts[0], self._ends[0]

    @property
    def end(self) -> int:
        """One past the highest number; 0 when empty."""
        return self._ends[-1] if self._ends else 0

    def extend(self, start: int, end: int) -> bool:
        """Put [start, end) in if it continues the highest range, which is quick; returns whether it does."""
        ends = self._ends
        if ends and ends[-1] == start:
            ends[-1] = end
            self.count += end - start
            return True
        return False

    def fill(self, count: int) -> None:
        """Put in everything from 0 to the end of the `count`-th range: they become one."""
        self.add(0, self._ends[count - 1])

    def add(self, start: int, end: int) -> int:
        """Put [start, end) in; returns how many numbers are new."""
        if start >= end:
            return 0
        starts, ends = self._starts, self._ends
        if not starts or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            self.count += end - start
            return end - start
        if start == ends[-1]:
            ends[-1] = end
            self.count += end - start
            return end - start
        low = bisect_left(ends, start)
        high = bisect_right(starts, end)
        held = 0
        if low < high:
            held = sum(ends[i] - starts[i] for i in range(low, high))
            start = min(start, starts[low])
            end = max(end, ends[high - 1])
        starts[low:high] = [start]
        ends[low:high] = [end]
        added = end - start - held
        self.count += added
        return added

    def remove(self, start: int, end: int) -> int:
        """Take [start, end) out; returns how many numbers were in."""
        starts, ends = self._starts, self._ends
        low = bisect_right(ends, start)
        if start >= end or low >= len(starts) or starts[low] >= end:
            return 0
        if starts[low] <= start and end <= ends[low]:
            return self._remove_within(low, start, end)
        high = bisect_left(starts, end)
        held = sum(ends[i] - starts[i] for i in range(low, high))
        left = [(starts[low], start)] if starts[low] < start else []
        right = [(end, ends[high - 1])] if ends[high - 1] > end else []
        kept = left + right
        removed = held - sum(stop - begin for begin, stop in kept)
        starts[low:high] = [begin for begin, _ in kept]
        ends[low:high] = [stop for _, stop in kept]
        self.count -= removed
        return removed

    def _remove_within(self, place: int, start: int, end: int) -> int:
        """Take [start, end) out of one range: 0.2 µs, where to look at several takes 1."""
        starts, ends = self._starts, self._ends
        if start > starts[place]:
            starts.insert(place + 1, end)
            ends.insert(place, start)
            place += 1
        else:
            starts[place] = end
        if starts[place] == ends[place]:
            del starts[place], ends[place]
        self.count -= end - start
        return end - start

    def take(self, start: int, end: int) -> list[tuple[int, int]]:
        """Take [start, end) out; returns what of it was in, as ranges in order. The beginning goes quickly."""
        starts, ends = self._starts, self._ends
        if starts and starts[0] == start and start < end <= ends[0]:
            if end == ends[0]:
                del starts[0], ends[0]
            else:
                starts[0] = end
            self.count -= end - start
            return [(start, end)]
        parts = self.within(start, end)
        self.remove(start, end)
        return parts

    def unite(self, ranges: list[tuple[int, int]]) -> int:
        """Put ranges in, which are in rising order and do not overlap; returns how many numbers are new."""
        if len(ranges) <= FEW:
            return sum([self.add(start, end) for start, end in ranges])
        low = bisect_left(self._ends, ranges[0][0])
        high = bisect_right(self._starts, ranges[-1][1])
        old = list(zip(self._starts[low:high], self._ends[low:high], strict=True))
        before = self.count
        joined: list[tuple[int, int]] = []
        for start, end in sorted([*old, *ranges]):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        self._replace(low, high, old, joined)
        return self.count - before

    def extract(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take out what is in these ranges, which are in rising order and do not overlap.

        Returns:
            The parts of the set that were in them, in order.
        """
        if len(ranges) <= FEW:
            parts = [part for start, end in ranges for part in self.within(start, end)]
            for start, end in parts:
                self.remove(start, end)
            return parts
        low = bisect_right(self._ends, ranges[0][0])
        high = bisect_left(self._starts, ranges[-1][1])
        old = list(zip(self._starts[low:high], self._ends[low:high], strict=True))
        parts = _common(old, ranges)
        self._replace(low, max(low, high), old, _without(old, parts))
        return parts

    def walk(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of the set inside [start, end), one by one: for the first few of many.

        The set must not change meanwhile.
        """
        starts, ends = self._starts, self._ends
        for place in range(bisect_right(ends, start), len(starts)):
            if starts[place] >= end:
                return
            yield max(start, starts[place]), min(end, ends[place])

    def within(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of the set inside [start, end), in order."""
        parts = []
        for place in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[place] >= end:
                break
            parts.append((max(start, self._starts[place]), min(end, self._ends[place])))
        return parts

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are not in the set, in order."""
        parts = []
        for begin, stop in self.within(start, end):
            if start < begin:
                parts.append((start, begin))
            start = stop
        if start < end:
            parts.append((start, end))
        return parts

    def between(self) -> list[tuple[int, int]]:
        """The gaps between its ranges, in order; quicker than `gaps`."""
        return list(zip(self._ends, self._starts[1:], strict=False))

    def clear(self) -> None:
        """Take everything out."""
        self._starts.clear()
        self._ends.clear()
        self.count = 0

    def _replace(self, low: int, high: int, old: list[tuple[int, int]], new: list[tuple[int, int]]) -> None:
        self._starts[low:high] = [start for start, _ in new]
        self._ends[low:high] = [end for _, end in new]
        self.count += sum([end - start for start, end in new]) - sum([end - start for start, end in old])


def _common(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is in both of two lists of rising ranges."""
    parts: list[tuple[int, int]] = []
    place = 0
    for start, end in right:
        while place < len(left) and left[place][1] <= start:
            place += 1
        reached = place
        while reached < len(left) and left[reached][0] < end:
            parts.append((max(start, left[reached][0]), min(end, left[reached][1])))
            reached += 1
        place = max(place, reached - 1)  # the last one may reach into the next range
    return parts


def _without(whole: list[tuple[int, int]], parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rising ranges less some parts of them, each within one of them."""
    left: list[tuple[int, int]] = []
    place = 0
    for start, end in whole:
        while place < len(parts) and parts[place][1] <= end:
            if start < parts[place][0]:
                left.append((start, parts[place][0]))
            start = parts[place][1]
            place += 1
        if start < end:
            left.append((start, end))
    return left
