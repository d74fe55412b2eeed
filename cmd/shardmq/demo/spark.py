"""The demo's Spark, as its parent sees it: started early, asked to count, ended."""

import json
import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shardmq.cmd.demo.stream import READY
from shardmq.cmd.run import invocation
from shardmq.cmd.spark.session import check_installed
from shardmq.errors import StartupRefused

START_SECONDS: Final = 90.0
COUNT_SECONDS: Final = 90.0
CHUNK: Final = 1 << 16


class Spark:
    """Spark, which starts inside `with`; where it cannot, `absent` says why, and it counts nothing.

    Args:
        url: the broker.
        folder: for its checkpoint and its log.
        absent: why there is to be none.

    Attributes:
        absent: why there is no Spark; "" where it is there.
    """

    def __init__(self, url: str, folder: Path, absent: str = "") -> None:
        self.absent = absent
        self._url = url
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._written = b""
        self._is_ready = False
        try:
            check_installed()
        except StartupRefused as refused:
            self.absent = self.absent or refused.text

    def __enter__(self) -> Self:
        if not self.absent:
            command = [sys.executable, "-P", "-m", "shardmq.cmd.demo.stream", self._url, str(self._folder)]
            with (self._folder / "spark-stderr.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    env=invocation.environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    process_group=0,
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.communicate()

    def count(self) -> None:
        """Have it count what the topic has by now, once it is ready; `counted` waits for that."""
        if self._process is not None and not self._is_ready:
            self._is_ready = self._line(READY, START_SECONDS) is not None
            if not self._is_ready:
                self._give_up(f"Spark did not start within {START_SECONDS:.0f} s")
        if self._process is not None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(b"count\n")
                self._process.stdin.flush()
            except BrokenPipeError:
                self._give_up("Spark has ended")

    def counted(self) -> dict[str, int] | None:
        """The flights of each carrier, as it has counted them; None where there is no Spark."""
        if self._process is None:
            return None
        line = self._line("{", COUNT_SECONDS)
        if line is None:
            self._give_up(f"Spark did not count the flights within {COUNT_SECONDS:.0f} s")
            return None
        return dict(json.loads(line))

    def _give_up(self, why: str) -> None:
        said = [line for log in sorted(self._folder.glob("spark*.log")) for line in _lines(log)]
        self.absent = f"{why}; it said: {said[-1]}" if said else why
        self.__exit__(None, None, None)

    def _line(self, start: str, seconds: float) -> str | None:
        """The next line that begins so; None where none came in time, or Spark has ended. Java writes lines, too."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self._written.partition(b"\n")
                if newline:
                    self._written = rest
                    if line.startswith(start.encode()):
                        return line.decode()
                    continue
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                read = self._process.stdout.read1(CHUNK)  # type: ignore[attr-defined]  # a buffered pipe
                if not read:
                    return None
                self._written += read


def _lines(log: Path) -> list[str]:
    return [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
