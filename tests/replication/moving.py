"""A broker whose shards and coordinator move between two hosts, as far as gateways can tell.

Its processes are today's, each with a store of its own. A move freezes the old process, copies its store to the other
host, starts a process there, and writes to etcd who leads now. So all that the old one has confirmed is on the other
host, and what it does when it goes on is what a deposed primary could do at worst: it has no followers to stop it.
"""

import contextlib
import inspect
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from shardmq.bus.curve import CurveKeys
from shardmq.coordinator.process import CoordinatorOptions
from shardmq.coordinator.process import run as run_coordinator
from shardmq.gateway.process import GatewayOptions
from shardmq.gateway.process import run as run_gateway
from shardmq.limits import MESSAGE_BYTES_HIGHEST
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import Stored
from shardmq.replication.etcd.url import parse
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, Broker, Host, Kind
from tests.hosts.members import state
from tests.ports import free_ports
from tests.warm import SHARDMQ, Warm, warm_process

HOST_NAMES = ("a", "b")
SHARD_COUNT = 2
BROKER_ID = "b0b0"
PATIENCE_SECONDS = 60.0
INSECURE = CurveKeys(is_insecure=True)


def coordinator(arguments: tuple[str, ...]) -> int:
    """Be the coordinator on a host: data directory, address, etcd, name of the host."""
    folder, listen, join, host = arguments
    run_coordinator(CoordinatorOptions(Path(folder), listen, (), BROKER_ID, INSECURE, join=join, host_name=host))
    return 0


def gateway(arguments: tuple[str, ...]) -> int:
    """Be a gateway: name, port, etcd."""
    name, port, join = arguments
    run_gateway(
        GatewayOptions(
            name, "127.0.0.1", int(port), "", (), INSECURE, join=join, message_bytes_max=MESSAGE_BYTES_HIGHEST
        )
    )
    return 0


class MovingBroker:
    """Two shards and a coordinator on host a, a gateway on each host.

    Args:
        folder: for the stores.
        etcd: its URL, without a prefix.
        prefix: of this broker's keys.
    """

    def __init__(self, folder: Path, etcd: str, prefix: str) -> None:
        self.folder = folder
        self.join = f"{etcd}/{prefix}"
        self.groups = ["coordinator", *(f"shard-{number}" for number in range(SHARD_COUNT))]
        ports = iter(free_ports(len(HOST_NAMES) * (len(self.groups) + 1)))
        self.addresses = {
            host: {group: f"tcp://127.0.0.1:{next(ports)}" for group in self.groups} for host in HOST_NAMES
        }
        self.ports = {host: next(ports) for host in HOST_NAMES}
        for host, port in self.ports.items():
            self.addresses[host]["gateway"] = f"127.0.0.1:{port}"
        self.leads = dict.fromkeys(self.groups, "a")
        self.terms = dict.fromkeys(self.groups, 1)
        self.processes: dict[tuple[str, str], Warm] = {}
        self.deposed: dict[tuple[str, str], Warm] = {}
        self.register = BackgroundRegister(parse(self.join), f"test-{prefix}")

    def __enter__(self) -> Self:
        for group in self.groups:
            self.start("a", group)
        for host in HOST_NAMES:
            self.start_gateway(host)
        self.put(BROKER, "", Broker(BROKER_ID, SHARD_COUNT, 2))
        for host in HOST_NAMES:
            self.put(HOSTS, host, Host("s", self.addresses[host]))
        for group in self.groups:
            self.lead(group, "a", 1)
        until(lambda: all(is_listening(port) for port in self.ports.values()))
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.processes.values(), *self.deposed.values()]:
            process.kill()
            process.wait()
        self.register.close()

    @property
    def url(self) -> str:
        """Of both gateways."""
        return f"shardmq://guest:guest@127.0.0.1:{self.ports['a']},127.0.0.1:{self.ports['b']}/"

    def url_of(self, host: str) -> str:
        return f"shardmq://guest:guest@127.0.0.1:{self.ports[host]}/"

    def start(self, host: str, group: str) -> None:
        """Start a group's process on a host, on the store that lies there."""
        where = self.folder / host
        where.mkdir(mode=0o700, exist_ok=True)
        address = self.addresses[host][group]
        if group == "coordinator":
            program = "tests.replication.moving:coordinator", str(where), address, self.join, host
            self.processes[host, group] = warm_process.run(*program)
            return
        number = group.removeprefix("shard-")
        options = "--data-dir", str(where), "--listen", address, "--insecure-bus"
        self.processes[host, group] = warm_process.run(SHARDMQ, "shard", "--index", number, *options)

    def start_gateway(self, host: str) -> None:
        program = "tests.replication.moving:gateway", f"{host}.gateway-0", str(self.ports[host]), self.join
        self.processes[host, "gateway"] = warm_process.run(*program)

    def freeze(self, host: str, group: str) -> Warm:
        """Stop a group's process where it stands; it leads no more."""
        process = self.processes.pop((host, group))
        process.send_signal(signal.SIGSTOP)
        while state(process.pid) not in "TtZX":
            time.sleep(0.001)
        self.deposed[host, group] = process
        return process

    def move(self, group: str, is_frozen: bool = True) -> Warm:
        """Have the other host lead a group; returns the process of before, which is frozen, or killed."""
        process = self.freeze(self.leads[group], group)
        self.take_over(group)
        if not is_frozen:
            process.kill()
            process.wait()
        return process

    def take_over(self, group: str) -> None:
        """Have the other host lead a group whose process is frozen."""
        old = self.leads[group]
        new = "b" if old == "a" else "a"
        if (new, group) in self.deposed:
            before = self.deposed.pop((new, group))
            before.kill()
            before.wait()
        source, target = (self.folder / host / group for host in (old, new))
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copytree(source, target)
        self.start(new, group)
        self.lead(group, new, self.terms[group] + 1)

    def lead(self, group: str, host: str, term: int) -> None:
        """Write to etcd who leads a group."""
        self.put(GROUPS, group, Group("f00d", term, host, HOST_NAMES, HOST_NAMES))
        self.leads[group], self.terms[group] = host, term

    def put(self, kind: Kind[Any], name: str, value: msgspec.Struct) -> None:
        self.register.change(kind, name, lambda _: value)
        until(lambda: any(isinstance(news, Stored) for news in self.register.take()))


def is_listening(port: int) -> bool:
    """Whether a gateway takes clients."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def until(holds: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: with the lines of what did not hold.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds:g} s: {inspect.getsource(holds).strip()}"
        time.sleep(0.005)


def until_passes(check: Callable[[], object]) -> None:
    """Wait until a check passes: on a busy machine a replica is late now and then, and all are in sync again soon."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
