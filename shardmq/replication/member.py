"""A process as a member of its replica group: it follows, leads in place, and follows again.

    follow ──► leading ──► the owner opens its store on `node.engine`, and has its links hold what they flush
       ▲                      each pass: turn ─► the owner's work ─► release
       └── the owner drops all of it ◄── TermEnded

Whoever is deposed has in memory what its group may not know of, so nothing of that outlives the term. It follows in
place: a process that is started again would keep the next primary waiting for its acknowledgements.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

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
from shardmq.runtime.collection import forget_startup
from shardmq.runtime.notify import Heartbeat, ready, stopping
from shardmq.storage.engine import Engine

STOP_SECONDS: Final = 2.0
"""A primary that is to stop waits so long for the others to have what it said last."""

FORGET_SECONDS: Final = 2.0
"""After the end of a term, what it had in memory is looked for so much later: that takes up to 0.3 s, in which the next
primary would wait for acknowledgements. Nearly all of it has been freed before."""

BEAT_SECONDS: Final = 0.5
"""Between two signs of life of a follower's loop."""

_log = logging.getLogger(__name__)


class TermEnded(Exception):
    """This replica leads no more: what its owner has in memory is to be dropped."""


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
        is_sure: whether it knew all that it holds to be released by enough replicas, when it began to lead.
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
        self._register = register
        self.node = node = ReplicaNode(options.host, options.group, store, links, register)
        self.held = HeldEnvelopes(lambda: node.index)
        self.ends: list[Callable[[str], object]] = []
        self._had_enough = True
        self.is_sure = False
        self._is_running = self._has_left = False
        self._forget_at = float("inf")
        self._name = name
        self._term = self._ended = 0
        self._local = engine.layout.replicas.local
        node.engine.told = self.table
        node.on_leading = self._leading
        node.on_deposed = self._deposed
        node.on_resigning = self.release

    @property
    def is_paused(self) -> bool:
        """Whether the owner has to leave its work alone: this replica is handing over, or waits for that."""
        return not self.node.takes_proposals

    @property
    def has_heir(self) -> bool:
        """Whether another replica can lead at once, where this process is to stop."""
        group = self.node.group
        return self.node.takes_proposals and group is not None and len(group.in_sync) > 1

    @property
    def has_lease(self) -> bool:
        """Whether certainly no other replica leads now."""
        return self.node.takes_proposals and self.node.may_answer(boottime())

    @property
    def refusal(self) -> str:
        """Why publishes are to be refused now; "" where they are taken."""
        if self.node.takes_publishes:
            return ""
        group = self.node.group
        there = "" if group is None else f": {', '.join(group.in_sync)} of at least {group.min_in_sync}"
        return f"too few replicas of {self.node.name} are in sync{there}; publish again when another host is back"

    @property
    def _has_too_few(self) -> bool:
        """Whether it leads, or hands over, with fewer replicas in sync than are to have what is confirmed."""
        group = self.node.group
        return bool(self.node.leads) and group is not None and len(group.in_sync) < group.min_in_sync

    def table(self) -> dict[str, Any]:
        """What a primary tells of its group, as part of its process's row of the status.

        Returns:
            `followers`, see `Followers.rows`, and `etcd_fault`: why etcd is not reached, "" where it is.
        """
        return {"followers": self.node.followers.rows(boottime()), "etcd_fault": self._register.fault}

    def clock(self) -> ClockNote:
        """Return what time it is by the group's clock, which goes on from one primary to the next."""
        return SteadyClock(int(self.node.group_clock() * 1000)).note()

    def follow(self, is_asked_to_stop: Callable[[], bool]) -> bool:
        """Follow until this replica leads. The first time, the process is told of as one that runs.

        Args:
            is_asked_to_stop: whether to give up; asked ten times a second.

        Returns:
            Whether it leads; False where the process was asked to stop.

        Raises:
            StoreUnwritable: a commit may not be on disk. The process must end.
        """
        poller = self.poller([])
        heartbeat = Heartbeat(list)
        beat_at = 0.0
        if not self._is_running:
            self._is_running = True
            ready()
        while not (self._term and self.node.takes_proposals):  # it may have ended its term, and hand over yet
            if is_asked_to_stop():
                return False
            poller.wait(self.node.wait_seconds())
            self.node.turn(boottime())
            self._ended = 0  # it handed over before an owner had anything of that term in memory
            now = time.monotonic()
            if now >= beat_at:
                beat_at = now + BEAT_SECONDS
                heartbeat.beat(now)
            if now >= self._forget_at:
                self._forget_at = float("inf")
                forget_startup()
        return True

    def end_term(self) -> None:
        """Forget the term that is over; the owner has closed its links, and refers to nothing of it any more."""
        self.held.drop()
        self.ends.clear()
        self._ended = 0
        self._had_enough = True
        self._forget_at = time.monotonic() + FORGET_SECONDS
        self.node.store.engine.clear(*self._local)

    def begin_anew(self) -> None:
        """Have an owner that forgets what it has in memory begin again in the same term, on what is stored."""
        self.end_term()
        self.is_sure = False  # some of it may not be released yet

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
        had_enough, self._had_enough = self._had_enough, not self._has_too_few
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
        if self._has_left:
            return
        self._has_left = True
        stopping()
        poller = self.poller([])
        self.node.leave()
        while not (self._ended or self.node.has_left):
            poller.wait(self.node.wait_seconds())
            self.node.turn(boottime())

    def close(self) -> None:
        """Let go of links, etcd and the store."""
        self.node.close()

    def _leading(self, term: int, is_sure: bool) -> None:
        self._term, self.is_sure = term, is_sure

    def _deposed(self, term: int) -> None:
        if self._term == term:
            self._term, self._ended = 0, term


class MemberPoller(Poller):
    """Waits for what comes to a replica, whose links change as its group does, and to its owner.

    Args:
        node: the replica.
        sources: the owner's.
    """

    def __init__(self, node: ReplicaNode, sources: Iterable[Dealer | Router | int]) -> None:
        self._node = node
        self._generation = node.generation
        super().__init__(sources)

    def wait(self, seconds: float, awake_until: float = 0.0) -> bool:
        """Wait for what comes; see `Poller.wait`."""
        if self._generation != self._node.generation:
            self._generation = self._node.generation
            self._set_out()
        return super().wait(seconds, awake_until)

    def _set_out(self, *more: Dealer | Router | int) -> None:
        super()._set_out(*more, *self._node.sources)
