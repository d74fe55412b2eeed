"""Shares of the processor that the broker's processes have."""

from typing import Any, Final

LOOK_SECONDS: Final = 1.0
"""Looks that come sooner after one another are answered with the shares found before."""

_Process = tuple[str, int]
"""Its host and its number there: several hosts number their processes alike."""


class ProcessorShares:
    """Shares of a core, from the processor times of two looks.

    Whoever looks first is told of none.
    """

    def __init__(self) -> None:
        self._seen: dict[_Process, tuple[float, float]] = {}
        self._shares: dict[_Process, float] = {}

    def take(self, rows: list[dict[str, Any]], now: float) -> None:
        """Add `cpu_percent` to each row; None where a process is seen for the first time."""
        for row in rows:
            process, seconds = _process(row), row["cpu_seconds"]
            at, before = self._seen.get(process, (0.0, -1.0))
            if before < 0:
                self._seen[process] = now, seconds
            elif now - at >= LOOK_SECONDS:
                self._shares[process] = round(100 * (seconds - before) / (now - at), 1)
                self._seen[process] = now, seconds
            row["cpu_percent"] = self._shares.get(process)
        gone = self._seen.keys() - {_process(row) for row in rows}
        for process in gone:
            del self._seen[process]
            self._shares.pop(process, None)


def _process(row: dict[str, Any]) -> _Process:
    return row.get("host", ""), row["pid"]
