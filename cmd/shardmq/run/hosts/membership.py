"""This host in etcd: it makes the broker or joins it, says where it is, and hears of everything."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.cmd.run.hosts.identity import Identity, check_before, keep
from shardmq.cmd.run.hosts.options import DEFAULT_REPLICAS, HostOptions
from shardmq.errors import StartupRefused
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.change import Edit
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.news import Failed, Seen, Stored
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import (
    BROKER,
    FORMAT,
    GROUPS,
    HOSTS,
    LOADS,
    WISHES,
    Broker,
    Host,
    Kind,
    Loads,
    StoreFormat,
    Wish,
)
from shardmq.replication.node.format import too_new
from shardmq.replication.planning.cluster import FIRST_FORMAT, Cluster
from shardmq.storage.versions import VERSION as NEWEST_FORMAT
from shardmq.version import VERSION

DEFAULT_SHARDS: Final = 4

WATCHED: Final[tuple[Kind[Any], ...]] = (BROKER, HOSTS, GROUPS, WISHES, LOADS, FORMAT)


class Membership:
    """One host's part in a broker, on the running event loop.

    Args:
        options: of the host.

    Attributes:
        session: of this start of the host.
        changed: called when something in etcd has changed, after `follow`.

    Raises:
        InvalidUrl: a file that the URL of etcd names cannot be used.
    """

    def __init__(self, options: HostOptions) -> None:
        self.session = secrets.token_hex(8)
        self.changed: Callable[[], None] = lambda: None
        self._options = options
        self._register = BackgroundRegister(options.url, f"{options.name}-{self.session}")
        self._known: dict[str, dict[str, Entry[Any]]] = {kind.folder: {} for kind in WATCHED}
        self._unseen = {*self._known}
        self._waiting: dict[tuple[str, str], deque[asyncio.Future[Stored]]] = {}
        self._broker: Broker | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._register.fileno(), self._take)

    async def join(self, data_dir: Path, addresses: dict[str, str]) -> Broker:
        """Make the broker, or join the one that is there.

        Args:
            data_dir: data directory of this host.
            addresses: where its gateways and its management process are, by what they are.

        Raises:
            StartupRefused: the options contradict what the broker was made with, the stores are of another broker, or
                its other hosts have a later version of shardmq.
        """
        name = self._options.name
        known = check_before(data_dir, name)
        broker = await self._made(data_dir, known)
        self._check(broker)
        if known is not None and known.broker != broker.id:
            raise StartupRefused(
                f"{data_dir} belongs to a broker {known.broker}, and {self._options.url} has the broker {broker.id}; "
                "join that one's etcd and prefix, or choose an empty --data-dir"
            )
        format = (await self.change(FORMAT, "", lambda _: None)).entry.value or FIRST_FORMAT
        if format.version > NEWEST_FORMAT:
            raise StartupRefused(too_new(format.version))
        if known is None:
            keep(data_dir, Identity(broker.id, name))
        self._broker = broker
        session, reached = self.session, self._options.bus_addresses(broker.shards) | addresses

        def registered(before: Host | None) -> Host:
            host = before or Host(session)
            return msgspec.structs.replace(
                host, session=session, addresses=reached, is_stopping=False, format=NEWEST_FORMAT
            )

        await self.change(HOSTS, name, registered)
        return broker

    async def _made(self, data_dir: Path, known: Identity | None) -> Broker:
        """The broker in etcd, made now if there is none and this host was in none before."""
        options = self._options
        replicas = options.replicas or DEFAULT_REPLICAS
        new = Broker(
            secrets.token_hex(16),
            options.shards or DEFAULT_SHARDS,
            replicas,
            VERSION,
            options.min_in_sync or 1,
            options.hosts,
        )
        if new.min_in_sync > replicas:
            raise StartupRefused(
                f"--min-in-sync {new.min_in_sync} is more than the {replicas} replicas there are; give --replicas, too"
            )
        stored = await self.change(BROKER, "", lambda there: new if there is None and known is None else None)
        broker = stored.entry.value
        if broker is None:
            raise StartupRefused(
                f"{data_dir} belongs to a broker, and {options.url} has none; is that the right etcd and prefix? "
                "Where etcd's data is lost, bring them back from its snapshot"
            )
        assert isinstance(broker, Broker)
        return broker

    def _check(self, broker: Broker) -> None:
        options = self._options
        self._check_shards(broker)
        for option, wanted, there in (
            ("--replicas", options.replicas, broker.replicas),
            ("--min-in-sync", options.min_in_sync, broker.min_in_sync),
        ):
            if wanted is not None and wanted != there:
                raise StartupRefused(
                    f"the broker in {options.url} was made with {option} {there}, and this host says {wanted}; leave "
                    f"{option} away to join it as it is"
                )

    def _check_shards(self, broker: Broker) -> None:
        """Refuse a number of shards that the broker never had: options may be older than shards that were added."""
        wanted, first, there = self._options.shards, broker.shards_at_first or broker.shards, broker.shards
        if wanted is None or first <= wanted <= there:
            return
        grown = f", and has {there} now" if first < there else ""
        more = f", or add some while it runs: `shardmq shard add {wanted - there}`" if wanted > there else ""
        raise StartupRefused(
            f"the broker in {self._options.url} was made with --shards {first}{grown}, and this host says {wanted}; "
            f"leave --shards away to join it as it is{more}"
        )

    def follow(self) -> None:
        """Hear of the broker and of all hosts, groups and wishes from now on."""
        for kind in WATCHED:
            self._register.watch(kind)

    async def change(self, kind: Kind[Any], name: str, edit: Edit[Any], seconds: float = float("inf")) -> Stored:
        """Have a value be what it should be, as `BackgroundRegister.change`.

        Raises:
            EtcdError: it could not be done in time.
        """
        future: asyncio.Future[Stored] = self._loop.create_future()
        self._waiting.setdefault((kind.folder, name), deque()).append(future)
        self._register.change(kind, name, edit, seconds)
        return await future

    @property
    def cluster(self) -> Cluster | None:
        """What etcd says; None before all of it was heard."""
        if self._unseen or self._broker is None:
            return None
        hosts: dict[str, Host] = self._values(HOSTS)
        groups: dict[str, Group] = self._values(GROUPS)
        wishes: dict[str, Wish] = self._values(WISHES)
        loads: dict[str, Loads] = self._values(LOADS)
        format: StoreFormat = self._values(FORMAT).get("", FIRST_FORMAT)
        return Cluster(self._values(BROKER).get("", self._broker), hosts, groups, wishes, loads, format.version)

    @property
    def is_replaced(self) -> bool:
        """Whether another process has taken this host's name."""
        entry = self._known[HOSTS.folder].get(self._options.name)
        return entry is not None and entry.value is not None and entry.value.session != self.session

    @property
    def is_removed(self) -> bool:
        """Whether `shardmq host remove` has taken this host out of the broker."""
        entry = self._known[HOSTS.folder].get(self._options.name)
        return entry is not None and entry.value is None

    async def silence(self, seconds: float) -> str:
        """Why etcd does not answer; "" where it does.

        Args:
            seconds: for an answer.
        """
        try:  # of a key that nothing else waits for, as what is asked of one key is done in its order
            await self.change(LOADS, self._options.name, lambda _: None, seconds)
        except EtcdError as fault:
            return str(fault)
        return ""

    def close(self) -> None:
        """Hear no more."""
        self._loop.remove_reader(self._register.fileno())
        self._register.close()

    def _values(self, kind: Kind[Any]) -> dict[str, Any]:
        return {name: entry.value for name, entry in self._known[kind.folder].items() if entry.value is not None}

    def _take(self) -> None:
        is_news = False
        for news in self._register.take():
            if isinstance(news, Seen):
                self._unseen.discard(news.kind.folder)
                for entry in news.entries:
                    self._learn(news.kind, entry)
                is_news = True
            elif isinstance(news, Stored):
                is_news = self._learn(news.kind, news.entry) or is_news
                self._answer(news.kind, news.name, news)
            elif isinstance(news, Failed):
                self._answer(news.kind, news.name, news.error)
        if is_news:
            self.changed()

    def _learn(self, kind: Kind[Any], entry: Entry[Any]) -> bool:
        """Take a value that is newer than what is known."""
        known = self._known.get(kind.folder)
        if known is None or (entry.name in known and known[entry.name].revision >= entry.revision):
            return False
        known[entry.name] = entry
        return True

    def _answer(self, kind: Kind[Any], name: str, outcome: Stored | EtcdError) -> None:
        future = self._waiting[kind.folder, name].popleft()
        if future.done():  # by whoever does not wait any more
            return
        if isinstance(outcome, EtcdError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
