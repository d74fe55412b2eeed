"""Processes that hold many connections open, each with a channel, until they are ended."""

import asyncio
import multiprocessing
import resource
import signal
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from typing import Any, Final

from shardmq.errors import ShardmqError, Timeout

AT_ONCE: Final = 32
"""Connections that a process opens at the same time: no more than fit into a gateway's backlog."""

PER_PROCESS: Final = 1500
"""Connections of one client process."""


class ConnectionHolders:
    """Client processes that hold connections.

    Args:
        url: of the broker.
        connections: number of connections in all.
        timeout: seconds until all must be open.
    """

    def __init__(self, url: str, connections: int, timeout: float) -> None:
        self._processes: list[SpawnProcess] = []
        self._pipes: list[Pipe] = []
        self._timeout = timeout
        context = multiprocessing.get_context("spawn")
        members = -(-connections // PER_PROCESS)
        for member in range(members):
            ours, theirs = context.Pipe()
            share = connections // members + (member < connections % members)
            process = context.Process(target=_hold, args=(url, share, timeout, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def wait(self) -> None:
        """Wait until all connections are open.

        Raises:
            ShardmqError: a process could not open its connections.
            Timeout: they were not open in time.
        """
        for pipe in self._pipes:
            if not pipe.poll(self._timeout):
                raise Timeout(f"the connections are not open after {self._timeout:.0f} s; see --timeout")
            fault = pipe.recv()
            if fault is not None:
                raise ShardmqError(fault)

    def close(self) -> None:
        """End the processes, which closes their connections."""
        for process in self._processes:
            process.terminate()
            process.join()
        for pipe in self._pipes:
            pipe.close()


def raise_file_limit() -> None:
    """Raise the limit of open files of this process as far as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _hold(url: str, connections: int, timeout: float, pipe: Pipe) -> None:
    """The main function of a process: open connections, report it, and keep them until the process is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends us
    raise_file_limit()
    asyncio.run(_open_and_keep(url, connections, timeout, pipe))


async def _open_and_keep(url: str, connections: int, timeout: float, pipe: Pipe) -> None:
    from shardmq import aio

    room = asyncio.Semaphore(AT_ONCE)
    opened: list[Any] = []

    async def open_one() -> None:
        async with room:
            connection = await aio.connect(url, timeout=timeout)
            opened.append((connection, await connection.channel()))

    try:
        await asyncio.gather(*(open_one() for _ in range(connections)))
    except (ShardmqError, OSError) as fault:
        pipe.send(str(fault))
        return
    pipe.send(None)
    await asyncio.Event().wait()
