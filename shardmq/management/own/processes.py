"""The processes of the broker, with their share of the processor since the last look."""

import time
from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right

LOOK_SECONDS: Final = 1.0
"""Looks that come sooner after one another are answered with the shares found before."""


class ProcessorShares:
    """Shares of a core, from the processor times of two looks.

    Whoever looks first is told of none.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[float, float]] = {}
        self._shares: dict[int, float] = {}

    def take(self, rows: list[Row], now: float) -> None:
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


_shares: Final = ProcessorShares()


async def list_processes(call: Call) -> Answer:
    """The processes of the broker."""
    status = await (await call.caller.administration()).status()
    rows = status["processes"]
    _shares.take(rows, time.monotonic())
    return Answer(rows)


ENDPOINTS: Final = (
    Endpoint("GET", "/shardmq/processes", list_processes, Right.MONITORING, "The processes of the broker.", list[Row]),
)
"""What this file answers."""
