"""What operators do while faults go on: transfers, moves, drains, more shards, restarts, upgrades."""

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import shardmq
from shardmq.replication.core.group import Group
from tests.hosts.broker import SHARDS, HostsBroker
from tests.hosts.faults.builds import Build, there_and_back, upgrades
from tests.hosts.faults.primaries.answers import import_path
from tests.hosts.faults.schedule import Fault
from tests.hosts.faults.watch import Watch
from tests.hosts.hosts import NAMES
from tests.hosts.members import Process

End = Callable[[], str]
"""Takes a fault back; what it says is told, if it is something."""


def nothing() -> str:
    """What is over by itself."""
    return ""


class Operators:
    """Those of a broker.

    Args:
        broker: theirs.
        build: folder with another version's code, of the same format of stores; None for versions made of this one.

    Attributes:
        runs: the version that hosts have.
        acts: what they do, by kind of fault.
        watch: what etcd says; there once the broker runs.
        shards: how many the broker is known to have.
    """

    def __init__(self, broker: HostsBroker, build: Path | None) -> None:
        self.watch: Watch | None = None
        self.shards = self._wanted = SHARDS
        self._broker = broker
        self.runs = Build(None)
        self._upgrades: Iterator[Build] = there_and_back(build) if build else upgrades(broker.folder / "builds")
        self._drained: set[str] = set()
        self._commands: list[Process] = []
        self.acts: Mapping[str, Callable[[Fault], tuple[str, End]]] = {
            "transfer": self._transfer,
            "move": self._move,
            "drain": self._drain,
            "shard add": self._shard_add,
            "rolling restart": self._rolling_restart,
            "rolling upgrade": self._rolling_upgrade,
        }

    @property
    def groups(self) -> dict[str, Group]:
        """As etcd has them."""
        assert self.watch is not None
        return self.watch.groups

    def heal(self) -> None:
        """Hosts may have replicas again."""
        for name in sorted(self._drained):
            self._order("host", "drain", name, "--undo")

    def have_done(self) -> bool:
        """Whether commands have ended, shards are there that were wanted, and no host is drained any more.

        What was refused, as it is where hosts or etcd are away, is ordered again.
        """
        self._commands = [command for command in self._commands if not command.has_ended]
        try:
            return not self._commands and self._is_done()
        except AssertionError:  # etcd does not answer yet: who waits for it has a bound
            return False

    def _is_done(self) -> bool:
        """Order again what is not done yet."""
        if self._drained:
            rows = self._broker.told("host", "list")
            self._drained = {row["host"] for row in rows if row["state"] == "draining"}
            self.heal()
        if self.shards < self._wanted:
            rows = self._broker.told("shard", "list")
            if len(rows) - 1 < self._wanted:
                self._order("shard", "add")
            elif all(row["primary"] for row in rows):
                self.shards = self._wanted
            else:
                return False
        return not self._commands

    def close(self) -> None:
        """End commands."""
        for command in self._commands:
            command.kill()

    def _transfer(self, fault: Fault) -> tuple[str, End]:
        group = self.groups[fault.group]
        heirs = sorted({*group.in_sync} - {group.primary})
        if not heirs:
            return "nobody else is in sync", nothing
        return self._order("shard", "transfer", fault.group, heirs[fault.seed % len(heirs)])

    def _move(self, fault: Fault) -> tuple[str, End]:
        group = self.groups[fault.group]
        target = sorted({*NAMES} - {*group.replicas})
        if not target:
            return "all hosts have it", nothing
        sources = sorted(group.replicas)
        return self._order("shard", "move", fault.group, sources[fault.seed % len(sources)], target[0])

    def _drain(self, fault: Fault) -> tuple[str, End]:
        if any(len(group.replicas) == len(NAMES) for group in self.groups.values()):
            return "all hosts are needed", nothing
        self._drained.add(fault.host)
        self._order("host", "drain", fault.host)

        def end() -> str:
            left = sum(fault.host in group.replicas for group in self.groups.values())
            self._order("host", "drain", fault.host, "--undo")
            return f"{left} replicas were left"

        return "", end

    def _shard_add(self, _fault: Fault) -> tuple[str, End]:
        self._wanted += 1
        self._order("shard", "add")
        return "", nothing

    def _order(self, *words: str) -> tuple[str, End]:
        self._commands.append(self._broker.command(*words))
        return " ".join(words), nothing

    def _rolling_restart(self, _fault: Fault) -> tuple[str, End]:
        for name in NAMES:
            self._restart(name)
            self._wait_until_whole(name)
        return "", nothing

    def _rolling_upgrade(self, _fault: Fault) -> tuple[str, End]:
        """To the next version."""
        self.runs = next(self._upgrades)
        for name in NAMES:
            self._broker.variables[name]["PYTHONPATH"] = import_path(self.runs.folder)
            self._restart(name)
            self._wait_until_whole(name)
            address = self._broker.hosts[name].address
            with shardmq.connect(f"shardmq://app:secret@{address}:5672/", timeout=30) as connection:
                runs = connection.server_properties["version"]
            assert runs == self.runs.version, f"{name} runs {runs} after its upgrade to {self.runs.version}"
        self._wait_until_whole("all")
        return f"to {self.runs.version}, format {self.runs.format}", nothing

    def _restart(self, name: str) -> None:
        """Stop a host as an operator does, and start it."""
        broker = self._broker
        broker.ups[name].signal(signal.SIGTERM)
        broker.wait_for(lambda: broker.ups[name].has_ended, f"{name} stops")
        broker.launch(name)
        broker.wait_for(lambda: broker.is_up(name), f"{name} is up")

    def _wait_until_whole(self, name: str) -> None:
        watch = self.watch
        assert watch is not None
        since = watch.now()
        self._broker.wait_for(lambda: not watch.faults(since), f"all is whole after {name}'s restart")
