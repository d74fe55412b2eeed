"""What earlier looks saw, for rules that need more than one."""

import time
from collections.abc import Iterable
from typing import Any, Final

Row = dict[str, Any]

USUAL_SECONDS: Final = 600.0
"""What is usual is known after so long, and older looks weigh little."""


class Past:
    """Flushes of shards, usual rates of publishing and first unacked messages, of what the last look saw.

    Args:
        usual_seconds: after which what is usual is known.
    """

    def __init__(self, usual_seconds: float = USUAL_SECONDS) -> None:
        self._usual_seconds = usual_seconds
        self._flushes: dict[str, tuple[int, float]] = {}
        self._usual: dict[tuple[str, str], tuple[float, float]] = {}  # rate, and monotonic time of the first look
        self._unacked: dict[tuple[str, str], tuple[int, float]] = {}  # number, and monotonic time of the first look
        self._at = time.monotonic()

    def flushes(self, processes: Iterable[Row]) -> dict[str, tuple[int, float]]:
        """Flushes since the look before by process: how many, and seconds of all; remember these."""
        now = {
            row["process"]: (sum(times["counts"]), float(times["sum"]))
            for row in processes
            if (times := row.get("measures", {}).get("flush_seconds")) is not None
        }
        before, self._flushes = self._flushes, now
        return {
            name: (count - before[name][0], seconds - before[name][1])
            for name, (count, seconds) in now.items()
            if name in before and count >= before[name][0]
        }

    def usual(self, queues: Iterable[Row], now: float) -> dict[tuple[str, str], float]:
        """The usual rate of publishing of queues that were looked at for long enough; remember this look.

        Args:
            queues: with rates.
            now: monotonic seconds.
        """
        weight = min(1.0, max(0.0, now - self._at) / self._usual_seconds)
        before, self._usual, self._at = self._usual, {}, now
        known = {}
        for row in queues:
            key, rate = (row["vhost"], row["name"]), row["rates"]["publish"]
            usual, since = before.get(key, (rate, now))
            if now - since >= self._usual_seconds:
                known[key] = usual
            self._usual[key] = (usual + weight * (rate - usual), since)
        return known

    def unacked(self, queues: Iterable[Row], now: float) -> dict[tuple[str, str], float]:
        """Seconds that the first unacked message of queues has been the same; remember this look.

        Args:
            queues: with `first_unacked`.
            now: monotonic seconds.
        """
        before, self._unacked = self._unacked, {}
        for row in queues:
            key, number = (row["vhost"], row["name"]), row["first_unacked"]
            if number is not None:
                known = before.get(key)
                self._unacked[key] = known if known is not None and known[0] == number else (number, now)
        return {key: now - since for key, (_, since) in self._unacked.items() if key in before}
