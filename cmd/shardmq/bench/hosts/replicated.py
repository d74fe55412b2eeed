"""A shardmq on several hosts, started and asked by the commands that its documents name."""

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.compare.load import last_line, new_name
from shardmq.cmd.bench.hosts.machines.machine import Machine, wait_for
from shardmq.cmd.hosts.register import BrokerRegister, opened
from shardmq.cmd.run.invocation import command
from shardmq.errors import ShardmqError
from shardmq.replication.core.group import Group

NAMES: Final = ("a", "b", "c")
PORT: Final = 5672
USER: Final = "app"
PASSWORD: Final = "secret"
SHARD: Final = "shard-0"
"""The group that faults befall."""

START_SECONDS: Final = 60.0
COMMAND_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.02
QUEUES_MAX: Final = 200


class Replicated:
    """One shardmq on hosts a, b and c, inside a `with` block.

    Args:
        machines: the hosts.
        folder: for their data.
        join: URL of etcd, with the prefix.
        shards: how many shards it has.
        replicas: of each shard.
        min_in_sync: publishes are refused while fewer replicas are in sync.

    Attributes:
        machines: by the hosts' names.
    """

    def __init__(
        self, machines: Sequence[Machine], folder: Path, join: str, shards: int, replicas: int, min_in_sync: int
    ) -> None:
        self.machines = dict(zip(NAMES, machines, strict=True))
        self._folder = folder
        self._join = join
        self._shards = shards
        self._made_with = ("--shards", str(shards), "--replicas", str(replicas), "--min-in-sync", str(min_in_sync))
        self._starts: Counter[str] = Counter()
        self._holds = contextlib.ExitStack()
        self._register: BrokerRegister | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir()
        with self._holds:
            keys = ("--shards", str(self._shards), "--gateways", "1", "--dir", str(self._folder / "keys"))
            self._run((), "keys", "hosts", *NAMES, *keys)
            for machine in self.machines.values():
                self._holds.callback(machine.kill)
            self.start(*NAMES)
            self._register = self._holds.enter_context(opened(self._join))
            self.wait_until_whole()
            # guest may come from its own machine alone
            there, guest = self.machines["a"].prefix, ("--url", f"shardmq://guest:guest@127.0.0.1:{PORT}/")
            self._run(there, "user", "add", USER, "--password", PASSWORD, *guest)
            self._run(there, "permission", "set", USER, ".*", ".*", ".*", *guest)
            self._holds = self._holds.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.close()

    def url(self, *without: str) -> str:
        """For the SDK: all gateways, those of some hosts not."""
        hosts = [f"{machine.address}:{PORT}" for name, machine in self.machines.items() if name not in without]
        return f"shardmq://{USER}:{PASSWORD}@{','.join(hosts)}/"

    @property
    def first(self) -> Machine:
        """The first host."""
        return self.machines[NAMES[0]]

    def start(self, *names: str) -> None:
        """Start hosts, and wait until they are up."""
        for name in names:
            self.launch(name)
        for name in names:
            self.await_up(name)

    def launch(self, name: str) -> None:
        """Start a host."""
        self._starts[name] += 1
        address = self.machines[name].address
        words = ["up", "--join", self._join, "--hosts", ",".join(NAMES), *self._made_with, "--gateways", "1"]
        words += ["--host-name", name, "--host-address", address, "--keys", str(self._folder / "keys" / name)]
        words += ["--data-dir", str(self._folder / name), "--management-port", "off", "--json"]
        self.machines[name].spawn(command(*words), self._log(name))

    def await_up(self, name: str) -> None:
        """Wait until a host that was started is up.

        Raises:
            Timeout: it is not in time.
        """
        log = self._log(name)
        wait_for(lambda: '"event":"up"' in log.read_text(), f"host {name} is up", START_SECONDS)

    def come_back(self, machine: Machine) -> None:
        """Start a host again that was killed, and wait until all replicas are in sync."""
        self.start(*(name for name, each in self.machines.items() if each is machine))
        self.wait_until_whole()

    def led_queue(self) -> tuple[str, Machine, str]:
        """Declare a queue; returns its name, the host that leads it, and a URL of the others."""
        queue, primary = self.new_queue(), self.primary()
        return queue, self.machines[primary], self.url(primary)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}-{self._starts[name]}.log"

    def tell(self, *words: str) -> None:
        """Run a command about hosts or shards.

        Raises:
            ShardmqError: it failed.
        """
        self._run((), *words, "--join", self._join)

    def group(self, name: str = SHARD) -> Group:
        """What etcd has of a replica group."""
        assert self._register is not None
        return self._register.cluster().groups[name]

    def is_whole(self) -> bool:
        """Whether all replicas of all groups are in sync, and as many as there should be."""
        assert self._register is not None
        cluster = self._register.cluster()
        wanted = cluster.broker.replicas
        return len(cluster.groups) == self._shards + 1 and all(
            len(group.in_sync) == len(group.replicas) == wanted and group.primary in group.in_sync
            for group in cluster.groups.values()
        )

    def wait_until_whole(self) -> None:
        """Wait until all replicas are in sync.

        Raises:
            Timeout: they are not in time.
        """
        self.wait_until(self.is_whole, "all replicas are in sync")

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
        """Wait until something holds, which etcd is asked for.

        Raises:
            Timeout: it does not in time.
        """

        def looked() -> bool:
            time.sleep(LOOK_SECONDS)
            return holds()

        wait_for(looked, what, seconds)

    def primary(self) -> str:
        """The host that leads the group that faults befall."""
        return self.group().primary

    def follower(self) -> str:
        """A host that follows it in sync."""
        group = self.group()
        return min({*group.in_sync} - {group.primary})

    def pid(self, host: str) -> int:
        """The process on a host that has a replica of the group that faults befall."""
        index = SHARD.rpartition("-")[2]
        (pid,) = [pid for pid in self.machines[host].pids() if _is_shard(_words(pid), index)]
        return pid

    def pids(self) -> tuple[int, ...]:
        """All processes of all hosts."""
        return tuple(pid for machine in self.machines.values() for pid in machine.pids())

    def store_bytes(self, host: str) -> int:
        """What the store of the group that faults befall takes of a host's disk."""
        folder = self._folder / host / SHARD
        return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())

    def new_queue(self) -> str:
        """Declare a queue on the shard that faults befall; returns its name.

        Raises:
            ShardmqError: none of many came to be there.
        """
        with connect(self.url()) as connection, connection.channel() as channel:
            for _ in range(QUEUES_MAX):
                name = new_name()
                channel.queue_declare(name, durable=True)
                (row,) = [row for row in connection.topology("queues") if row["name"] == name]
                if f"shard-{row['shard']}" == SHARD:
                    return name
                channel.queue_delete(name)
        raise ShardmqError(f"none of {QUEUES_MAX} queues is on {SHARD}")

    def delete_queue(self, name: str) -> None:
        """Delete a queue, and what is in it."""
        with connect(self.url()) as connection, connection.channel() as channel:
            channel.queue_delete(name)

    @staticmethod
    def _run(prefix: Sequence[str], *words: str) -> None:
        done = subprocess.run(
            [*prefix, *command(*words)], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        if done.returncode:
            raise ShardmqError(f"`shardmq {' '.join(words[:3])}`: {last_line(done.stderr)}")


def _words(pid: int) -> list[str]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").split()
    return []


def _is_shard(words: Sequence[str], index: str) -> bool:
    places = [place for place, word in enumerate(words[:-2]) if word == "shard"]
    return any(list(words[place + 1 : place + 3]) == ["--index", index] for place in places)
