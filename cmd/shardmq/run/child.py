"""One supervised process: started, heard when it is ready, waited for, stopped. One `Child` outlives its processes."""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shardmq.cmd.run import invocation
from shardmq.runtime import notify

STOP_SECONDS: Final = 10.0
"""From SIGTERM to SIGKILL: time for a gateway to drain its confirms, for a shard to close its store."""


class Child:
    """A process of the broker under its supervisor.

    Args:
        name: what it is called, as "shard-2".
        stage: when it is to stop; children of a higher stage stop first.
        arguments: its command line, after `shardmq`.
        run_dir: folder for its readiness socket.
        on_ready: called when a process of it says that it serves.

    Attributes:
        pid: of the process that runs now, or ran last; 0 before the first.
        lives: how many processes it has had.
        is_ready: whether the process that runs now has said that it serves.
        started_at: monotonic time of the last start.
    """

    def __init__(
        self, name: str, stage: int, arguments: tuple[str, ...], run_dir: Path, on_ready: "Callable[[Child], None]"
    ) -> None:
        self.name = name
        self.stage = stage
        self.pid = 0
        self.lives = 0
        self.is_ready = False
        self.started_at = 0.0
        self._on_ready = on_ready
        self._arguments = arguments
        self._notify_path = str(run_dir / f"notify-{name}")
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = asyncio.Event()

    async def live(self) -> int:
        """Start a process and wait until it has ended.

        Returns:
            Its exit code; the negative number of the signal that killed it.
        """
        loop = asyncio.get_running_loop()
        # A new socket for each life: what an earlier process said must not count for this one.
        Path(self._notify_path).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
            listener.bind(self._notify_path)
            self._ended.clear()
            self.started_at = time.monotonic()
            variables = {notify.NOTIFY_SOCKET: self._notify_path, notify.SUPERVISOR: str(os.getpid())}
            process = invocation.spawn(self._arguments, variables, stdout=2)  # ours is for notices
            self._process, self.pid = process, process.pid
            self.lives += 1
            life = os.pidfd_open(process.pid)
            loop.add_reader(listener, self._hear, listener)
            loop.add_reader(life, self._ended.set)
            try:
                await self._ended.wait()
            finally:
                loop.remove_reader(listener)
                loop.remove_reader(life)
                os.close(life)
                self.is_ready = False
                self._process = None
            return process.wait()

    def _hear(self, listener: socket.socket) -> None:
        if b"READY=1" in listener.recv(4096).split(b"\n") and not self.is_ready:
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
            self._process.kill()
