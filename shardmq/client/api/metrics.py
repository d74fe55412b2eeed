"""Counts of messages for the program's metrics: counted by the batch, reported a moment later."""

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

_log = logging.getLogger("shardmq.client")

NAMES: Final = (
    "published",
    "confirmed",
    "returned",
    "refused",
    "consumed",
    "acked",
    "nacked",
    "redelivered",
    "recovered",
)
"""What is counted: messages all, but for `recovered`, which are connections."""


Counter = Callable[[str, int], object]
"""Told (name, how many more)."""


class Metrics(Protocol):
    """What a program may hand in instead of a function: a method for each name."""

    def published(self, count: int, /) -> object:
        """Messages handed to the connection."""

    def confirmed(self, count: int, /) -> object:
        """Messages the broker has."""

    def returned(self, count: int, /) -> object:
        """Mandatory messages that no queue took."""

    def refused(self, count: int, /) -> object:
        """Messages the broker did not take."""

    def consumed(self, count: int, /) -> object:
        """Messages that came."""

    def acked(self, count: int, /) -> object:
        """Messages acked."""

    def nacked(self, count: int, /) -> object:
        """Messages nacked."""

    def redelivered(self, count: int, /) -> object:
        """Messages that came and had been delivered before."""

    def recovered(self, count: int, /) -> object:
        """Connections won back."""


def counter_of(metrics: Any) -> Counter:
    """A function that counts, of either kind of thing that a program may hand in.

    Raises:
        TypeError: it is neither.
    """
    if callable(metrics):
        counter: Counter = metrics
        return counter
    missing = [name for name in NAMES if not callable(getattr(metrics, name, None))]
    if missing:
        raise TypeError(
            f"metrics are a function of (name, count), or an object with a method for each of "
            f"{', '.join(NAMES)}; this {type(metrics).__name__} lacks {', '.join(missing)}"
        )

    def count(name: str, more: int) -> None:
        getattr(metrics, name)(more)

    return count


class MetricsCounter:
    """The counts that were not reported yet.

    Args:
        counter: the program's.
        due: called when counts begin to rise: `report` is wanted in REPORT_SECONDS.
    """

    __slots__ = ("_counter", "_counts", "_due", "_is_due")

    def __init__(self, counter: Counter, due: Callable[[], None]) -> None:
        self._counter = counter
        self._due = due
        self._counts: dict[str, int] = {}
        self._is_due = False

    def count(self, name: str, more: int) -> None:
        """Add to a count."""
        if more:
            self._counts[name] = self._counts.get(name, 0) + more
            if not self._is_due:
                self._is_due = True
                self._due()

    def take(self) -> dict[str, int]:
        """Take the counts, and begin again at zero."""
        counts, self._counts = self._counts, {}
        self._is_due = False
        return counts

    def report(self, counts: dict[str, int]) -> None:
        """Call the program's function with each count; what it raises is logged."""
        for name, more in counts.items():
            try:
                self._counter(name, more)
            except Exception:  # noqa: BLE001  the program's fault must not cost it the connection
                _log.exception("the metrics hook raised when it was told of %d %s", more, name)
