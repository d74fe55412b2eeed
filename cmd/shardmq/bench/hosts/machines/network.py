"""Network namespaces on one bridge: hosts of their own, on one machine, which can be cut off from one another."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from shardmq.cmd.bench.compare.rabbitmq import Absent

PREFIX: Final = "shardmq"
NEEDED: Final = ("ip", "bridge", "nft", "setpriv", "unshare")
SUBNET: Final = "198.18.0"
"""For benchmarks of networks (RFC 2544); nothing outside the namespaces sees it."""

CLONE_NEWNET: Final = 0x40000000
ENDING_SECONDS: Final = 10.0
COMMAND_SECONDS: Final = 30.0


def run(*command: str, given: str = "") -> str:
    """Run a command of the administrator; what it says.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def check_means() -> None:
    """Whether network namespaces can be had.

    Raises:
        Absent: they cannot; the text says why.
    """
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise Absent(f"{', '.join(missing)} is not installed (Debian: iproute2, nftables, util-linux)")
    probe = f"{PREFIX}-{os.getpid()}-probe"
    try:
        run("ip", "netns", "add", probe)
    except RuntimeError as fault:
        raise Absent(f"network namespaces, which only root may make, are not allowed here: {fault}") from fault
    run("ip", "netns", "del", probe)


class Namespace:
    """The network namespace of one host.

    Args:
        host: name of the host.
        number: of it in the subnet.

    Attributes:
        name: of the namespace.
        address: of the host.
        prefix: before the words of a command that is to run there.
    """

    def __init__(self, host: str, number: int) -> None:
        self.host = host
        self.name = f"{PREFIX}-{os.getpid()}-{host}"
        self.address = f"{SUBNET}.{number}"
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.port = f"port-{host}"
        self.prefix = ("ip", "netns", "exec", self.name)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What this thread opens and starts meanwhile is there: sockets, threads, processes."""
        with open("/proc/thread-self/ns/net", "rb") as outside, open(f"/run/netns/{self.name}", "rb") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(outside.fileno())

    def pids(self) -> list[int]:
        """All processes there, but this one."""
        found = run("ip", "netns", "pids", self.name).split()
        return [int(pid) for pid in found if int(pid) != os.getpid()]

    def signal(self, number: int) -> None:
        """Send a signal to all processes there, those included that they start meanwhile."""
        sent: set[int] = set()
        while left := set(self.pids()) - sent:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            sent |= left

    def received_bytes(self) -> int:
        """Bytes that came over its network."""
        return int(run(*self.prefix, "cat", "/sys/class/net/eth0/statistics/rx_bytes"))


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network:
    """Namespaces on a bridge, inside a `with` block; they end with all that runs in them.

    Args:
        hosts: their names.

    Attributes:
        namespaces: by the hosts' names.

    Raises:
        Absent: namespaces are not allowed here.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        check_means()
        self.namespaces = {host: Namespace(host, number) for number, host in enumerate(hosts, start=1)}
        self._hub = Namespace("bridge", 254)
        self._holds = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._holds:
            self._make()
            self._holds = self._holds.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holds.close()

    def isolate(self, host: str) -> None:
        """Lose all that a host sends to others, and all that they send to it, silently."""
        for name, namespace in self.namespaces.items():
            rule = 'iifname "eth0" drop' if name == host else f"ip saddr {self.namespaces[host].address} drop"
            chain = f"chain arriving {{ type filter hook input priority 0; policy accept; {rule}; }}"
            run(*namespace.prefix, "nft", f"table inet faults {{\n{chain}\n}}")

    def heal(self) -> None:
        """Nobody is cut off any more."""
        for namespace in self.namespaces.values():
            run(*namespace.prefix, "nft", "flush", "ruleset")

    def _make(self) -> None:
        hub = self._hub.name
        self._add(self._hub)
        run("ip", "-n", hub, "link", "add", "name", "br0", "up", "type", "bridge")
        for namespace in self.namespaces.values():
            self._add(namespace)
            link = f"link add name {namespace.port} netns {hub} type veth peer name eth0 netns {namespace.name}"
            run("ip", *link.split())
            steps = f"""
                link set eth0 address {namespace.mac}
                addr add {namespace.address}/24 dev eth0
                link set eth0 up
                link set lo up
            """
            run("ip", "-n", namespace.name, "-batch", "-", given=steps)
            run("ip", "-n", hub, "link", "set", namespace.port, "master", "br0", "up")

    def _add(self, namespace: Namespace) -> None:
        run("ip", "netns", "add", namespace.name)
        self._holds.callback(_remove, namespace)


def _remove(namespace: Namespace) -> None:
    """Remove a namespace, and kill what runs in it."""
    deadline = time.monotonic() + ENDING_SECONDS
    while namespace.pids() and time.monotonic() < deadline:
        namespace.signal(signal.SIGKILL)
        time.sleep(0.01)
    run("ip", "netns", "del", namespace.name)


def state(pid: int) -> str:
    """A letter of /proc/PID/stat: T for a process that stands, Z for one that has ended, X for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"
