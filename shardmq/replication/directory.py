"""Who is primary of each replica group, and at which address, as etcd has it.

Gateways and coordinators find shards by it. While etcd is away, what was known last stays, as nothing can change then.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.news import Seen
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, Broker, Host
from shardmq.runtime.waiting import WaitingReport

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
        groups: as they were seen last, by name.
        hosts: the same.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.hosts: dict[str, Host] = {}
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
            if entry.value is not None and self._is_newer("hosts", entry):
                self.hosts[entry.name] = entry.value

    def of(self, group: str) -> Primary:
        """The primary of a group."""
        known = self.groups.get(group)
        if known is None or not known.primary:
            return Primary(group, known.term if known else 0)
        host = self.hosts.get(known.primary)
        return Primary(group, known.term, known.primary, host.addresses.get(group, "") if host else "")

    def place(self, process: str) -> dict[str, Any]:
        """Where a process runs by its name, as `shard-0` or `a.gateway-0`: its host, and of a primary its term."""
        host, _, group = process.rpartition(".")
        if group not in self.groups:
            return {"host": host}
        primary = self.of(group)
        return {"host": primary.host, "term": primary.term}

    def table(self) -> list[dict[str, Any]]:
        """A row for each group, the coordinator first: who leads which term, who is in sync and who is to be."""
        return [
            {
                "group": name,
                "term": group.term,
                "primary": group.primary,
                "in_sync": sorted(group.in_sync),
                "replicas": sorted(group.replicas),
                "min_in_sync": group.min_in_sync,
            }
            for name, group in sorted(self.groups.items(), key=lambda item: (len(item[0]), item[0]))
        ]

    def _is_newer(self, kind: str, entry: Entry[Group] | Entry[Host]) -> bool:
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
        broker: as it was created; None until it is known.
    """

    def __init__(self, register: BackgroundRegister) -> None:
        self.primaries = Primaries()
        self.broker: Broker | None = None
        self._register = register
        for kind in (BROKER, HOSTS, GROUPS):
            register.watch(kind)

    def fileno(self) -> int:
        """A descriptor that is readable while there is something to look at."""
        return self._register.fileno()

    def look(self) -> bool:
        """Take in what etcd has told; returns whether there was anything."""
        seen = [news for news in self._register.take() if isinstance(news, Seen)]
        for news in seen:
            if news.kind is GROUPS:
                self.primaries.groups_seen(news.entries)
            elif news.kind is HOSTS:
                self.primaries.hosts_seen(news.entries)
            else:
                self.broker = next((entry.value for entry in news.entries if entry.value), self.broker)
        return bool(seen)

    def wait_for_broker(self) -> Broker:
        """Wait until etcd tells of the broker, for processes that have nothing to do before."""
        waiting = WaitingReport(lambda: [f"a broker in etcd: {self.missing}"])
        while self.broker is None:
            self._register.wait(LOOK_SECONDS)
            self.look()
            waiting.look(time.monotonic())
        return self.broker

    @property
    def missing(self) -> str:
        """Why the broker is not known."""
        return self._register.fault or "none is registered there yet"

    def close(self) -> None:
        """Watch no more."""
        self._register.close()
