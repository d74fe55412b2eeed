"""Three hosts, an etcd of three members and a client, each in a network namespace of its own."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.hosts.members import Etcd, Member, Process, program, state, temporary_folder
from tests.hosts.network import Namespace, Network

NAMES: Final = ("a", "b", "c")
MEMBERS: Final = ("e1", "e2", "e3")
CLIENT: Final = "client"
CLIENT_PORT, PEER_PORT = 2379, 2380  # each has an address of its own


class Host:
    """One host.

    Args:
        namespace: its own.
        folder: for what its processes keep and say.

    Attributes:
        name: `a`, `b` or `c`.
        address: at which others reach it.
        folder: of its processes.
    """

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.name = namespace.host
        self.address = namespace.address
        self.folder = folder
        self._namespace = namespace
        self._processes: list[Process] = []

    @property
    def prefix(self) -> tuple[str, ...]:
        """Before the words of a command that is to run there."""
        return self._namespace.prefix

    def spawn(self, command: Sequence[str], output: Path | None = None) -> Process:
        """Start a process there, which ends with the test run."""
        process = Process(command, output or self.folder / f"{len(self._processes)}.log", self._namespace.prefix)
        self._processes.append(process)
        return process

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this thread makes are on this host."""
        with self._namespace.inside():
            yield

    def freeze(self) -> None:
        self._namespace.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._namespace.signal(signal.SIGCONT)

    def kill(self) -> None:
        """All its processes, as a power failure would, but for what is on disk."""
        killed = self._namespace.signal(signal.SIGKILL)
        for process in self._processes:
            process.kill()
        while any(state(pid) not in "ZX" for pid in killed):  # sockets and files are theirs until they have ended
            time.sleep(0.002)


class Hosts:
    """All of them, inside a `with` block.

    Args:
        etcd_of: makes etcd of its members.

    Attributes:
        etcd: its members, each on a host of its own.

    Raises:
        Absent: namespaces are not allowed here, or etcd is not installed.
        NotStarted: etcd does not start.
    """

    def __init__(self, etcd_of: Callable[[Sequence[Member]], Etcd] = Etcd) -> None:
        program()
        self._etcd_of = etcd_of
        self.folder = temporary_folder("hosts")
        self._stack = ExitStack()
        self._stack.callback(shutil.rmtree, self.folder)

    def __enter__(self) -> Self:
        with self._stack:
            self.network = self._stack.enter_context(Network((*NAMES, *MEMBERS, CLIENT), self.folder))
            self._hosts = {name: self._host(name) for name in (*NAMES, CLIENT)}
            members = [self._member(self.network.namespaces[name]) for name in MEMBERS]
            self.etcd = self._stack.enter_context(self._etcd_of(members))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def cut(self, one: str, other: str, one_way: bool = False) -> None:
        """Lose what two hosts send to one another; one way: only what `one` sends."""
        self.network.cut(one, other, one_way)

    def isolate(self, *names: str) -> None:
        """Cut these hosts from all others, but not from one another."""
        self.network.isolate(*names)

    def lose(self, sender: str, receiver: str, share: float) -> None:
        """Lose a share of what one host sends to another, by chance."""
        self.network.lose(sender, receiver, share)

    def delay(self, sender: str, receiver: str, seconds: float) -> None:
        """Have what one host sends to another come later."""
        self.network.delay(sender, receiver, seconds)

    def heal(self) -> None:
        """End all cuts, losses and delays."""
        self.network.heal()

    def _host(self, name: str) -> Host:
        folder = self.folder / name
        folder.mkdir()
        host = Host(self.network.namespaces[name], folder)
        self._stack.callback(host.kill)
        return host

    def _member(self, namespace: Namespace) -> Member:
        ports = (CLIENT_PORT, PEER_PORT)
        return Member(namespace.host, namespace.address, ports, self.folder, namespace.prefix, namespace.inside)
