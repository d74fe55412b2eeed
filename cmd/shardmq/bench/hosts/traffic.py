"""Publishers and consumers as processes, and what they have seen confirmed."""

import itertools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from shardmq.cmd.bench.compare.load import last_line
from shardmq.cmd.bench.hosts import traffic_program
from shardmq.cmd.bench.hosts.machines.machine import wait_for
from shardmq.cmd.run import invocation
from shardmq.errors import ShardmqError

SETTLED: Final = 100
"""Confirms after which publishing goes on again."""

STOP_SECONDS: Final = 10.0


class Traffic:
    """A publisher or consumer, inside a `with` block. Where it is started, this thread's network is its own.

    Args:
        mode: of the program.
        url: of the broker.
        queue: name of the queue.
    """

    def __init__(self, mode: str, url: str, queue: str) -> None:
        self._words = [sys.executable, "-P", "-m", traffic_program.__name__, mode, url, queue]
        self._mode = mode
        self._times: list[float] = []
        self._counts: list[int] = []
        self._rest = ""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="shardmq-traffic-")
        output, errors = (Path(self._folder.name) / name for name in ("output", "errors"))
        with output.open("wb") as said, errors.open("wb") as complaints:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complaints,
                env=invocation.environment(),
                process_group=0,
            )
        self._output, self._errors = output.open(), errors
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()
        self._folder.cleanup()

    def settle(self, confirms: int = SETTLED) -> float:
        """Wait until so many more are confirmed; returns the time then.

        Raises:
            Timeout: they are not in time.
            ShardmqError: it has ended.
        """
        return self.settle_after(time.monotonic(), confirms)

    def settle_after(self, moment: float, confirms: int = SETTLED) -> float:
        """The same, of those that are confirmed after a moment."""
        wait_for(lambda: self._confirmed_after(moment) >= confirms, "publishing goes on")
        return time.monotonic()

    def pause_ms(self, since: float, until: float) -> float:
        """The longest time without a confirm, in ms; what began before and what lasts beyond counts in whole."""
        self._read()
        confirmed = [at for at, count in zip(self._times, self._counts, strict=True) if count]
        pairs = [(one, other) for one, other in itertools.pairwise(confirmed) if other >= since and one <= until]
        return 1000 * max((other - one for one, other in pairs), default=until - since)

    def rate(self, since: float, until: float) -> float:
        """Messages confirmed a second."""
        self._read()
        between = (count for at, count in zip(self._times, self._counts, strict=True) if since < at <= until)
        return sum(between) / (until - since)

    def confirmed(self) -> int:
        """How many messages were confirmed."""
        self._read()
        return sum(self._counts)

    def refused(self, since: float) -> int:
        """How many messages were refused."""
        self._read()
        return sum(not count for at, count in zip(self._times, self._counts, strict=True) if at >= since)

    def _confirmed_after(self, moment: float) -> int:
        if self._process.poll() is not None:
            raise ShardmqError(f"publishing ({self._mode}) has ended: {last_line(self._errors.read_text())}")
        self._read()
        found = 0
        for at, count in zip(reversed(self._times), reversed(self._counts), strict=True):
            if at <= moment:
                break
            found += count
        return found

    def _read(self) -> None:
        *lines, self._rest = (self._rest + self._output.read()).split("\n")
        for line in lines:
            at, _, count = line.partition(" ")
            self._times.append(float(at))
            self._counts.append(int(count))
