"""Members of an etcd that runs while a test does: real ones, to be killed, frozen and started again."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from shardmq.cmd.bench.compare.rabbitmq import Absent, NotStarted
from tests.ports import free_ports
from tests.warm import SHARDMQ, warm_process

START_SECONDS = 60.0
STARTS = 3  # as a port that was free may be taken when it is listened at
MEMORY = Path("/dev/shm")


def program(name: str = "etcd") -> str:
    """Where etcd is.

    Raises:
        Absent: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise Absent(f"{name} is not installed (Debian: etcd-server and etcd-client)")
    return found


def state(pid: int) -> str:
    """A letter of /proc/PID/stat: T for a process that stands, Z for one that has ended, X for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def temporary_folder(what: str, parent: Path | None = None) -> Path:
    """A folder in memory, where there is such, whose name says whose it is; `remove_leftovers` finds it by that."""
    if parent is None and MEMORY.is_dir():
        parent = MEMORY
    return Path(tempfile.mkdtemp(prefix=f"shardmq-{os.getpid()}-{what}-", dir=parent))


class Process:
    """A process that ends with the test run, however that ends.

    Args:
        command: what to run; `prefix` before it says where.
        output: file for what it says.
    """

    def __init__(self, command: Sequence[str], output: Path, prefix: Sequence[str] = ()) -> None:
        self.output = output
        self._process: subprocess.Popen[bytes]
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def freeze(self) -> None:
        """SIGSTOP, and wait until it stands."""
        os.kill(self.pid, signal.SIGSTOP)
        while state(self.pid) not in "TtZX":
            time.sleep(0.001)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        if not self.has_ended:
            self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        said = self.output.read_text(errors="replace").strip().splitlines() if self.output.exists() else []
        return said[-1] if said else "it says nothing"


class Supervisor(Process):
    """`shardmq up` as a fork of the warm process, with which it ends; its own processes are forks, too.

    Args:
        arguments: for the function.
        output: file for what it says.
        function: as `WarmProcess.run` takes it.
    """

    def __init__(self, arguments: Sequence[str], output: Path, function: str = SHARDMQ) -> None:
        self.output = output
        with output.open("ab") as file:
            self._process = warm_process.supervise(function, tuple(arguments), file.fileno())


class Member:
    """One member.

    Args:
        name: of it.
        host: address that it listens at.
        ports: for clients, and for members.
        folder: of its data.
        prefix: what runs a command where it is to run.
        inside: in which this process is to ask it.
    """

    def __init__(
        self,
        name: str,
        host: str,
        ports: tuple[int, int],
        folder: Path,
        prefix: Sequence[str] = (),
        inside: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.name = name
        self.host = host
        self.port, self.peer_port = ports
        self.folder = folder
        self.prefix = prefix
        self.inside = inside
        self.process: Process | None = None
        self._options: list[str] = []

    def start(self, options: Sequence[str] = ()) -> None:
        """Start it, with the options of its first start when none are given."""
        self._options = list(options) or self._options
        self.process = Process([program(), *self._options], self.folder.with_suffix(".log"), self.prefix)

    @property
    def running(self) -> Process:
        assert self.process is not None
        return self.process

    def kill(self) -> None:
        self.running.kill()

    def freeze(self) -> None:
        self.running.freeze()

    def thaw(self) -> None:
        self.running.thaw()

    def is_listening(self) -> bool:
        """Whether it takes connections; calls wait there until it has a leader."""
        with contextlib.suppress(OSError), self.inside(), socket.create_connection((self.host, self.port), 1.0):
            return True
        return False


class Etcd:
    """An etcd that runs inside a `with` block.

    Args:
        members: as many as are given; three on loopback otherwise.
        options: for each of them.
        scheme: https with TLS, for clients.
        size: how many members, where none are given.
        parent: of the folder of their data; one in memory otherwise, where a flush costs nothing.

    Raises:
        Absent: it is not installed.
        NotStarted: it is, and does not start.
    """

    def __init__(
        self,
        members: Sequence[Member] = (),
        options: Sequence[str] = (),
        scheme: str = "http",
        size: int = 3,
        parent: Path | None = None,
    ) -> None:
        program()
        self.folder = temporary_folder("etcd", parent)
        self.members = list(members)
        self._are_given = bool(members)
        self._options = list(options)
        self._scheme = scheme
        self._size = size

    @property
    def url(self) -> str:
        """Without a prefix and a user."""
        return f"etcd{'s' if self._scheme == 'https' else ''}://{self.hosts}"

    @property
    def hosts(self) -> str:
        return ",".join(f"{member.host}:{member.port}" for member in self.members)

    def __enter__(self) -> Self:
        for attempt in range(1, STARTS + 1):
            try:
                self._start(attempt)
                return self
            except BaseException as fault:
                self._end()
                if attempt == STARTS or not isinstance(fault, NotStarted):
                    shutil.rmtree(self.folder)
                    raise
        raise AssertionError

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        shutil.rmtree(self.folder)

    def _end(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.kill()

    def _start(self, attempt: int) -> None:
        if not self._are_given:
            ports = free_ports(2 * self._size)
            self.members = [
                Member(f"m{n}", "127.0.0.1", (ports[2 * n], ports[2 * n + 1]), self.folder / f"m{n}-{attempt}")
                for n in range(self._size)
            ]
        cluster = ",".join(f"{member.name}=http://{member.host}:{member.peer_port}" for member in self.members)
        for member in self.members:
            client, peer = f"{self._scheme}://{member.host}:{member.port}", f"http://{member.host}:{member.peer_port}"
            member.folder = self.folder / f"{member.name}-{attempt}"
            member.start(
                [
                    *("--name", member.name, "--data-dir", str(member.folder)),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", cluster, "--initial-cluster-token", self.folder.name),
                    *("--election-timeout", "500", "--logger", "zap"),
                    *self._options,
                ]
            )
        self.wait()

    def wait(self) -> None:
        """Wait until all members take connections.

        Raises:
            NotStarted: one has ended, or it takes too long.
        """
        deadline = time.monotonic() + START_SECONDS
        for member in self.members:
            while not member.is_listening():
                if member.running.has_ended or time.monotonic() > deadline:
                    raise NotStarted(f"etcd {member.name} does not start: {member.running.last_words()}")
                time.sleep(0.05)

    def leader(self) -> Member:
        """Who leads, as the members tell in their metrics."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for member in self.members:
                with contextlib.suppress(OSError, urllib.error.URLError), member.inside():
                    answer = urllib.request.urlopen(f"http://{member.host}:{member.port}/metrics", timeout=1.0)
                    with answer:
                        if b"\netcd_server_is_leader 1" in answer.read():
                            return member
            time.sleep(0.05)
        raise NotStarted("etcd has no leader")

    def control(self, *words: str, options: Sequence[str] = ()) -> str:
        """Run etcdctl, as an administrator would."""
        command = [program("etcdctl"), "--endpoints", f"{self._scheme}://{self.members[0].host}:{self.members[0].port}"]
        done = subprocess.run(
            [*self.members[0].prefix, *command, *options, *words],
            env={**os.environ, "ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
