"""The rules of the management process, applied once over a command's own connection."""

import asyncio
from typing import TYPE_CHECKING, Any

from shardmq.client.api.url import parse
from shardmq.cmd.check.result import Measure, Result, Status
from shardmq.management.findings.evaluate import findings_at_once
from shardmq.management.findings.finding import ERROR

if TYPE_CHECKING:
    from shardmq.client.api.statistics import ListQuery
    from shardmq.client.sync.connection import Connection

SHOWN: int = 5
"""Findings that the sentence names."""


class _Awaited:
    """A connection that blocks, for those who await; nothing else runs meanwhile."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    async def stats_list(self, noun: str, query: "ListQuery") -> dict[str, Any]:
        """Rows of a list."""
        return self._connection.stats_list(noun, query)

    async def stats_get(self, noun: str, vhost: str, name: str) -> dict[str, Any]:
        """One row with all that is known."""
        return self._connection.stats_get(noun, vhost, name)

    async def stats_overview(self, vhost: str | None = None, *, is_detailed: bool = False) -> dict[str, Any]:
        """Sums of the broker."""
        return self._connection.stats_overview(vhost, is_detailed=is_detailed)

    async def topology(self, noun: str) -> list[dict[str, Any]]:
        """A list without statistics."""
        return self._connection.topology(noun)


def findings_result(connection: "Connection", url: str, after: float | None) -> Result:
    """What is wrong: errors are critical.

    Args:
        connection: of whoever asks.
        url: of the broker.
        after: seconds something has to have lasted; None for what each rule says.
    """
    address = parse(url)
    rows = asyncio.run(findings_at_once(_Awaited(connection), f"{address.host}:{address.port}", after))
    errors = sum(row["severity"] == ERROR for row in rows)
    status = Status.CRITICAL if errors else Status.WARNING if rows else Status.OK
    said = [f"{row['title']} ({row['rule']})" for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        said.append(f"and {len(rows) - SHOWN} more")
    measures = (Measure("errors", errors), Measure("warnings", len(rows) - errors))
    return Result("findings", status, "; ".join(said) or "nothing is wrong that the broker can see", measures)
