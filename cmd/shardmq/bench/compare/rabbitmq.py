"""Starting and stopping a RabbitMQ for benchmarks, with a temporary folder, free ports and its own epmd."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import PROTOCOL_HEADER
from shardmq.protocol.amqp.methods.codec import decode
from shardmq.protocol.amqp.methods.connection import ConnectionStart

PLACES: Final = ("/usr/lib/rabbitmq/bin", "/usr/lib/rabbitmq/sbin", "/usr/local/sbin", "/opt/rabbitmq/sbin")
"""Where packages install rabbitmq-server itself; the one on the PATH may be a script that changes the user."""

START_SECONDS: Final = 180.0
"""It takes 3 s; on a machine that does much else, a minute."""

STARTS: Final = 3
"""How often it is tried, as a port that was free may be taken when it is listened at."""

STOP_SECONDS: Final = 20.0
GREETING_SECONDS: Final = 5.0
"""From the protocol header to connection.start."""


class Absent(Exception):
    """There is no RabbitMQ to measure; the text says why."""


class NotStarted(Absent):
    """There is one, and it does not start."""


class Server:
    """A RabbitMQ that runs inside a `with` block.

    Args:
        folder: parent of its temporary folder; the system's folder for temporary files when None.

    Attributes:
        port: AMQP port, on 127.0.0.1.
        pid: process id of the Erlang machine.
        version: version of RabbitMQ.

    Raises:
        Absent: it is not installed.
        NotStarted: it is, and does not start.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._parent = folder
        found = shutil.which("rabbitmq-server", path=os.pathsep.join(PLACES)) or shutil.which("rabbitmq-server")
        if found is None:
            raise Absent("rabbitmq-server is not installed")
        self._program = found
        self._epmd = shutil.which("epmd")
        if self._epmd is None:
            raise Absent("epmd, which belongs to Erlang, is not on the PATH")
        self.port = 0
        self.pid = 0
        self.version = ""
        self._holds = contextlib.ExitStack()

    def __enter__(self) -> Self:
        for attempt in range(1, STARTS + 1):
            try:
                with self._holds:
                    self._start()
                    self._holds = self._holds.pop_all()
                break
            except NotStarted:
                if attempt == STARTS:
                    raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holds.close()

    def _start(self) -> None:
        folder = Path(
            self._holds.enter_context(tempfile.TemporaryDirectory(prefix="shardmq-rabbitmq-", dir=self._parent))
        )
        self.port, dist, epmd = free_ports(3)
        (folder / "plugins").write_text("[].\n")
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.default = 127.0.0.1:{self.port}\n")
        environment = {
            **os.environ,
            "HOME": str(folder),  # for Erlang's cookie
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench-{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        }
        # Without an epmd of its own, Erlang would start one that nobody stops.
        assert self._epmd is not None
        names = self._child([self._epmd], environment, folder)
        server = self._child([self._program], environment, folder)
        self._holds.callback(_stop, server, folder / "pid")
        self._wait(server, names, folder)
        self.pid = int((folder / "pid").read_text())

    def _child(self, command: list[str], environment: dict[str, str], folder: Path) -> "subprocess.Popen[bytes]":
        with (folder / "output").open("ab") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0
            )
        self._holds.callback(_end, process)
        return process

    def _wait(self, server: "subprocess.Popen[bytes]", names: "subprocess.Popen[bytes]", folder: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError, AmqpError):
                self.version = greeted_by(self.port)
                return
            ended = server.poll() is not None or names.poll() is not None
            if ended or time.monotonic() > deadline:
                said = (folder / "output").read_text(errors="replace").strip().splitlines()
                raise NotStarted(f"rabbitmq-server does not start: {said[-1] if said else 'it says nothing'}")
            time.sleep(0.2)


def greeted_by(port: int, address: str = "127.0.0.1") -> str:
    """The version of the broker at this address and port, from its greeting.

    Raises:
        OSError: nothing listens there, or it does not speak AMQP 0-9-1 yet.
    """
    with socket.create_connection((address, port), GREETING_SECONDS) as connection:
        connection.sendall(PROTOCOL_HEADER)
        with connection.makefile("rb") as answers:
            head = answers.read(7)
            payload = answers.read(int.from_bytes(head[3:]))
    if head[:3] != b"\1\0\0" or not isinstance(start := decode(payload, 0), ConnectionStart):
        raise ConnectionRefusedError(f"port {port} does not greet as AMQP 0-9-1 brokers do")
    version = start.server_properties.get("version", "")
    return version.decode() if isinstance(version, bytes) else str(version)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _stop(server: "subprocess.Popen[bytes]", pid_file: Path) -> None:
    """Stop the Erlang machine that the script started, by its pid; the script ends with it."""
    if pid_file.exists() and (pid := pid_file.read_text().strip()).isdecimal() and server.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its process group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
