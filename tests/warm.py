"""Brokers for tests are forked from a process that has imported everything: one starts in a third of the time.

    pytest's worker --socket--> warm process --fork--> shardmq up --fork--> coordinator, shards, gateways

The processes are the broker's own, with its own options, environment and files; imports alone are done before. Tests
that start `shardmq` by its command line, or with variables of their own, start it as users do. `WarmProcess.run` forks
any function, such as a test's shard.
"""

import contextlib
import gc
import importlib
import os
import resource
import selectors
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec

from shardmq.bus.link import envelope_decoder
from shardmq.bus.messages.coordinator import FromCoordinator, ToCoordinator
from shardmq.bus.messages.shard import FromShard, ToShard
from shardmq.cmd.run import invocation
from shardmq.runtime import notify
from shardmq.topology import passwords

PRELOADED: Final = (
    "shardmq.cmd.run.up",
    "shardmq.cmd.run.supervisor",
    "shardmq.cmd.run.processes",
    "shardmq.shards.process",
    "shardmq.gateway.process",
    "shardmq.gateway.amqp.connection",
    "shardmq.coordinator.process",
    "shardmq.management.process",
    "uvloop",
)
RESOURCES: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE)
INHERITED: Final = frozenset({notify.SUPERVISOR, notify.NOTIFY_SOCKET})
PASSWORD_COST: Final = "TESTS_PASSWORD_COST"
"""Environment name of scrypt's cost in what is forked. Hashes are slow on purpose; where that is not the point, a
broker's first start and each user's first login need not take 40 ms of the processor."""

QUICK_PASSWORDS: Final = 2
NUMBER: Final = struct.Struct("=q")
REQUEST_BYTES_MAX: Final = 1 << 17
SHARDMQ: Final = "shardmq.cmd.main:run"
"""The function that a command line is given to."""

start_cold = invocation.spawn


class Request(msgspec.Struct):
    """What the warm process is to start."""

    function: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    limits: list[tuple[int, int]]


class Warm(subprocess.Popen[bytes]):
    """A process that the warm process has forked for us, and waits for."""

    def __init__(self, teller: socket.socket, stdout: Any) -> None:  # not the parent's: nothing is executed
        self._teller = teller
        (self.pid,) = NUMBER.unpack(teller.recv(NUMBER.size))
        self.stdin, self.stdout, self.stderr = None, stdout, None
        self.args = ("shardmq",)
        self.returncode: int | None = None

    def __del__(self) -> None:  # type: ignore[override]
        """Whoever started it waits for it."""

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it may have ended just now, and been waited for
                os.kill(self.pid, sig)

    def poll(self) -> int | None:
        if self.returncode is None:
            self._hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not self._hear(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        assert self.returncode is not None
        return self.returncode

    def _hear(self, timeout: float | None) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._teller, selectors.EVENT_READ)
            if not selector.select(timeout):
                return False
        told = self._teller.recv(NUMBER.size)
        self._teller.close()
        assert told, "the warm process is gone"
        (self.returncode,) = NUMBER.unpack(told)
        return True


class WarmProcess:
    """The warm process, as its owner sees it; there when it is first needed."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """End it, and what was forked from it."""
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.wait()

    def spawn(
        self, arguments: tuple[str, ...], variables: Mapping[str, str], stdout: int, stderr: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a command; it is forked, unless it has variables or a standard output of its own."""
        if not variables.keys() <= INHERITED or stdout != subprocess.PIPE or stderr is None:
            return start_cold(arguments, variables, stdout, stderr)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            return self._start(SHARDMQ, arguments, variables, [writer, stderr], open(reader, "rb"))
        finally:
            os.close(writer)

    def run(self, function: str, *arguments: str) -> Warm:
        """Start `module:function` in a process of its own, which writes where this one does.

        Args:
            function: takes the arguments as a tuple; what it returns is the exit code.
            arguments: for it.
        """
        return self._start(function, arguments, {}, [1, 2])

    def supervise(self, function: str, arguments: tuple[str, ...], output: int) -> Warm:
        """Start a supervisor, which ends with the warm process and writes to a file descriptor."""
        return self._start(function, arguments, {notify.SUPERVISOR: str(os.getpid())}, [output, output])

    def _start(
        self,
        function: str,
        arguments: tuple[str, ...],
        variables: Mapping[str, str],
        outputs: list[int],
        stdout: Any = None,
    ) -> Warm:
        with self._lock:
            control = self._control = self._control or self._begin()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        limits = [resource.getrlimit(number) for number in RESOURCES]
        request = Request(function, arguments, invocation.environment(**variables), str(Path.cwd()), limits)
        with theirs:
            socket.send_fds(control, [msgspec.msgpack.encode(request)], [theirs.fileno(), *outputs])
        return Warm(ours, stdout)

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * REQUEST_BYTES_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=invocation.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        return ours


warm_process: Final = WarmProcess()
"""That of a worker of pytest."""


def quick_hash(password: str) -> str:
    """A hash that takes no time to make and to verify."""
    with patch.object(passwords, "COST", QUICK_PASSWORDS):
        return passwords.hash_password(password)


def fork(
    function: str,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    stdout: int,
    stderr: int,
    folder: str = "",
    limits: list[tuple[int, int]] | None = None,
) -> int:
    """Call `module:function` in a child of this process; returns the child's process id."""
    parent = os.getpid()

    def work() -> int:
        if folder:
            os.chdir(folder)
        for number, limit in zip(RESOURCES, limits or [], strict=False):
            resource.setrlimit(number, limit)
        if notify.SUPERVISOR in environment:
            os.environ[notify.SUPERVISOR] = str(parent)
        passwords.COST = int(environment.get(PASSWORD_COST, QUICK_PASSWORDS))  # type: ignore[misc]
        if name.startswith("tests."):
            sys.path.append(str(Path(__file__).parents[1]))
        module = importlib.import_module(name)
        sys.argv = [str(module.__file__), *arguments]
        code = getattr(module, attribute)(arguments)
        assert isinstance(code, int)
        return code

    name, _, attribute = function.partition(":")
    return invocation.fork(work, [sys.executable, "-P", "-m", name, *arguments], environment, stdout, stderr).pid


def spawn_forked(
    arguments: tuple[str, ...], variables: Mapping[str, str], stdout: int, stderr: int | None = None
) -> invocation.Forked:
    """What `invocation.spawn` is in the warm process: a command starts as a fork of it."""
    environment = invocation.environment(**variables)
    return invocation.Forked(fork(SHARDMQ, arguments, environment, stdout, 2 if stderr is None else stderr))


def serve(control: socket.socket) -> None:
    """Be the warm process until the owner has gone."""
    for module in PRELOADED:
        importlib.import_module(module)
    for messages in (ToShard, FromShard, ToCoordinator, FromCoordinator):
        envelope_decoder(messages)  # what it finds out of a message stays with the message's class
    invocation.spawn = spawn_forked
    gc.collect()
    gc.freeze()
    children: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    data, fds, _, _ = socket.recv_fds(control, 2 * REQUEST_BYTES_MAX, 3)
                    if not data:
                        return  # and the kernel ends what was forked here
                    life, child = _start(data, fds)
                    children[life] = child
                    selector.register(life, selectors.EVENT_READ)
                else:
                    selector.unregister(key.fd)
                    pid, teller = children.pop(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(pid, 0)
                    with teller, contextlib.suppress(BrokenPipeError):  # nobody may wait for it any more
                        teller.send(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _start(data: bytes, fds: list[int]) -> tuple[int, tuple[int, socket.socket]]:
    request = msgspec.msgpack.decode(data, type=Request)
    teller = socket.socket(fileno=fds[0])
    pid = fork(request.function, request.arguments, request.environment, fds[1], fds[2], request.folder, request.limits)
    os.close(fds[1])
    os.close(fds[2])
    teller.send(NUMBER.pack(pid))
    return os.pidfd_open(pid), (pid, teller)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
