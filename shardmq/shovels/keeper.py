"""Runs the shovels that the broker has parameters for, and reports their states."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from shardmq.client.aio.connection import Connection, connect
from shardmq.errors import ConnectionLost, InvalidRequest, ShardmqError
from shardmq.shovels.shovel import Shovel
from shardmq.topology.parameters.shovel import SHOVEL, read_shovel

LOOK_SECONDS: Final = 0.5
"""Between two looks at the parameters."""

REPORT_SECONDS: Final = 1.0
"""Between two reports of what has changed; every shovel makes it longer by a hundredth."""

REPEAT_SECONDS: Final = 5.0
"""Between two reports where nothing has changed: a gateway that starts knows no states."""

RETRY_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 15.0

_log = logging.getLogger(__name__)


class Keeper:
    """Runs shovels.

    Args:
        url: of the broker, of a user who is an administrator.
        here: returns the URL of this broker for a virtual host.
    """

    def __init__(self, url: str, here: Callable[[str], str]) -> None:
        self._url = url
        self._here = here
        self._shovels: dict[tuple[str, str], Shovel] = {}
        self._unreadable: dict[tuple[str, str], int] = {}
        self._reported: list[dict[str, Any]] | None = None
        self._report_at = self._repeat_at = 0.0
        self._fault = ""
        self._connection: Connection | None = None
        self._storing = asyncio.Lock()
        self._wanted = self._stored = 0

    async def run(self) -> None:
        """Run shovels for ever; a task of its own. They go on while the broker does not answer."""
        while True:
            try:
                connection = await connect(self._url, TIMEOUT_SECONDS, recovery=None, administrative=True)
                self._connection = connection
                try:
                    while True:
                        await self._look(connection)
                        self._fault = ""
                        await asyncio.sleep(LOOK_SECONDS)
                finally:
                    self._connection = None
                    await connection.close()
            except ShardmqError as fault:
                if fault.text != self._fault:
                    _log.warning("the broker's shovels cannot be read, or their states reported: %s", fault.text)
                self._fault = fault.text
            await asyncio.sleep(RETRY_SECONDS)

    async def store(self) -> None:
        """Have the broker store how far the shovels are: one report for all that ask for it meanwhile.

        Raises:
            ShardmqError: the broker does not answer.
        """
        self._wanted += 1
        wanted = self._wanted
        async with self._storing:
            if self._stored >= wanted:
                return
            if self._connection is None:
                raise ConnectionLost("the connection to this broker is lost")
            stored = self._wanted
            await self._connection.shovels_report([shovel.state for shovel in self._shovels.values()])
            self._stored = stored

    async def close(self) -> None:
        """End all shovels."""
        shovels, self._shovels = list(self._shovels.values()), {}
        await asyncio.gather(*(shovel.stop() for shovel in shovels))

    async def _look(self, connection: Connection) -> None:
        """Start what is new, end what is gone or changed, and report.

        Raises:
            ShardmqError: the broker does not answer.
        """
        rows = await connection.topology("parameters")
        wanted = {(row["vhost"], row["name"]): row for row in rows if row["component"] == SHOVEL}
        over = [
            place
            for place, shovel in self._shovels.items()
            if place not in wanted or wanted[place]["generation"] != shovel.generation or shovel.is_broken
        ]
        await asyncio.gather(*(self._shovels.pop(place).stop() for place in over))
        self._unreadable = {place: known for place, known in self._unreadable.items() if place in wanted}
        for place in wanted.keys() - self._shovels.keys():
            self._begin(place, wanted[place])
        for shovel in [shovel for shovel in self._shovels.values() if shovel.is_done]:
            await connection.parameter_delete(shovel.vhost, SHOVEL, shovel.name, shovel.generation)
            _log.info("shovel '%s' in vhost '%s' has moved all, and is deleted", shovel.name, shovel.vhost)
        await self._report(connection)

    def _begin(self, place: tuple[str, str], row: dict[str, Any]) -> None:
        """Start a shovel. One whose settings make no sense is left alone: lists say why, and others are started."""
        if self._unreadable.get(place) == row["generation"]:
            return
        try:
            settings = read_shovel(row["name"], row["value"])
        except InvalidRequest as fault:
            self._unreadable[place] = row["generation"]
            _log.warning("shovel '%s' in vhost '%s' cannot be started: %s", row["name"], row["vhost"], fault.text)
        else:
            self._shovels[place] = Shovel(row, settings, self._here, self.store)

    async def _report(self, connection: Connection) -> None:
        now = time.monotonic()
        rows = [shovel.state for shovel in self._shovels.values()]
        is_due = now >= self._report_at and rows != self._reported
        if is_due or now >= self._repeat_at:
            await connection.shovels_report(rows)
            self._reported = rows
            self._report_at = now + REPORT_SECONDS + len(rows) / 100
            self._repeat_at = now + REPEAT_SECONDS + len(rows) / 100
