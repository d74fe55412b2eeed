"""A process of a broker that is there only while it is wanted."""

import asyncio

from shardmq.cmd.run.child import Child


class Demand:
    """Whether a process is wanted; one that is not any more is stopped.

    Args:
        child: the process.
    """

    def __init__(self, child: Child) -> None:
        self.child = child
        child.is_wanted = False
        self._wanted = asyncio.Event()
        self._stopping: asyncio.Task[bool] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether it is wanted now."""
        return self.child.is_wanted

    def want(self, count: int) -> None:
        """Note how much there is for it to do; nothing stops it."""
        if count:
            self._wanted.set()
            self.child.is_wanted = True
        elif self._wanted.is_set():
            self._wanted.clear()
            self.child.is_wanted = False
            self._stopping = asyncio.create_task(self.child.stop())

    async def wait(self, stopping: asyncio.Event) -> None:
        """Wait until it is wanted, or until the broker stops; the one before has stopped by then."""
        if self._stopping is not None:
            await self._stopping
            self._stopping = None
        waits = [asyncio.create_task(event.wait()) for event in (self._wanted, stopping)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
