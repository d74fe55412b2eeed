"""A process as a member of its replica group: it follows, leads in place, and ends with its term.

    follow ──► leading ──► the owner opens its store on `node.engine`, and has its links hold what they flush
       ▲                      each pass: turn ─► the owner's work ─► release
       └── started again ◄── TermEnded

Whoever is deposed has in memory what its group may not know of, so it ends, and starts again as a follower.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from shardmq.bus.curve import Context
from shardmq.bus.holding import HeldEnvelopes
from shardmq.bus.poller import Poller
from shardmq.bus.transport.transport import Dealer, Router
from shardmq.replication.etcd.background import BackgroundRegister
from shardmq.replication.etcd.url import parse
from shardmq.replication.links.peers import PeerLinks
from shardmq.replication.node.node import ReplicaNode
from shardmq.replication.node.store import ReplicaStore
from shardmq.runtime.clock import ClockNote, SteadyClock, boottime
from shardmq.runtime.notify import Heartbeat
from shardmq.storage.engine import Engine

STOP_SECONDS: Final = 2.0
"""A primary that is to stop waits so long for the others to have what it said last."""

BEAT_SECONDS: Final = 0.5
"""Between two signs of life of a follower's loop."""

_log = logging.getLogger(__name__)


class TermEnded(Exception):
    """This replica leads no more. The process ends with `notify.REPLICA_ENDED`, and is started again as a follower."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Which replica of which group a process is.

    Attributes:
        join: URL of etcd.
        host: name of this host.
        group: name of the group, such as `shard-0`.
        broker: the broker's id; replicas of another one are turned away.
        listen: address at which the group's other replicas call.
    """

    join: str
    host: str
    group: str
    broker: str
    listen: str


class GroupMember:
    """One replica in its process.

    Args:
        options: of the replica.
        engine: its store, on disk and not started yet.
        sockets: of the process.

    Attributes:
        node: the replica.
        held: what the owner's links hold until it is released.
        ends: called with a reason to end all sessions of the owner's links; what was held for them is dropped.

    Raises:
        StoreRefused: the store is damaged, or not a replica's.
        StoreUnwritable: the disk does not take it.
        StartupRefused: the address is invalid, not safe to use, or in use.
        InvalidUrl: the URL of etcd cannot be read, or a file that it names not be used.
    """

    def __init__(self, options: MemberOptions, engine: Engine, sockets: Context) -> None:
        store = ReplicaStore.started(engine)
        assert engine.layout.replicas is not None, "a store without a layout for replicas has none"
        engine.clear(*engine.layout.replicas.local)
        engine.compact_at_start()
        name = f"{options.host}.{options.group}"
        links = PeerLinks(sockets, options.group, options.host, options.listen, engine, options.broker)
        register = BackgroundRegister(parse(options.join), f"{name}.{secrets.token_hex(8)}")
        self.node = node = ReplicaNode(options.host, options.group, store, links, register)
        self.held = HeldEnvelopes(lambda: node.index)
        self.ends: list[Callable[[str], object]] = []
        self._had_enough = True
        self._name = name
        self._term = self._ended = 0
        node.on_leading = self._leading
        node.on_deposed = self._deposed

    @property
    def is_paused(self) -> bool:
        """Whether the owner has to leave its work alone: this replica is handing over, or waits for that."""
        return not self.node.takes_proposals

    @property
    def refusal(self) -> str:
        """Why publishes are to be refused now; "" where they are taken."""
        if self.node.takes_publishes:
            return ""
        group = self.node.group
        there = "" if group is None else f": {', '.join(group.in_sync)} of at least {group.min_in_sync}"
        return f"too few replicas of {self.node.name} are in sync{there}; publish again when another host is back"

    def clock(self) -> ClockNote:
        """Return what time it is by the group's clock, which goes on from one primary to the next."""
        return SteadyClock(int(self.node.group_clock() * 1000)).note()

    def follow(self, is_asked_to_stop: Callable[[], bool], on_running: Callable[[], None]) -> bool:
        """Follow until this replica leads.

        Args:
            is_asked_to_stop: whether to give up; asked ten times a second.
            on_running: called once the loop runs.

        Returns:
            Whether it leads; False where the process was asked to stop.

        Raises:
            TermEnded: it did for a moment.
        """
        poller = self.poller([])
        heartbeat = Heartbeat(list)
        beat_at = 0.0
        on_running()
        while not self._term:
            if is_asked_to_stop():
                return False
            poller.wait(self.node.wait_seconds())
            self.turn()
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + BEAT_SECONDS
                heartbeat.beat(now)
        return True

    def poller(self, sources: Iterable[Dealer | Router | int]) -> "MemberPoller":
        """Make what waits for the replica and for the owner's sources."""
        return MemberPoller(self.node, sources)

    def turn(self) -> bool:
        """Let the replica go on, and send what has been released; returns whether anything was sent.

        Raises:
            TermEnded: this replica leads no more.
            StoreUnwritable: a commit may not be on disk. The process must end.
        """
        self.node.turn(boottime())
        if self._ended:
            raise TermEnded(f"{self._name} no longer leads term {self._ended}")
        return self.release()

    def release(self) -> bool:
        """Send what is released, while the lease holds; returns whether anything was sent.

        When there are too few replicas in sync from now on, what is held is not sent, and all sessions end: what was
        taken in before may have fewer copies than a confirm promises. Who waits for one is told to publish again.
        """
        node = self.node
        had_enough, self._had_enough = self._had_enough, node.takes_publishes
        if had_enough and not self._had_enough and self.held:
            self.held.drop()
            for end in self.ends:
                end(self.refusal)
        if not self.held or not node.may_answer(boottime()):
            return False
        return self.held.release(node.released)

    def settle(self) -> None:
        """At a stop: wait for the others to have what was said last, and send it. Not for long.

        Raises:
            TermEnded, StoreUnwritable: see `turn`.
        """
        poller = self.poller([])
        deadline = time.monotonic() + STOP_SECONDS
        while self.held and time.monotonic() < deadline:
            poller.wait(self.node.wait_seconds())
            self.turn()
        if self.held:
            _log.warning("%s stops; the other replicas have not answered for what it wrote last", self._name)

    def leave(self) -> None:
        """Before the process ends: have another replica lead, and nobody wait for this one. Not for long.

        Raises:
            StoreUnwritable: a commit may not be on disk.
        """
        poller = self.poller([])
        self.node.leave()
        while not (self._ended or self.node.has_left):
            poller.wait(self.node.wait_seconds())
            self.node.turn(boottime())

    def close(self) -> None:
        """Let go of links, etcd and the store."""
        self.node.close()

    def _leading(self, term: int) -> None:
        self._term = term

    def _deposed(self, term: int) -> None:
        self._ended = term


class MemberPoller(Poller):
    """Waits for what comes to a replica, whose links change as its group does, and to its owner.

    Args:
        node: the replica.
        sources: the owner's.
    """

    def __init__(self, node: ReplicaNode, sources: Iterable[Dealer | Router | int]) -> None:
        self._node = node
        self._sources = list(sources)
        self._generation = node.generation
        super().__init__([*self._sources, *node.sources])

    def watch(self, until: float) -> bool:
        """Wait without sleeping; see `Poller.watch`."""
        self._renew()
        return super().watch(until)

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds at most; returns whether something came."""
        self._renew()
        return super().wait(seconds)

    def _renew(self) -> None:
        if self._generation != self._node.generation:
            self._generation = self._node.generation
            super().__init__([*self._sources, *self._node.sources])
