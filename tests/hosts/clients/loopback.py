"""A broker on three hosts of one machine, each at a loopback address of its own; a host dies with all its processes."""

import base64
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from shardmq.cmd.run.invocation import command, environment
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import GROUPS, decode
from tests.hosts.members import Etcd, Process, Supervisor
from tests.ports import free_run

NAMES: Final = ("a", "b", "c")
START_SECONDS: Final = 120.0
BUS_PORTS: Final = 4
"""Of one host: two for the coordinator, two for its shard."""


class LoopbackBroker:
    """One broker on hosts a, b and c, each of which has a replica of everything.

    Args:
        etcd: where it is registered.
        folder: for what it keeps and says.

    Attributes:
        addresses: of the hosts, by name.
        port: of all gateways.
    """

    def __init__(self, etcd: Etcd, folder: Path) -> None:
        self._prefix = folder.name
        self._join = f"{etcd.url}/{folder.name}"
        self._etcd = f"http://{etcd.members[0].host}:{etcd.members[0].port}"
        self.port, self._bus_port = free_run(1), free_run(BUS_PORTS)
        network = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
        self.addresses = {name: f"{network}.{number}" for number, name in enumerate(NAMES, 1)}
        self._folder = folder
        self._ups: dict[str, Process] = {}

    def start(self) -> None:
        """Start all hosts, wait until they are up, and make the user `app` with the password `secret`."""
        for name in NAMES:
            self.launch(name)
        for name, up in self._ups.items():
            self.wait_for(lambda up=up: up.has_ended or '"event":"up"' in up.output.read_text(), f"{name} is up")
            assert not up.has_ended, self.last_words()
        guest = ("--url", f"shardmq://guest:guest@{self.addresses['a']}:{self.port}/")
        for words in (("user", "add", "app", "--password", "secret"), ("permission", "set", "app", ".*", ".*", ".*")):
            self._run(*words, *guest)

    def launch(self, name: str, *variables: str) -> Process:
        """Start a host.

        Args:
            name: of the host.
            variables: of its environment, as `NAME=value`.
        """
        log = self._folder / f"{name}.log"
        if variables:
            self._ups[name] = Process(["env", *variables, *command(*self._words(name))], log)
        else:
            self._ups[name] = Supervisor(self._words(name), log)
        return self._ups[name]

    def _words(self, name: str) -> tuple[str, ...]:
        address = self.addresses[name]
        return (
            *("up", "--join", self._join, "--host-name", name, "--host-address", address, "--host", address),
            *("--port", str(self.port), "--bus-port", str(self._bus_port), "--insecure-bus"),
            *("--hosts", ",".join(NAMES), "--shards", "1", "--replicas", "3", "--gateways", "1"),
            *("--data-dir", str(self._folder / name), "--management-port", "off"),
            *("--memory-watermark", "1GiB", "--json"),
        )

    def kill(self, name: str) -> None:
        """kill -9 of all processes of a host."""
        up = self._ups[name]
        pids = [up.pid, *children(up.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        up.kill()

    def close(self) -> None:
        """End all hosts."""
        for name, up in self._ups.items():
            if not up.has_ended:
                self.kill(name)

    def group(self, name: str) -> Group:
        """A group, as etcd has it. A command that asks for it would take longer than an election."""
        key = base64.b64encode(f"/{self._prefix}/groups/{name}".encode()).decode()
        asked = urllib.request.Request(f"{self._etcd}/v3/kv/range", json.dumps({"key": key}).encode())
        with urllib.request.urlopen(asked, timeout=START_SECONDS) as answer:
            (found,) = json.load(answer)["kvs"]
        return decode(GROUPS, name, base64.b64decode(found["value"]))[0]

    def primary(self, group: str) -> str:
        """The host that leads a group."""
        return self.group(group).primary

    def transfer(self, group: str, host: str) -> None:
        """Have a group led by another host."""
        self._run("shard", "transfer", group, host, "--join", self._join)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            command(*words), env=environment(), capture_output=True, text=True, timeout=START_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_for(self, holds: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}\n{self.last_words()}"
            time.sleep(0.02)

    def said(self, name: str) -> str:
        """What a host has said."""
        return self._ups[name].output.read_text(errors="replace")

    def last_words(self) -> str:
        """What the hosts have said."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-6000:]}" for log in logs)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
