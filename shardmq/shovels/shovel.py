"""One shovel: opens its ends, moves, waits after a fault, tries again."""

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from shardmq.errors import ReplyCode, RequestError, ShardmqError
from shardmq.shovels.amqp import AmqpDestination, AmqpSource
from shardmq.shovels.ends import Destination, Source
from shardmq.shovels.local import LocalTransfer, is_local, reservation_of
from shardmq.shovels.message import Labels
from shardmq.shovels.native import NativeDestination, NativeSource
from shardmq.shovels.transfer import Progress, Store, move
from shardmq.topology.parameters.shovel import ShovelEnd, ShovelSettings, local_vhost, scrubbed
from shardmq.urls import split_url

CLOSE_SECONDS: Final = 5.0
"""For the ends of a shovel to close."""

BROKEN_SECONDS: Final = 5.0
"""Pause after what nobody expected, at the least."""

CHECK_SECONDS: Final = 1.0
"""Between two looks at whether the destination is still there."""

Opened = TypeVar("Opened", Source, Destination)
Open = Callable[[str, ShovelSettings], Awaitable[Opened]]

_log = logging.getLogger(__name__)


class Shovel:
    """A shovel, a task of its own.

    Args:
        row: its parameter, as the broker lists it.
        settings: what that says.
        here: returns the URL of this broker for a virtual host.
        store: has the broker store how far its shovels are.

    Attributes:
        generation: of the parameter.
        is_done: whether it has moved all that it was to move.
        is_broken: whether it failed as nobody expected: it is begun anew, from what the broker has stored of it.
    """

    def __init__(self, row: dict[str, Any], settings: ShovelSettings, here: Callable[[str], str], store: Store) -> None:
        self.vhost: str = row["vhost"]
        self.name: str = row["name"]
        self.generation: int = row["generation"]
        self.is_done = self.is_broken = False
        self._settings = settings
        self._here = here
        self._is_local = is_local(settings)
        self._state = "starting"
        self._error = ""
        self._store = store
        self._progress = Progress(row["progress"])
        self._since = time.time()
        self._turns: dict[str, int] = {}
        self._task = asyncio.create_task(self._run())

    @property
    def state(self) -> dict[str, Any]:
        """What is reported of it."""
        return {
            "vhost": self.vhost,
            "name": self.name,
            "generation": self.generation,
            "state": self._state,
            "moved": self._progress.moved,
            "error": self._error,
            "since": round(self._since, 3),
            "progress": self._progress.stored,
        }

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
            except Exception as fault:  # noqa: BLE001  it has all to itself, and others are to go on
                said = scrubbed("".join(traceback.format_exception(fault)), self._settings)
                _log.error("shovel '%s' in vhost '%s' is begun anew: %s", self.name, self.vhost, said)
                self._failed(f"{type(fault).__name__}: {fault}")
                await asyncio.sleep(max(pause, BROKEN_SECONDS))
                self.is_broken = True
                return

    async def _move(self) -> None:
        """Move until all is moved.

        Raises:
            ShardmqError, OSError: an end is lost.
        """
        if self._is_local:
            try:
                await self._move_here()
            except RequestError as fault:
                if fault.code != ReplyCode.NOT_IMPLEMENTED:
                    raise
                self._is_local = False  # messages of a stream stay: it is consumed
        if not self._is_local:
            await self._move_between()
        self.is_done = True
        self._turn("terminated")

    async def _move_here(self) -> None:
        """Move inside this broker, each message once."""
        reservation = reservation_of(self.vhost, self.name)
        transfer = await LocalTransfer.open(self._here, self._settings, reservation, self._progress)
        try:
            labels = await self._begin(transfer)
            await _while_there(transfer, transfer.move(labels, self._progress, self._store))
        finally:
            await _close(transfer)

    async def _move_between(self) -> None:
        """Move from a source to a destination, wherever they are."""
        destination: Destination | None = None
        source: Source | None = None
        try:
            destination = await self._destination(self._settings)
            source = await self._source(self._settings)
            labels = await self._begin(source)
            work = move(source, destination, self._settings, labels, self._progress, self._store)
            await _while_there(destination, work)
        finally:
            for end in (source, destination):
                if end is not None:
                    await _close(end)

    async def _begin(self, source: Source | LocalTransfer) -> Labels:
        """Note that all that it takes is open.

        Raises:
            ShardmqError: the broker does not store how many messages there are to move.
        """
        self._turn("running")
        _log.info("shovel '%s' in vhost '%s' is running", self.name, self.vhost)
        is_new = not self._progress.has_begun
        self._progress.begin(source.ready, self._settings)
        if is_new and self._progress.left is not None:
            await self._store()
        return Labels(self.name, self.vhost, self._settings)

    async def _source(self, settings: ShovelSettings) -> Source:
        return await self._opened("source", settings.source, NativeSource.open, AmqpSource.open)

    async def _destination(self, settings: ShovelSettings) -> Destination:
        return await self._opened("destination", settings.destination, NativeDestination.open, AmqpDestination.open)

    async def _opened(self, side: str, end: ShovelEnd, native: Open[Opened], amqp: Open[Opened]) -> Opened:
        """Open an end at its next URI; where that fails, it is the turn of the one behind it."""
        turn = self._turns.get(side, 0)
        uri = end.uris[turn % len(end.uris)]
        vhost = local_vhost(uri)
        try:
            if vhost is not None:
                return await native(self._here(vhost), self._settings)
            if split_url(uri).scheme.startswith("shardmq"):
                return await native(uri, self._settings)
            return await amqp(uri, self._settings)
        except (ShardmqError, OSError):
            self._turns[side] = turn + 1
            raise

    def _failed(self, text: str) -> None:
        said = scrubbed(text, self._settings)
        if said != self._error:
            _log.warning("shovel '%s' in vhost '%s': %s", self.name, self.vhost, said)
        self._error = said
        self._turn("terminated")


async def _while_there(destination: Destination | LocalTransfer, work: Coroutine[Any, Any, None]) -> None:
    """Carry out work, and end it where the destination is lost: while nothing comes, nothing else would notice.

    Raises:
        ShardmqError: it is lost, or the work raised it.
    """
    working = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([working], timeout=CHECK_SECONDS))[0]:
            destination.check()
        working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _close(end: Source | Destination | LocalTransfer) -> None:
    """Close an end, whatever state it is in: what it had not acknowledged returns."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await end.close()
    except (ShardmqError, OSError, TimeoutError) as fault:
        _log.info("an end of a shovel did not close in order: %s", type(fault).__name__)
