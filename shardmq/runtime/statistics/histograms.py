"""How long something took, or how large it was, how often."""

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

POWERS: Final = 36
"""Buckets of a `TimeHistogram`: up to 2^34 µs, which are four hours and three quarters, and one above."""

SIZE_BOUNDS: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
"""Upper bounds of the buckets of message sizes, in bytes; RabbitMQ's."""


class TimeHistogram:
    """Times in buckets that end at powers of two of a microsecond: to find one takes no search.

    Attributes:
        counts: by the number of bits of the time in microseconds.
        seconds: all of them together.
    """

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * POWERS
        self.seconds = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count a time, `count` times."""
        power = int(seconds * 1e6).bit_length() if seconds > 0 else 0
        self.counts[power if power < POWERS else -1] += count
        self.seconds += seconds * count

    def table(self) -> dict[str, Any]:
        """It as lists carry it: `counts` by bucket and `sum` in seconds."""
        return {"counts": list(self.counts), "sum": round(self.seconds, 6)}


class SizeHistogram:
    """Sizes of messages' bodies in RabbitMQ's buckets; they are noted first, and counted many at a time.

    Attributes:
        noted: sizes that are not in `counts` yet: to append to it is all that a message costs where it is published.
    """

    __slots__ = ("_bytes", "_counts", "noted")

    def __init__(self) -> None:
        self._counts = [0] * (len(SIZE_BOUNDS) + 1)
        self._bytes = 0
        self.noted: list[int] = []

    def add(self, size: int, count: int) -> None:
        """Count `count` messages with bodies of `size` bytes each."""
        self._counts[bisect_left(SIZE_BOUNDS, size)] += count
        self._bytes += size * count

    def settle(self) -> None:
        """Count what was noted: some 30 ns a message where sizes come again, as they do."""
        noted, self.noted = self.noted, []
        for size, count in Counter(noted).items():
            self.add(size, count)

    def table(self) -> dict[str, Any]:
        """It as lists carry it: `counts` by bucket, the last for what is above all `bounds`, and `sum` in bytes."""
        self.settle()
        return {"counts": list(self._counts), "sum": self._bytes, "bounds": list(SIZE_BOUNDS)}
