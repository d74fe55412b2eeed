"""One shovel: opens its ends, moves, waits after a fault, tries again."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from shardmq.errors import ShardmqError
from shardmq.shovels.amqp import AmqpDestination, AmqpSource
from shardmq.shovels.ends import Destination, Source
from shardmq.shovels.message import Labels
from shardmq.shovels.native import NativeDestination, NativeSource
from shardmq.shovels.transfer import move
from shardmq.topology.parameters.shovel import ShovelSettings, local_vhost, read_shovel, scrubbed

CLOSE_SECONDS: Final = 5.0
"""For the ends of a shovel to close."""

_log = logging.getLogger(__name__)


class Shovel:
    """A shovel, a task of its own.

    Args:
        row: its parameter, as the broker lists it.
        here: returns the URL of this broker for a virtual host.

    Attributes:
        generation: of the parameter.
        is_done: whether it has moved all that it was to move.
    """

    def __init__(self, row: dict[str, Any], here: Callable[[str], str]) -> None:
        self.vhost: str = row["vhost"]
        self.name: str = row["name"]
        self.generation: int = row["generation"]
        self.is_done = False
        self._settings = read_shovel(self.name, row["value"])
        self._here = here
        self._state = "starting"
        self._error = ""
        self._moved = 0
        self._since = time.time()
        self._tries = 0
        self._task = asyncio.create_task(self._run())

    @property
    def state(self) -> dict[str, Any]:
        """What is reported of it."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "generation": self.generation,
            "state": self._state,
            "moved": self._moved,
            "error": self._error,
            "since": round(self._since, 3),
        }

    def check(self) -> None:
        """Raise what has ended it against all expectations: a bug, for which its process begins anew."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def stop(self) -> None:
        """End it."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _turn(self, state: str) -> None:
        if state != self._state:
            self._state, self._since = state, time.time()

    async def _run(self) -> None:
        pause = self._settings.reconnect_seconds
        while not self.is_done:
            try:
                await self._move()
            except (ShardmqError, OSError) as fault:
                self._failed(getattr(fault, "text", "") or str(fault) or type(fault).__name__)
                if not pause:
                    return
                await asyncio.sleep(pause)

    async def _move(self) -> None:
        """Move until all is moved.

        Raises:
            ShardmqError, OSError: an end is lost.
        """
        settings = self._settings
        self._tries += 1
        destination: Destination | None = None
        source: Source | None = None
        try:
            destination = await self._destination(settings)
            source = await self._source(settings)
            self._turn("running")
            _log.info("shovel '%s' in vhost '%s' is running", self.name, self.vhost)
            await move(source, destination, settings, Labels(self.name, self.vhost, settings), self._count)
            self.is_done = True
        finally:
            for end in (source, destination):
                if end is not None:
                    await _close(end)
        self._turn("terminated")

    async def _source(self, settings: ShovelSettings) -> Source:
        uri = self._chosen(settings.source.uris)
        vhost = local_vhost(uri)
        if vhost is not None:
            return await NativeSource.open(self._here(vhost), settings)
        if urlsplit(uri).scheme.startswith("shardmq"):
            return await NativeSource.open(uri, settings)
        return await AmqpSource.open(uri, settings)

    async def _destination(self, settings: ShovelSettings) -> Destination:
        uri = self._chosen(settings.destination.uris)
        vhost = local_vhost(uri)
        if vhost is not None:
            return await NativeDestination.open(self._here(vhost), settings)
        if urlsplit(uri).scheme.startswith("shardmq"):
            return await NativeDestination.open(uri, settings)
        return await AmqpDestination.open(uri, settings)

    def _chosen(self, uris: tuple[str, ...]) -> str:
        """The URI of this try: each in turn."""
        return uris[(self._tries - 1) % len(uris)]

    def _count(self, messages: int) -> None:
        self._moved += messages

    def _failed(self, text: str) -> None:
        said = scrubbed(text, self._settings)
        if said != self._error:
            _log.warning("shovel '%s' in vhost '%s': %s", self.name, self.vhost, said)
        self._error = said
        self._turn("terminated")


async def _close(end: Source | Destination) -> None:
    """Close an end, whatever state it is in: what it had not acknowledged returns."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await end.close()
    except (ShardmqError, OSError, TimeoutError) as fault:
        _log.info("an end of a shovel did not close in order: %s", type(fault).__name__)
