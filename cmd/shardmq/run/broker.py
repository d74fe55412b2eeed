"""A broker as a child process: `shardmq up` on a free port, for the demo, benchmarks and tests.

The broker ends with the process that started it.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from shardmq.cmd.run import invocation
from shardmq.cmd.run.locks import client_host, hold_port
from shardmq.cmd.run.notices import Notice
from shardmq.errors import ShardmqError, Timeout
from shardmq.runtime import notify

START_SECONDS: Final = 30.0
"""A start takes about a second; a busy machine with a large store may take many."""

STOP_SECONDS: Final = 45.0
"""Three stages of ten seconds each, at worst, and some more."""


class Broker:
    """One `shardmq up` and its notices. `start` or `with` starts it; it can be stopped and started again.

    Args:
        data_dir: data directory of the broker.
        shards: number of shards.
        gateways: number of gateways.
        host: address for clients.
        options: further options of `shardmq up`.
        variables: further environment variables of all processes.
        management: whether there is a management process, on a free port.

    Attributes:
        port: port for clients; it stays the same over restarts.
        url: URL for clients.
        pids: process ids by name, such as "shard-0"; the newest of each.
        notices: all notices of the supervisor, over all restarts.
        log: file with what the processes wrote to stderr.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        shards: int = 4,
        gateways: int = 1,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        management: bool = False,
    ) -> None:
        self.data_dir = data_dir
        self.options = tuple(options)
        self._management_port = "0" if management else "off"
        self.variables = dict(variables or {})
        self.shards = shards
        self.gateways = gateways
        self.host = host
        self.log = data_dir.with_name(data_dir.name + ".log")
        self.pids: dict[str, int] = {}
        self.notices: list[Notice] = []
        self._heard = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._holds = contextlib.ExitStack()
        self.port = self._holds.enter_context(hold_port(host, 0))

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"shardmq://guest:guest@{client_host(self.host)}:{self.port}/"

    @property
    def management_url(self) -> str:
        """URL of the management process, of the last start."""
        urls = [notice.management for notice in self.notices if notice.event == "up"]
        assert urls, "the broker was never up"
        assert urls[-1] is not None, "the broker has no management process"
        return urls[-1]

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def launch(self) -> None:
        """Start without waiting until the broker is ready.

        Call it from a thread that lasts as long as the broker: the kernel ends the broker with that thread.
        """
        assert self._process is None, "the broker is running already"
        arguments = ["up", "--shards", str(self.shards), "--gateways", str(self.gateways), "--host", self.host]
        arguments += ["--port", str(self.port), "--data-dir", str(self.data_dir), "--json"]
        arguments += ["--management-port", self._management_port, *self.options]
        with self.log.open("ab") as log:
            variables = {notify.SUPERVISOR: str(os.getpid()), **self.variables}
            self._process = invocation.spawn(tuple(arguments), variables, subprocess.PIPE, log.fileno())
        self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()

    def start(self, timeout: float = START_SECONDS) -> Self:
        """Start, and wait until all processes are ready.

        Raises:
            ShardmqError: the broker ended instead; the text is what it wrote last.
            Timeout: it was not ready in time.
        """
        known = len(self.notices)
        self.launch()
        self.wait_for("up", after=known, timeout=timeout)
        if self._management_port != "off":
            self.wait_for("managed", after=known, timeout=timeout)
        return self

    def stop(self) -> int:
        """Stop cleanly; returns the exit code of `shardmq up`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, timeout: float = STOP_SECONDS) -> int:
        """Wait until the supervisor has ended; returns its exit code.

        Raises:
            Timeout: it did not in time; it is killed.
        """
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Timeout(f"shardmq up did not end within {timeout:.0f} s and was killed") from None
        finally:
            assert self._listener is not None
            assert process.stdout is not None
            self._listener.join()
            process.stdout.close()
        return code

    def restart(self) -> None:
        """Stop cleanly and start again, on the same port and data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and release the port."""
        try:
            self.stop()
        finally:
            self._holds.close()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one of the processes; returns its process id."""
        with self._heard:
            pid = self.pids[name]
        os.kill(pid, number)
        return pid

    def kill_and_wait(self, name: str, timeout: float = START_SECONDS) -> None:
        """Kill one of the processes with SIGKILL and wait until its successor is ready."""
        known = len(self.notices)
        self.kill(name)
        self.wait_for("ready", name, after=known, timeout=timeout)

    def kill_everything(self) -> None:
        """Kill the supervisor with SIGKILL, and wait until the kernel has ended the other processes."""
        assert self._process is not None, "the broker is not running"
        pidfds = [pidfd for pid in self.pids.values() if (pidfd := _pidfd(pid)) is not None]
        self._process.kill()
        self.wait()
        for pidfd in pidfds:
            select.select([pidfd], [], [], STOP_SECONDS)
            os.close(pidfd)

    def wait_for(
        self, event: str, process: str | None = None, *, after: int = 0, timeout: float = START_SECONDS
    ) -> Notice:
        """Wait for a notice of the supervisor.

        Args:
            event: one of `Notice.event`.
            process: name of the process that it is about; any when None.
            after: number of notices that are skipped.
            timeout: seconds to wait.

        Raises:
            ShardmqError: the broker ended first; the text is what it wrote last.
            Timeout: there was no such notice in time.
        """
        deadline = time.monotonic() + timeout
        with self._heard:
            while True:
                for notice in self.notices[after:]:
                    if notice.event == event and process in (None, notice.process):
                        return notice
                    after += 1
                assert self._listener is not None, "the broker was never started"
                if not self._listener.is_alive():
                    raise ShardmqError(
                        f"the broker ended before '{event}' {process or ''}; it said: {self.last_words()}"
                    )
                if not self._heard.wait(min(1.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    raise Timeout(f"no '{event}' {process or ''} within {timeout:.0f} s; it said: {self.last_words()}")

    def last_words(self) -> str:
        """The last notices, and the end of what the processes wrote to stderr."""
        written = self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
        return "\n".join([*(notice.text for notice in self.notices[-10:]), written]).strip()

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            notice = msgspec.json.decode(line, type=Notice)
            with self._heard:
                self.notices.append(notice)
                if notice.event == "up" and notice.processes:
                    self.pids = dict(notice.processes)
                elif notice.event == "ready" and notice.process and notice.pid:
                    self.pids[notice.process] = notice.pid
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None when it has ended."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
