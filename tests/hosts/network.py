"""Network namespaces on one bridge, and what is done to the traffic between them."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.hosts.members import MEMORY, Process, state
from tests.running import NotAllowed

PREFIX = "shardmq"
NEEDED = ("ip", "bridge", "nft", "setpriv")
SUBNET = "198.18.0"  # for benchmarks of networks; nothing outside the namespaces sees it
CLONE_NEWNET = 0x40000000
ENDING_SECONDS = 10.0


def run(*command: str, given: str = "") -> str:
    """Run a command of the administrator; what it says."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=30, check=False)
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
        raise NotAllowed(f"network namespaces are not allowed here: {fault}") from fault
    run("ip", "netns", "del", probe)


class Namespace:
    """The network namespace of one host.

    Args:
        name: of the host.
        number: of it in the subnet.
    """

    def __init__(self, name: str, number: int) -> None:
        self.host = name
        self.name = f"{PREFIX}-{os.getpid()}-{name}"
        self.address = f"{SUBNET}.{number}"
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.port = f"port-{name}"
        self.prefix = ("ip", "netns", "exec", self.name)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes are of this namespace."""
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

    def signal(self, number: int) -> set[int]:
        """Send a signal to all processes there, those included that they start meanwhile; returns which these were."""
        sent: set[int] = set()
        while left := set(self.pids()) - sent:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            sent |= left
        return sent


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network:
    """Namespaces on a bridge, inside a `with` block.

    Args:
        names: of the hosts.
        folder: for what the delay line says.

    Raises:
        Absent: namespaces are not allowed here.
    """

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        check_means()
        remove_leftovers()
        self.namespaces = {name: Namespace(name, number) for number, name in enumerate(names, start=1)}
        self._hub = Namespace("bridge", 254)
        self._folder = folder
        self._cuts: set[tuple[str, str]] = set()
        self._losses: dict[tuple[str, str], float] = {}
        self._delays: dict[tuple[str, str], float] = {}
        self._line: Process | None = None

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove all namespaces, and what still runs in them."""
        if self._line is not None:
            self._line.kill()
        for namespace in (*self.namespaces.values(), self._hub):
            _remove(namespace.name)

    def cut(self, one: str, other: str, one_way: bool = False) -> None:
        self._cuts |= {(one, other)} if one_way else {(one, other), (other, one)}
        self._apply(one, other)

    def isolate(self, *names: str) -> None:
        for name in names:
            for other in self.namespaces.keys() - set(names):
                self._cuts |= {(name, other), (other, name)}
        self._apply(*self.namespaces)

    def lose(self, sender: str, receiver: str, share: float) -> None:
        self._losses[sender, receiver] = share
        self._apply(receiver)

    def delay(self, sender: str, receiver: str, seconds: float) -> None:
        """Raises Absent where there is no /dev/net/tun."""
        if self._line is None:
            self._line = self._start_line()
        self._delays[sender, receiver] = seconds
        self._divert()

    @contextmanager
    def on_bridge(self) -> Iterator[None]:
        """Sockets that this thread makes are where the bridge is."""
        with self._hub.inside():
            yield

    def heal(self) -> None:
        self.become(set(), {}, {})

    def become(
        self, cuts: set[tuple[str, str]], losses: dict[tuple[str, str], float], delays: dict[tuple[str, str], float]
    ) -> None:
        """Have these cuts, losses and delays, by sender and receiver, and no others."""
        changed = {to for _, to in cuts ^ self._cuts} | {to for (_, to), _ in losses.items() ^ self._losses.items()}
        self._cuts, self._losses = cuts, losses
        self._apply(*changed)
        if delays != self._delays:
            if self._line is None:
                self._line = self._start_line()
            self._delays = delays
            self._divert()

    def _make(self) -> None:
        hub = self._hub.name
        run("ip", "netns", "add", hub)
        run("ip", "-n", hub, "link", "add", "name", "br0", "up", "type", "bridge")
        for namespace in self.namespaces.values():
            run("ip", "netns", "add", namespace.name)
            link = f"link add name {namespace.port} netns {hub} type veth peer name eth0 netns {namespace.name}"
            run("ip", *link.split())
            steps = f"""
                link set eth0 address {namespace.mac}
                addr add {namespace.address}/24 dev eth0
                link set eth0 up
                link set lo up
            """
            run("ip", "-n", namespace.name, "-batch", "-", given=steps)
            run("ip", "-n", hub, "link", "set", namespace.port, "master", "br0")
            # The bridge need not learn who is where: frames that come late, by the delay line, would mislead it.
            run("bridge", "-n", hub, "link", "set", "dev", namespace.port, "learning", "off")
            run("bridge", "-n", hub, "fdb", "add", namespace.mac, "dev", namespace.port, "master", "static")
            run("ip", "-n", hub, "link", "set", namespace.port, "up")
        self._apply(*self.namespaces)

    def _apply(self, *receivers: str) -> None:
        """Write the rules of hosts anew: cuts and losses are made where frames arrive."""
        for receiver in receivers:
            rules = [f"ip saddr {self.namespaces[sender].address} drop" for sender, to in self._cuts if to == receiver]
            rules += [
                f"ip saddr {self.namespaces[sender].address} numgen random mod 10000 < {round(share * 10_000)} drop"
                for (sender, to), share in self._losses.items()
                if to == receiver
            ]
            table = "\n".join(
                [
                    "table inet faults",
                    "delete table inet faults",
                    "table inet faults { chain arriving { type filter hook input priority 0; policy accept;",
                    *rules,
                    "}",
                    "}",
                ]
            )
            run(*self.namespaces[receiver].prefix, "nft", "-f", "-", given=table)

    def _divert(self) -> None:
        """Tell the delay line what is delayed by how much, and send it the frames."""
        assert self._line is not None
        addresses = {name: namespace.address for name, namespace in self.namespaces.items()}
        table = [[addresses[one], addresses[other], seconds] for (one, other), seconds in self._delays.items()]
        new = self._folder / "delays.new"
        new.write_text(json.dumps(table))
        new.rename(self._folder / "delays")
        os.kill(self._line.pid, signal.SIGHUP)
        chains = [
            f'chain {name} {{ type filter hook ingress device "{namespace.port}" priority 0; policy accept;\n'
            + "\n".join(f'ip daddr {addresses[other]} fwd to "line"' for one, other in self._delays if one == name)
            + "\n}"
            for name, namespace in self.namespaces.items()
        ]
        ruleset = "\n".join(
            ["table netdev delays", "delete table netdev delays", "table netdev delays {", *chains, "}"]
        )
        run(*self._hub.prefix, "nft", "-f", "-", given=ruleset)

    def _start_line(self) -> Process:
        if not Path("/dev/net/tun").exists():
            raise NotAllowed("there is no /dev/net/tun, by which frames are delayed")
        hub = self._hub.name
        for device in ("line", "back"):
            run("ip", "-n", hub, "tuntap", "add", "dev", device, "mode", "tap")
        run("ip", "-n", hub, "link", "set", "line", "txqueuelen", "10000", "up")
        run("ip", "-n", hub, "link", "set", "back", "master", "br0", "up")
        settings = "learning off flood off mcast_flood off bcast_flood off"
        run("bridge", "-n", hub, "link", "set", "dev", "back", *settings.split())
        (self._folder / "delays").write_text("[]")
        program = str(Path(__file__).with_name("delay_line.py"))
        output = self._folder / "delay_line.log"
        line = Process([sys.executable, program, str(self._folder / "delays")], output, self._hub.prefix)
        deadline = time.monotonic() + ENDING_SECONDS
        while "ready" not in output.read_text():
            if line.has_ended or time.monotonic() > deadline:
                raise RuntimeError(f"the delay line does not start: {output.read_text()}")
            time.sleep(0.01)
        return line


def remove_leftovers() -> list[str]:
    """Remove what runs have left that ended without cleaning up: namespaces with their processes, and folders of etcd.

    Returns:
        Names of what was removed.
    """
    removed = []
    for line in run("ip", "netns", "list").splitlines():
        if _is_of_the_dead(name := line.split()[0]):
            _remove(name)
            removed.append(name)
    for folder in MEMORY.glob(f"{PREFIX}-*"):
        if _is_of_the_dead(folder.name):
            _unmount(folder)
            with suppress(FileNotFoundError):  # another run removes it, too
                shutil.rmtree(folder)
            removed.append(folder.name)
    return removed


def _unmount(folder: Path) -> None:
    """Let go of the disks that hosts had below a folder."""
    for line in Path("/proc/mounts").read_text().splitlines():
        where = Path(line.split()[1])
        if where.is_relative_to(folder):
            with suppress(RuntimeError):  # another run does it, too; what is still mounted, rmtree tells
                run("umount", "--lazy", str(where))


def _is_of_the_dead(name: str) -> bool:
    """Whether something carries the pid of a test run that is over."""
    found = re.match(rf"{PREFIX}-(\d+)-", name)
    return found is not None and state(int(found[1])) in "ZX"


def _remove(name: str) -> None:
    """Remove a namespace, which may not be there, and kill what runs in it."""
    if not Path(f"/run/netns/{name}").exists():
        return
    deadline = time.monotonic() + ENDING_SECONDS
    try:
        while pids := [pid for pid in run("ip", "netns", "pids", name).split() if int(pid) != os.getpid()]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            assert time.monotonic() < deadline, f"{pids} in {name} do not end"
            time.sleep(0.01)
        run("ip", "netns", "del", name)
    except RuntimeError:
        if Path(f"/run/netns/{name}").exists():  # else another run has removed it, too
            raise
