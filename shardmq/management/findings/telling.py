"""Findings as events: each that begins or ends is published once, while anybody listens to the broker's events."""

from collections.abc import Mapping
from typing import Any, Final

from shardmq.client.aio.connection import Connection
from shardmq.limits import FINDINGS_TOLD_MAX
from shardmq.management.findings.evaluate import findings
from shardmq.management.findings.looks import Looks

Row = dict[str, Any]

FACTS: Final = ("rule", "severity", "vhost", "name", "title", "evidence", "advice", "command", "since")
"""What is told of a finding, and its numbers behind it."""


class FindingEvents:
    """Tells of findings that begin or end.

    What is found when it begins to tell counts as begun then: nobody knows what was told before.
    """

    def __init__(self) -> None:
        self._told: Mapping[tuple[str, str, str], Row] = {}

    async def look(self, connection: Connection, looks: Looks, address: str) -> None:
        """Look, and tell what is new.

        Args:
            connection: in no virtual host, of somebody who sees everything.
            looks: theirs.
            address: of the broker, as host:port, for command lines.
        """
        if not await connection.findings_tell(()):
            self._told = {}
            return
        now = {(row["rule"], row["vhost"], row["name"]): row for row in await findings(connection, looks, address)}
        begun = [(True, _facts(row)) for key, row in now.items() if key not in self._told]
        ended = [(False, _facts(row)) for key, row in self._told.items() if key not in now]
        news = [*begun, *ended]
        for place in range(0, len(news), FINDINGS_TOLD_MAX):
            await connection.findings_tell(news[place : place + FINDINGS_TOLD_MAX])
        self._told = now


def _facts(row: Row) -> Row:
    return {**{name: row[name] for name in FACTS}, "numbers": row["numbers"]}
