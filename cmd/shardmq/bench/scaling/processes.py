"""A broker whose processes are started one by one, each gateway on a port of its own: each is measured by itself."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from shardmq.client.sync.connection import connect
from shardmq.cmd.run import invocation
from shardmq.cmd.run.locks import hold_port
from shardmq.errors import ConnectionLost, ShardmqError
from shardmq.runtime import notify

START_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.02
STOP_SECONDS: Final = 15.0

HOST: Final = "127.0.0.1"


@contextlib.contextmanager
def started_in(disk: Path, gateways: int, shards: int) -> Iterator["Processes"]:
    """A new broker in a folder of its own on a disk, which is gone in the end."""
    with tempfile.TemporaryDirectory(prefix="shardmq-scaling-", dir=disk) as folder:
        data = Path(folder) / "data"
        data.mkdir()
        with Processes(data, shards, gateways) as processes:
            yield processes


class Processes:
    """A coordinator, shards and gateways on this machine, inside a `with` block.

    Args:
        folder: an empty one, for their data and their logs.
        shards: how many.
        gateways: how many.

    Attributes:
        pids: by name, as "gateway-0".
        ports: of the gateways.
    """

    def __init__(self, folder: Path, shards: int, gateways: int) -> None:
        self.pids: dict[str, int] = {}
        self.ports: list[int] = []
        self._folder = folder
        self._shards = [f"shard-{number}" for number in range(shards)]
        self._gateways = [f"gateway-{number}" for number in range(gateways)]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._words: dict[str, tuple[str, ...]] = {}
        self._holds = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._holds:
            sockets = Path(self._holds.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-scaling-")))
            self._holds.callback(self._end)
            data = ("--data-dir", str(self._folder))
            addresses = {name: f"ipc://{sockets / name}" for name in ("coordinator", *self._shards)}
            to_shards = tuple(word for name in self._shards for word in ("--shard", addresses[name]))
            self._start("coordinator", "coordinator", *data, "--listen", addresses["coordinator"], *to_shards)
            for number, name in enumerate(self._shards):
                self._start(name, "shard", "--index", str(number), *data, "--listen", addresses[name])
            for name in self._gateways:
                port = self._holds.enter_context(hold_port(HOST, 0))
                self.ports.append(port)
                place = ("--name", name, "--host", HOST, "--port", str(port))
                self._start(name, "gateway", *place, "--coordinator", addresses["coordinator"], *to_shards)
            for port in self.ports:
                self._await(port)
            self._holds = self._holds.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.close()

    @property
    def url(self) -> str:
        """For clients: all gateways."""
        return f"shardmq://guest:guest@{','.join(f'{HOST}:{port}' for port in self.ports)}/"

    def kill(self, name: str) -> None:
        """End a process at once; it is not started again."""
        self._processes[name].kill()
        self._processes[name].wait()

    def restart(self, name: str) -> None:
        """End a process at once, and start it anew."""
        self.kill(name)
        self._start(name, *self._words[name])

    def _start(self, name: str, *words: str) -> None:
        with (self._folder.parent / f"{self._folder.name}-{name}.log").open("ab") as log:
            variables = {notify.SUPERVISOR: str(os.getpid())}
            process = invocation.spawn(words, variables, subprocess.PIPE, log.fileno())
        if process.stdout is not None:
            process.stdout.close()  # they write nothing there
        self._processes[name], self._words[name] = process, words
        self.pids[name] = process.pid

    def _await(self, port: int) -> None:
        """Wait until a gateway serves, and knows all shards.

        Raises:
            ShardmqError: a process has ended, or they are not ready in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise ShardmqError(f"{', '.join(ended) or 'the processes'} did not start: {self._last_words()}")
            try:
                with connect(f"shardmq://guest:guest@{HOST}:{port}/", timeout=START_SECONDS) as connection:
                    rows = connection.status()["processes"]
                    if sum(row["role"] == "shard" for row in rows) == len(self._shards):
                        return
            except ConnectionLost:
                pass  # it does not listen yet
            time.sleep(LOOK_SECONDS)

    def _last_words(self) -> str:
        logs = sorted(self._folder.parent.glob(f"{self._folder.name}-*.log"))
        return " ".join(log.read_text(errors="replace")[-400:].strip() for log in logs).strip()

    def _end(self) -> None:
        for name in reversed(self._processes):  # gateways first
            process = self._processes[name]
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
