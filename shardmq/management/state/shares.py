"""Shares of the processor that the broker's processes have."""

from typing import Any, Final

LOOK_SECONDS: Final = 1.0
"""Looks that come sooner after one another are answered with the shares found before."""


class ProcessorShares:
    """Shares of a core, from the processor times of two looks.

    Whoever looks first is told of none.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}
        self._shares: dict[int, float] = {}

    def take(self, rows: list[dict[str, Any]], now: float) -> None:
        """Add `cpu_percent` to each row; None where a process is seen for the first time."""
        for row in rows:
            pid, seconds = row["pid"], row["cpu_seconds"]
            at, before = self._seen.get(pid, (0.0, -1.0))
            if before < 0:
                self._seen[pid] = now, seconds
            elif now - at >= LOOK_SECONDS:
                self._shares[pid] = round(100 * (seconds - before) / (now - at), 1)
                self._seen[pid] = now, seconds
            row["cpu_percent"] = self._shares.get(pid)
        gone = self._seen.keys() - {row["pid"] for row in rows}
        for pid in gone:
            del self._seen[pid]
            self._shares.pop(pid, None)
