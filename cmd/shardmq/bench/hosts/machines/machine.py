"""One host: a network namespace and the processes in it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from shardmq.cmd.bench.compare.load import last_line
from shardmq.cmd.bench.hosts.machines.network import Namespace, state
from shardmq.cmd.run import invocation
from shardmq.errors import Timeout

LOOK_SECONDS: Final = 0.005
WAIT_SECONDS: Final = 60.0


def wait_for(holds: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until something holds.

    Raises:
        Timeout: it does not in time.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Timeout(f"not within {seconds:.0f} s: {what}")
        time.sleep(LOOK_SECONDS)


class Machine:
    """A host. Its processes end with this process, however that ends.

    Args:
        namespace: its own.

    Attributes:
        name: of the host.
        address: of the host.
        prefix: before the words of a command that is to run there.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.name = namespace.host
        self.address = namespace.address
        self.prefix = namespace.prefix
        self._namespace = namespace
        self._processes: list[subprocess.Popen[bytes]] = []
        self._output: Path | None = None

    def spawn(
        self, command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a process there.

        Args:
            command: what to run.
            output: file for what it says.
            environment: added to this process's.
        """
        self._output = output
        with output.open("ab") as file:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=invocation.environment(**(environment or {})),
                process_group=0,
            )
        self._processes.append(process)
        return process

    def pids(self) -> tuple[int, ...]:
        """All its processes."""
        return tuple(self._namespace.pids())

    def received_bytes(self) -> int:
        """Bytes that came to it over the network."""
        return self._namespace.received_bytes()

    def kill(self) -> None:
        """Kill all its processes."""
        self._namespace.signal(signal.SIGKILL)
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._processes.clear()

    def freeze(self) -> None:
        """All its processes stand still."""
        self._namespace.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """They go on."""
        self._namespace.signal(signal.SIGCONT)

    def last_words(self) -> str:
        """What it said last."""
        return last_line(self._output.read_text(errors="replace")) if self._output is not None else ""


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until the process stands."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: state(pid) in "TtZX", f"process {pid} stands")
