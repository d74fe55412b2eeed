"""Rates, from two looks at counters.

Whoever counts looks at its counters every SAMPLE_SECONDS, at those alone that may have changed. So a rate is that of
the last whole interval, and what nothing happens to has none.
"""

from collections.abc import Iterable
from typing import Final

SAMPLE_SECONDS: Final = 5.0
"""Time between two looks."""

Counts = tuple[int, ...]
Rates = tuple[float, ...]


class Sample:
    """The newest look at some counters.

    Args:
        at: when the look before was, or should have been: monotonic seconds.
        counts: what there was then.

    Attributes:
        counts: as they were.
        rates: of each, a second.
        moved_at: when one of them changed last.
    """

    __slots__ = ("_at", "counts", "moved_at", "rates")

    def __init__(self, at: float, counts: Counts) -> None:
        self._at = self.moved_at = at
        self.counts = counts
        self.rates: Rates = (0.0,) * len(counts)

    def take(self, now: float, counts: Counts) -> bool:
        """Look again; returns whether anything has changed since, or still counts as changing."""
        seconds = now - self._at
        if seconds <= 0:
            return True
        self._at = now
        if counts == self.counts:
            had_rates = any(self.rates)
            self.rates = (0.0,) * len(counts)
            return had_rates
        self.rates = tuple([(new - old) / seconds for new, old in zip(counts, self.counts, strict=True)])
        self.counts = counts
        self.moved_at = now
        return True


def add(sums: list[int], counts: Iterable[int]) -> None:
    """Add counts to sums, one by one."""
    for place, count in enumerate(counts):
        sums[place] += count


def named(names: tuple[str, ...], values: Iterable[float]) -> dict[str, float]:
    """Values by name; rates are rounded to what can be told of them."""
    return {
        name: value if isinstance(value, int) else round(value, 3) for name, value in zip(names, values, strict=True)
    }
