"""A Redis of one's own, which writes every command to disk before it answers, and the program that puts load on it."""

import contextlib
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shardmq.cmd.bench.compare.load import compiler, last_line
from shardmq.cmd.bench.compare.rabbitmq import Absent, NotStarted, free_ports
from shardmq.errors import ShardmqError

SOURCE: Final = Path(__file__).parent / "redisload.c"
START_SECONDS: Final = 10.0
STOP_SECONDS: Final = 10.0


class RedisServer:
    """A Redis that runs inside a `with` block.

    Args:
        folder: parent of its temporary folder.

    Attributes:
        port: on 127.0.0.1.
        pid: of its process.
        version: of Redis.

    Raises:
        Absent: it is not installed.
        NotStarted: it is, and does not start.
    """

    def __init__(self, folder: Path) -> None:
        found = shutil.which("redis-server")
        if found is None:
            raise Absent("redis-server is not installed")
        self._program = found
        self._parent = folder
        self._holds = contextlib.ExitStack()
        self.port = self.pid = 0
        self.version = ""

    def __enter__(self) -> Self:
        with self._holds:
            self._start()
            self._holds = self._holds.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holds.close()

    def _start(self) -> None:
        folder = self._holds.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-redis-", dir=self._parent))
        (self.port,) = free_ports(1)
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": folder,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        process = subprocess.Popen(
            [self._program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0
        )
        self._holds.callback(_end, process)
        self.pid = process.pid
        deadline = time.monotonic() + START_SECONDS
        while not self.version:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotStarted("redis-server does not start")
            with contextlib.suppress(OSError):
                self.version = told_version(self.port)
            time.sleep(0.05)


def told_version(port: int) -> str:
    """The version of the Redis at this port; "" while it is not ready.

    Raises:
        OSError: nothing listens there.
    """
    with socket.create_connection(("127.0.0.1", port), START_SECONDS) as connection:
        connection.sendall(b"INFO server\r\nQUIT\r\n")
        with connection.makefile("rb") as answers:
            lines = answers.read().decode(errors="replace").splitlines()
    return next((line.partition(":")[2] for line in lines if line.startswith("redis_version:")), "")


def redis_program(folder: Path) -> list[str]:
    """Compile the C program; returns the command that runs it.

    Args:
        folder: folder for the program.

    Raises:
        Absent: the compiler is not installed.
        ShardmqError: the program cannot be compiled.
    """
    program, command = folder / "redisload", compiler()
    words = [*command, "-O2", "-o", str(program), str(SOURCE), "-lpthread"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ShardmqError(f"{shlex.join(command)} cannot compile {program.name}: {last_line(done.stderr)}")
    return [str(program)]


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the server."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
