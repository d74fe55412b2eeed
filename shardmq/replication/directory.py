"""Who is primary of each replica group, and at which address, as etcd has it.

Gateways and coordinators find shards by it. While etcd is away, what was known last stays, as nothing can change then.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.change import Edit
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.news import Failed, Seen, Stored
from shardmq.replication.etcd.register import Entry, Value
from shardmq.replication.etcd.values import BROKER, FORMAT, GROUPS, HOSTS, WISHES, Broker, Host, Kind, StoreFormat, Wish
from shardmq.replication.planning.cluster import FIRST_FORMAT, NO_WISH, Cluster
from shardmq.replication.standing import standing
from shardmq.runtime.waiting import WaitingReport

Changed = Callable[[EtcdError | None], object]
"""Called with why a value could not be changed; None where it was."""

LOOK_SECONDS: Final = 0.5
"""Between two looks whether the log is to say that the broker is not known yet."""


@dataclass(frozen=True, slots=True)
class Primary:
    """The primary of a group.

    Attributes:
        group: its name, such as `shard-0`.
        term: that it leads; 0 while nobody ever has.
        host: where it runs; "" while there is none.
        address: of the bus, where gateways call it; "" while its host has told none.
    """

    group: str
    term: int = 0
    host: str = ""
    address: str = ""


class Primaries:
    """The primaries of all groups, without I/O. It never goes back to what is older.

    A group or a host whose key is gone stays as it was: a key that somebody has deleted moves no process.

    Attributes:
        broker: as it was created; None until it is known.
        groups: as they were seen last, by name.
        hosts: the same.
        wishes: the same.
        format: of stores.
        fault: why etcd is not reached; "" where it is.
    """

    def __init__(self) -> None:
        self.broker: Broker | None = None
        self.groups: dict[str, Group] = {}
        self.hosts: dict[str, Host] = {}
        self.wishes: dict[str, Wish] = {}
        self.format = FIRST_FORMAT.version
        self._removed: set[str] = set()  # hosts that are shown no more
        self.fault: Callable[[], str] = str
        self._revisions: dict[tuple[str, str], int] = {}

    def groups_seen(self, entries: Iterable[Entry[Group]]) -> None:
        """Take in groups."""
        for entry in entries:
            known, group = self.groups.get(entry.name), entry.value
            if group is None or not self._is_newer("groups", entry):
                continue
            if known is not None and known.incarnation == group.incarnation and known.term > group.term:
                continue  # somebody has put back what was there before
            self.groups[entry.name] = group

    def hosts_seen(self, entries: Iterable[Entry[Host]]) -> None:
        """Take in hosts."""
        for entry in entries:
            if not self._is_newer("hosts", entry):
                continue
            if entry.value is None:
                self._removed.add(entry.name)
            else:
                self._removed.discard(entry.name)
                self.hosts[entry.name] = entry.value

    def wishes_seen(self, entries: Iterable[Entry[Wish]]) -> None:
        """Take in wishes for groups."""
        for entry in entries:
            if self._is_newer("wishes", entry):
                self.wishes[entry.name] = entry.value or NO_WISH

    def format_seen(self, entries: Iterable[Entry[StoreFormat]]) -> None:
        """Take in the format of stores."""
        self.format = max([self.format, *(entry.value.version for entry in entries if entry.value is not None)])

    def of(self, group: str) -> Primary:
        """The primary of a group."""
        known = self.groups.get(group)
        if known is None or not known.primary:
            return Primary(group, known.term if known else 0)
        host = self.hosts.get(known.primary)
        return Primary(group, known.term, known.primary, host.addresses.get(group, "") if host else "")

    def leader(self, group: str) -> tuple[str, str]:
        """The host that leads a group, and where clients reach its gateways, as host:port; "" for what is unknown."""
        name = self.of(group).host
        host = self.hosts.get(name)
        return name, host.addresses.get("gateway", "") if host else ""

    def place(self, process: str) -> dict[str, Any]:
        """Where a process runs by its name, as `shard-0` or `a.gateway-0`: its host, and of a primary its term."""
        host, _, group = process.rpartition(".")
        if group not in self.groups:
            return {"host": host}
        primary = self.of(group)
        return {"host": primary.host, "term": primary.term}

    def told(self) -> dict[str, Any]:
        """What a process that keeps these tells of etcd, in its row of the status."""
        return {"etcd_fault": self.fault()}

    def standing(self, processes: list[dict[str, Any]]) -> dict[str, Any]:
        """How hosts and groups are, and what is wrong: `hosts`, `groups` and `findings`.

        Args:
            processes: rows of those that answered; they get the `place` of each, and lose what they tell of replicas.
        """
        for row in processes:
            row |= self.place(row["process"])
        return standing(self.cluster(), processes)

    def cluster(self) -> Cluster:
        """What is known of the broker now; it is known which one it is."""
        assert self.broker is not None, "nobody serves before the broker is known"
        hosts = {name: host for name, host in self.hosts.items() if name not in self._removed}
        return Cluster(self.broker, hosts, self.groups, self.wishes, format=self.format)

    def _is_newer(self, kind: str, entry: Entry[Group] | Entry[Host] | Entry[Wish]) -> bool:
        key = kind, entry.name
        if entry.revision <= self._revisions.get(key, 0):
            return False
        self._revisions[key] = entry.revision
        return True


class PrimaryDirectory:
    """Keeps the primaries of all groups up to date, from a register that it watches.

    Args:
        register: for this directory alone, which closes it.

    Attributes:
        primaries: as known now.
    """

    def __init__(self, register: BackgroundRegister) -> None:
        self.primaries = Primaries()
        self._register = register
        self._changing: dict[tuple[str, str], deque[Changed]] = {}
        self.primaries.fault = lambda: register.fault
        for kind in (BROKER, HOSTS, GROUPS, WISHES, FORMAT):
            register.watch(kind)

    @property
    def broker(self) -> Broker | None:
        """The broker as it was created; None until it is known."""
        return self.primaries.broker

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to look at."""
        return self._register.fileno()

    def look(self) -> bool:
        """Take in what etcd has told; returns whether there was anything."""
        told = self._register.take()
        seen = [news for news in told if isinstance(news, Seen)]
        for answer in told:
            if isinstance(answer, (Stored, Failed)):
                done = self._changing[answer.kind.folder, answer.name].popleft()
                done(answer.error if isinstance(answer, Failed) else None)
        for news in seen:
            if news.kind is GROUPS:
                self.primaries.groups_seen(news.entries)
            elif news.kind is HOSTS:
                self.primaries.hosts_seen(news.entries)
            elif news.kind is WISHES:
                self.primaries.wishes_seen(news.entries)
            elif news.kind is FORMAT:
                self.primaries.format_seen(news.entries)
            else:
                self._broker_seen(news.entries)
        return bool(seen)

    def _broker_seen(self, entries: Iterable[Entry[Broker]]) -> None:
        for entry in entries:
            if entry.value is not None and entry.value.shards >= self.shards:
                self.primaries.broker = entry.value

    def change(self, kind: Kind[Value], name: str, edit: Edit[Value], seconds: float, done: Changed) -> None:
        """Have a value be what it should be.

        Args:
            kind: of the value.
            name: of the host or group.
            edit: makes the value of the one that is there.
            seconds: how long to try.
            done: called by `look` with why it could not be done; None where it was.
        """
        self._changing.setdefault((kind.folder, name), deque()).append(done)
        self._register.change(kind, name, edit, seconds)

    def wait_for_broker(self) -> Broker:
        """Wait until etcd tells of the broker, for processes that have nothing to do before."""
        waiting = WaitingReport(lambda: [f"a broker in etcd: {self.missing}"])
        while self.broker is None:
            self._register.wait(LOOK_SECONDS)
            self.look()
            waiting.look(time.monotonic())
        return self.broker

    @property
    def shards(self) -> int:
        """How many shards the broker has; 0 while it is not known."""
        return 0 if self.broker is None else self.broker.shards

    @property
    def missing(self) -> str:
        """Why the broker is not known."""
        return self._register.fault or "none is registered there yet"

    def close(self) -> None:
        """Watch no more."""
        self._register.close()
