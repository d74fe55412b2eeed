"""One supervised process: starting it, hearing when it is ready, waiting for its end, stopping it; and its demand."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from shardmq.cmd.run import invocation
from shardmq.runtime import notify

NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})

STOP_SECONDS: Final = 10.0
"""From SIGTERM to SIGKILL: time for a gateway to drain its confirms, for a shard to close its store."""


class Child:
    """A process of the broker, and its successors after restarts.

    Args:
        name: its name, such as "shard-2".
        stage: processes of a higher stage stop first.
        arguments: its command line, after `shardmq`.
        run_dir: folder for its readiness socket.
        on_ready: called when the process is ready.
        variables: added to its environment.
        is_on_demand: whether it is there only while somebody wants it.

    Attributes:
        pid: process id of the newest process; 0 before the first start.
        starts: how often it was started.
        is_wanted: whether it is to run now.
        is_ready: whether the running process has said that it is ready.
        started_at: monotonic time of the last start, in seconds.
        heard_at: when the running process was last heard, likewise.
        on_shovels: called when it says how many shovels there are.
        status: what it says of itself; "" before it has said anything.
    """

    def __init__(
        self,
        name: str,
        stage: int,
        arguments: tuple[str, ...],
        run_dir: Path,
        on_ready: "Callable[[Child], None]",
        *,
        variables: Mapping[str, str] = NO_VARIABLES,
        is_on_demand: bool = False,
    ) -> None:
        self.name = name
        self.stage = stage
        self.pid = 0
        self.starts = 0
        self.is_on_demand = is_on_demand
        self.is_wanted = not is_on_demand
        self.is_ready = False
        self.started_at = 0.0
        self.heard_at = 0.0
        self.status = ""
        self.on_shovels: Callable[[int], None] = lambda _count: None
        self._on_ready = on_ready
        self._variables = variables
        self._arguments = arguments
        self._notify_path = str(run_dir / f"notify-{name}")
        self._process: invocation.Process | None = None
        self._ended = asyncio.Event()

    async def run(self) -> int:
        """Start a process and wait until it has ended.

        Returns:
            Its exit code; the negative number of the signal that killed it.
        """
        loop = asyncio.get_running_loop()
        # Each process has a new socket: an earlier process must not make this one ready.
        Path(self._notify_path).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
            listener.bind(self._notify_path)
            self._ended.clear()
            self.started_at = time.monotonic()
            variables = {
                **self._variables,
                notify.NOTIFY_SOCKET: self._notify_path,
                notify.SUPERVISOR: str(os.getpid()),
            }
            if notify.watchdog_seconds() is not None:
                variables[notify.WATCHDOG_PID] = ""  # the child is meant as well: ours to watch
            process = invocation.start(self._arguments, variables)
            self._process, self.pid = process, process.pid
            self.starts += 1
            pidfd = os.pidfd_open(process.pid)
            loop.add_reader(listener, self._hear, listener)
            loop.add_reader(pidfd, self._ended.set)
            try:
                await self._ended.wait()
            finally:
                loop.remove_reader(listener)
                loop.remove_reader(pidfd)
                os.close(pidfd)
                self.is_ready = False
                self.status = ""
                self._process = None
            return process.wait()

    def _hear(self, listener: socket.socket) -> None:
        self.heard_at = time.monotonic()
        lines = listener.recv(4096).split(b"\n")
        for line in lines:
            if line.startswith(b"STATUS="):
                self.status = line.removeprefix(b"STATUS=").decode(errors="replace")
            elif line.startswith(b"SHOVELS="):
                self.on_shovels(int(line.removeprefix(b"SHOVELS=")))
        if b"READY=1" in lines and not self.is_ready:
            self.is_ready = True
            self._on_ready(self)

    async def stop(self) -> bool:
        """Ask the process to stop; kill it when it does not.

        Returns:
            Whether it stopped by itself in time.
        """
        if self._process is None:
            return True
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._ended.wait(), STOP_SECONDS)
        except TimeoutError:
            self.kill()
            await self._ended.wait()
            return False
        return True

    def kill(self) -> None:
        """End the process at once, if there is one."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)


class Demand:
    """Whether a process is wanted; one that is not any more is stopped.

    Args:
        child: the process.
    """

    def __init__(self, child: Child) -> None:
        self.child = child
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
