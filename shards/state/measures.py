"""What a shard measures of itself: passes, commits, flushes of the disk."""

from typing import Any

from shardmq.runtime.statistics.histograms import TimeHistogram


class Measures:
    """Times and numbers, since start.

    Attributes:
        passes: in which something came.
        events: what came in them.
        pass_seconds: how long they took.
    """

    __slots__ = ("events", "pass_seconds", "passes")

    def __init__(self) -> None:
        self.passes = self.events = 0
        self.pass_seconds = TimeHistogram()

    def ended(self, events: int, seconds: float) -> None:
        """Count a pass."""
        self.passes += 1
        self.events += events
        self.pass_seconds.add(seconds)

    def table(self) -> dict[str, Any]:
        """Return them as statistics carry them."""
        return {"passes": self.passes, "events": self.events, "pass_seconds": self.pass_seconds.table()}
