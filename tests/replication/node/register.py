"""etcd's key in memory: it is slow, away, or loses answers."""

from random import Random
from typing import Any

from shardmq.replication.core.events import GroupRead, GroupSeen, ReadLost, SwapLost, Swapped, SwapRefused
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.news import ForGroup, News, Seen
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import FORMAT, HOSTS, WISHES, Host, Kind, StoreFormat, Wish, fault_of


class Etcd:
    """The key of one group, and what is known of hosts.

    Attributes:
        away_until: no answers before this time.
        losses: how many of the answers to swaps are lost.
        late: seconds that a host hears of changes later than others.
        changes: all values, from the first on.
    """

    def __init__(self, dice: Random, group: Group, hosts: tuple[str, ...]) -> None:
        self.dice = dice
        self.now = 0.0
        self.group = group
        self.revision = 1
        self.away_until = 0.0
        self.losses = 0.0
        self.late: dict[str, float] = {}
        self.wish = Wish()
        self.format: StoreFormat | None = None
        self.changes = [group]
        self.clients: dict[str, MemoryRegister] = {}
        self.hosts = hosts

    def swap(self, revision: int, group: Group) -> bool:
        if revision != self.revision:
            return False
        assert not fault_of(group), group
        assert group.term in (self.group.term, self.group.term + 1), (self.group, group)
        self.revision += 1
        self.group = group
        self.changes.append(group)
        for client in self.clients.values():
            client.later(ForGroup("shard-0", GroupSeen(self.revision, group)), 0.3)
        return True

    def restore(self, group: Group) -> None:
        """Be what a snapshot knew, while no process runs."""
        self.revision += 1
        self.group = group
        self.clients.clear()

    def change(self, group: Group) -> None:
        """Change the key as the planner does."""
        assert self.swap(self.revision, group)

    def want(self, wish: Wish) -> None:
        self.wish = wish
        for client in self.clients.values():
            client.later(Seen(WISHES, (Entry("shard-0", wish, 1, ""),)), 0.05)

    def have_format(self, version: int) -> None:
        """Say which format stores have from now on."""
        self.format = StoreFormat(version)
        for client in self.clients.values():
            client.watch(FORMAT)


class MemoryRegister:
    """What one process asks of etcd."""

    def __init__(self, etcd: Etcd, host: str) -> None:
        self._etcd = etcd
        self._host = host
        self._news: list[tuple[float, News]] = []
        etcd.clients[host] = self

    def later(self, news: News, seconds: float = 0.01) -> None:
        etcd = self._etcd
        late = etcd.late.get(self._host, 0.0) + seconds * etcd.dice.random()
        self._news.append((max(etcd.now, etcd.away_until) + late, news))

    def fileno(self) -> int:
        return -1

    def take(self) -> list[News]:
        due = [news for at, news in self._news if at <= self._etcd.now]
        self._news = [(at, news) for at, news in self._news if at > self._etcd.now]
        return due

    def read(self, group: str) -> None:
        etcd = self._etcd
        if etcd.now < etcd.away_until:
            self._news.append((etcd.now + 1.0, ForGroup(group, ReadLost())))
        else:
            self.later(ForGroup(group, GroupRead(etcd.revision, etcd.group)))

    def swap(self, group: str, revision: int, value: Group) -> None:
        etcd = self._etcd
        is_lost = etcd.now < etcd.away_until or etcd.dice.random() < etcd.losses
        if is_lost:
            self._news.append((etcd.now + 1.0, ForGroup(group, SwapLost())))
            if etcd.now >= etcd.away_until and etcd.dice.random() < 0.5:
                etcd.swap(revision, value)
        elif etcd.swap(revision, value):
            self.later(ForGroup(group, Swapped(etcd.revision)))
        else:
            self.later(ForGroup(group, SwapRefused(etcd.revision, etcd.group)))

    def watch_group(self, group: str) -> None:
        self.later(ForGroup(group, GroupSeen(self._etcd.revision, self._etcd.group)))

    def watch(self, kind: Kind[Any]) -> None:
        if kind is HOSTS:
            hosts = [(name, Host("s", {"shard-0/replica": f"memory://{name}"})) for name in self._etcd.hosts]
            self.later(Seen(HOSTS, tuple(Entry(name, host, 1, "") for name, host in hosts)), 0.0)
        elif kind is WISHES:
            self.later(Seen(WISHES, (Entry("shard-0", self._etcd.wish, 1, ""),)), 0.0)
        elif kind is FORMAT:
            self.later(Seen(FORMAT, (Entry("", self._etcd.format, 1, ""),)), 0.05)

    def close(self) -> None:
        self._etcd.clients.pop(self._host, None)
