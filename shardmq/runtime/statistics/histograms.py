"""How long something took, or how large it was, how often."""

from bisect import bisect_left
from typing import Any, Final

POWERS: Final = 36
"""Buckets of a `TimeHistogram`: up to 2^34 µs, which are four hours and three quarters, and one above."""

SIZE_BOUNDS: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000)
"""Upper bounds of the buckets of message sizes, in bytes; RabbitMQ's."""

FRAMING: Final = (4, 5, 5, 7, 7, 7, 7, 7, 7)
"""Bytes around the body in the record of a message without properties, by bucket: two heads and the body's length."""

RECORD_BOUNDS: Final = tuple(bound + around for bound, around in zip(SIZE_BOUNDS, FRAMING, strict=False))
"""Of records, which are what is counted: to look into each for its body would cost each message."""


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
    """Sizes of messages' bodies in RabbitMQ's buckets; properties, where a message has any, count with it.

    Attributes:
        counts: by bucket; the last is for what is above all bounds.
        bytes: of all records together.
    """

    __slots__ = ("bytes", "counts")

    def __init__(self) -> None:
        self.counts = [0] * (len(SIZE_BOUNDS) + 1)
        self.bytes = 0

    def add(self, size: int, count: int) -> None:
        """Count `count` messages, whose records have `size` bytes together."""
        self.counts[bisect_left(RECORD_BOUNDS, size // count)] += count
        self.bytes += size

    def table(self) -> dict[str, Any]:
        """It as lists carry it: `counts` by bucket and `sum` in bytes, without what is around bodies."""
        around = sum([count * each for count, each in zip(self.counts, FRAMING, strict=True)])
        return {"counts": list(self.counts), "sum": max(0, self.bytes - around)}
