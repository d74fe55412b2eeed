"""Rates and processor shares of a broker, from two looks at its running totals."""

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

RATES: Final = {"published": "publish_rate", "delivered": "deliver_rate", "acked": "ack_rate"}
"""A shard's running totals, and the rates that two looks at them give."""

Status = dict[str, Any]


class StatusWatch:
    """Looks at a broker, each with the rates since the look before.

    Args:
        connection: to the broker.
        interval: seconds between two looks.
    """

    def __init__(self, connection: "Connection", interval: float) -> None:
        self._connection = connection
        self._interval = interval
        self._last = self._look()

    def next(self) -> Status:
        """The state one interval later, with rates and CPU shares."""
        before_at, before = self._last
        time.sleep(max(0.0, before_at + self._interval - time.monotonic()))
        self._last = now_at, now = self._look()
        return with_rates(before, now, now_at - before_at)

    def _look(self) -> tuple[float, Status]:
        return time.monotonic(), self._connection.status()


def with_rates(before: Status, now: Status, seconds: float) -> Status:
    """The later of two looks, with `…_rate` (per second) in its queues and `cpu_percent` in its processes.

    A process that was restarted between the looks counts from zero; so does a queue that is new.
    """
    queues = {queue["id"]: queue for queue in before["queues"]}
    processes = {_key(process): process for process in before["processes"]}

    def risen(total: str, row: dict[str, Any], old: dict[str, Any]) -> float:
        gain = float(row[total] - old.get(total, 0))
        return (gain if gain >= 0 else float(row[total])) / seconds

    return {
        **now,
        "processes": [
            {**row, "cpu_percent": round(100 * risen("cpu_seconds", row, processes[_key(row)]), 1)}
            if _key(row) in processes
            else {**row, "cpu_percent": None}
            for row in now["processes"]
        ],
        "queues": [
            {**row, **{rate: round(risen(total, row, queues.get(row["id"], row)), 1) for total, rate in RATES.items()}}
            for row in now["queues"]
        ],
    }


def _key(process: dict[str, Any]) -> tuple[str | None, int]:
    """What no other process has: hosts count their processes alike."""
    return process.get("host"), process["pid"]
