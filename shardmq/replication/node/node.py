"""The replica of a group in its process, driven by its owner's loop.

The core says what is to be done; this does it, in order: what is sent leaves with the end of the turn, commits are on
disk before it, and only then is the owner told. A primary's own commits are sent before they are written here, so that
all disks work at the same time.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from shardmq.bus.transport.transport import Dealer, Router
from shardmq.errors import RowDamaged
from shardmq.replication.core import effects, events
from shardmq.replication.core.effects import Effect
from shardmq.replication.core.events import Event
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Handover
from shardmq.replication.core.replica import Replica
from shardmq.replication.core.timing import TRANSFER_SECONDS
from shardmq.replication.etcd.news import ForGroup, Seen
from shardmq.replication.etcd.values import FORMAT, HOSTS, WISHES
from shardmq.replication.node.engine import PrimaryEngine
from shardmq.replication.node.errors import NotPrimary
from shardmq.replication.node.followers import Followers
from shardmq.replication.node.format import RisingFormat
from shardmq.replication.node.heir import Heir
from shardmq.replication.node.neighbours import GroupRegister, Links
from shardmq.replication.node.news import Addresses, Wishes
from shardmq.replication.node.store import ReplicaStore, TooMuch
from shardmq.replication.node.telling import OUTCOMES, tell
from shardmq.replication.node.writes import ROOM_SECONDS, Writes
from shardmq.replication.store.envelope import SealedEdits
from shardmq.runtime.clock import boottime
from shardmq.storage.engine import Edit

TICK_SECONDS: Final = 0.2
"""Between two looks at what time has changed, at most; at least this part of it."""

TICK_SECONDS_MIN: Final = 0.02

LINKS_SECONDS: Final = 0.1
"""Between two ticks of the links."""

LEAVE_SECONDS: Final = 0.3
"""How long a follower's process that ends waits until it is out of the in-sync set: for the primary and etcd."""

_log = logging.getLogger(__name__)


class ReplicaNode:
    """One replica of a group.

    Args:
        host: its name.
        group: name of the group, such as `shard-0`.
        store: of the replica.
        links: with the group's other replicas.
        register: of this node alone.
        clock: seconds that go on while the machine is suspended.

    Attributes:
        store: of the replica.
        engine: for the owner of the primary's store; it takes commits while `takes_proposals`.
        followers: how far the others are behind, while it leads.
        on_leading: called as `effects.Leading` says, once it leads; what was before its term is on disk.
        on_deposed: called with the term that has ended; the owner must end, and answer nothing any more.
        on_handing_over: called before a transfer begins, while the owner may still commit.
        on_resigning: called while a transfer is under way and what was released may still be answered: soon it may not.
    """

    def __init__(
        self,
        host: str,
        group: str,
        store: ReplicaStore,
        links: Links,
        register: GroupRegister,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.host = host
        self.name = group
        self.on_leading: Callable[[int, bool], object] | None = None
        self.on_deposed: Callable[[int], object] | None = None
        self.on_handing_over: Callable[[], object] | None = None
        self.on_resigning: Callable[[], object] | None = None
        self.store = store
        self._links = links
        self._register = register
        self._clock = clock
        self.engine = PrimaryEngine(store.engine, self._propose)
        self._core = Replica(host, store.stored(), clock(), time.time_ns(), time.time())
        self.followers = Followers(self._core, links, store.engine)
        self._addresses = Addresses(group)
        self._wishes = Wishes(group, host)
        self._peers: dict[str, str] = {}
        self._writes = Writes(group, store, clock)
        self._told = 0
        self._answers: deque[Event] = deque()
        self._calls: list[Effect] = []
        self._is_rejected = ""
        self._leaves_by = float("inf")
        self._is_leaving = False
        self._transfer: events.Transfer | None = None
        self._heir = Heir(clock)
        self._ticked_at = self._links_at = self._room_at = float("-inf")
        self._carry = cast("dict[type, Callable[[Any], None]]", self._carriers())
        format = RisingFormat(f"{host}.{group}", store.engine, self.engine, links)
        self._hear: dict[Any, Any] = {HOSTS: self._addresses.seen, WISHES: self._wishes.seen, FORMAT: format.seen}
        register.watch_group(group)
        for kind in self._hear:
            register.watch(kind)

    def _carriers(self) -> dict[Any, Any]:
        return {
            effects.Send: self._send,
            effects.Commit: self._writes.commits.append,
            effects.ReadKeys: self._read_keys,
            effects.ReadRange: self._read_range,
            effects.ReadGroup: lambda _: self._register.read(self.name),
            effects.Swap: lambda effect: self._register.swap(self.name, effect.revision, effect.group),
            effects.Leading: self._call_later,
            effects.Deposed: self._call_later,
            effects.Accepted: lambda _: None,
            effects.Rejected: self._rejected,
            effects.Released: lambda _: None,
            **dict.fromkeys(OUTCOMES, self._tell),
        }

    # What the owner asks

    @property
    def leads(self) -> int:
        """The term that this replica leads and takes commits in, or did until it began to hand over; 0 for none."""
        return self._core.leads

    @property
    def takes_proposals(self) -> bool:
        """Whether `engine` takes commits. It changes in `turn` alone."""
        return self._core.takes_proposals

    @property
    def takes_publishes(self) -> bool:
        """Whether enough replicas are in sync for new things to be taken in."""
        return self._core.takes_publishes

    @property
    def index(self) -> int:
        """Index of the last record."""
        return self._core.index

    @property
    def released(self) -> int:
        """Index up to which all is on the disks of the in-sync set."""
        return self._core.released

    def may_answer(self, now: float) -> bool:
        """Whether what rests on released records may be told.

        Args:
            now: seconds on the node's clock, taken just before the flush.
        """
        return self._core.may_answer(now)

    @property
    def group(self) -> Group | None:
        """What is known of the group's key in etcd."""
        return self._core.group

    def group_clock(self) -> float:
        """Return the group's clock, in seconds since 1970: it goes on from one primary to the next."""
        return self._core.clock(self._clock())

    @property
    def sources(self) -> list[Dealer | Router | int]:
        """What a poller waits for; other ones once `generation` has gone up."""
        return [*self._links.sources, self._register.fileno()]

    @property
    def generation(self) -> int:
        """Goes up when `sources` changes."""
        return self._links.generation

    def wait_seconds(self) -> float:
        """How long the owner's loop may wait for what comes."""
        if self._links.more or (self._calls and not (self._heir.is_awaited or self._is_leaving)):
            return 0.0
        now = self._clock()
        links = self._links_at + LINKS_SECONDS - time.monotonic()
        return max(0.0, min(self._tick_due() - now, links))

    # What goes on

    def turn(self, now: float) -> None:
        """Take in what came, do what is due, and tell the owner of it.

        Args:
            now: seconds on the node's clock.

        Raises:
            StoreUnwritable: a commit may not be on disk. The process must end.
            StoreRefused: the broker's stores have a later format than this shardmq writes.
        """
        for event in self._links.receive():
            self._step(event)
            self._heir.hear(event)
        self._tick_links()
        self._hear_register()
        if now >= self._tick_due():
            self._tick(now)
        self._settle()
        self._links.flush()
        if not self._core.leads:
            self._rest(now)
        self._call_owner()
        if self._transfer is not None:
            self._hand_over()

    def leave(self) -> None:
        """Begin to end the process: have another replica lead, and nobody wait for this one any more."""
        group, now = self._core.group, self._clock()
        self._leaves_by = now + LEAVE_SECONDS
        if not self.leads:
            self._step(events.Leave())
        elif group is None or len(group.in_sync) == 1:
            self._leaves_by = now  # nobody waits for it, and nobody can lead
        elif self.takes_proposals:
            self._leaves_by += TRANSFER_SECONDS
            self._step(events.Transfer(next(name for name in group.in_sync if name != self.host)))
        self._links.flush()

    @property
    def has_left(self) -> bool:
        """Whether nobody waits for this replica any more, or has had the time to know; go on with `turn` until then."""
        group = self._core.group
        is_out = not self.leads and (group is None or self.host not in group.in_sync)
        return self._clock() >= self._leaves_by or (is_out and self._leaves_by != float("inf"))

    def close(self) -> None:
        """Let go of links, register and store."""
        self._links.close()
        self._register.close()
        self.store.close()

    def _tick(self, now: float) -> None:
        self._ticked_at = now
        if self.on_resigning is not None and self._core.leads and not self.takes_proposals:
            self.on_resigning()
        self._step(events.Tick())
        self.followers.note(now)
        wish = self._wishes.due(now, self._core.group, self._core.leads)
        if isinstance(wish, events.Transfer):
            self._transfer = wish  # when the owner may commit, which has more to say
        elif wish is not None:
            self._step(wish)

    def _hand_over(self) -> None:
        """Begin a transfer, behind the last of the owner's work."""
        wish, self._transfer = self._transfer, None
        if wish is None or not self.takes_proposals:
            return  # the replica was deposed in the same turn
        if self.on_handing_over is not None:
            self.on_handing_over()
        self._step(wish)
        self._settle()
        self._links.flush()

    def _tick_due(self) -> float:
        return max(self._ticked_at + TICK_SECONDS_MIN, min(self._core.wake, self._ticked_at + TICK_SECONDS))

    def _tick_links(self) -> None:
        now = time.monotonic()
        if now - self._links_at >= LINKS_SECONDS:
            self._links_at = now
            for event in self._links.tick(now):
                self._step(event)

    def _hear_register(self) -> None:
        for news in self._register.take():
            if isinstance(news, ForGroup) and news.group == self.name:
                self._step(news.event)
            elif isinstance(news, Seen):
                self._hear[news.kind](news.entries)
        self._find_peers()

    def _find_peers(self) -> None:
        group = self._core.group
        if group is None:
            return
        peers = self._addresses.of(group)
        peers.pop(self.host, None)
        if peers != self._peers:
            self._peers = peers
            self._links.set_peers(peers)

    def _step(self, event: Event) -> None:
        carry = self._carry
        for effect in self._core.step(self._clock(), event):
            carry[type(effect)](effect)

    def _settle(self) -> None:
        """Write what is to be written, and tell the core of it, until there is no more."""
        while True:
            self._write()
            if self._writes.written != self._told:
                self._told = self._writes.written
                self._step(events.Durable(self._told))
            elif self._answers:
                self._step(self._answers.popleft())
            elif not self._writes.commits or self._writes.is_full:
                return

    def _write(self) -> None:
        """Write all commits that were asked for."""
        self._answers.extend(self._writes.write())

    def _rest(self, now: float) -> None:
        """Look after a store that no owner looks after."""
        engine = self.store.engine
        engine.rest(time.monotonic(), bool(self._links.more))
        if now - self._room_at >= ROOM_SECONDS:
            self._room_at = now
            engine.give_back(time.monotonic(), engine.space.look(), self._writes.is_full)

    def _call_owner(self) -> None:
        """Tell the owner what has come of the turn; it may commit meanwhile."""
        if self._heir.is_awaited:
            return
        if self._is_leaving and not self.has_left:
            return
        calls = self._calls.copy()
        self._calls.clear()
        for call in calls:
            if isinstance(call, effects.Deposed) and self.on_deposed is not None:
                self.on_deposed(call.term)
            elif isinstance(call, effects.Leading) and call.term == self._core.leads and self.on_leading is not None:
                self.on_leading(call.term, call.is_sure)

    # What the core asks

    def _propose(self, edits: SealedEdits, local: list[Edit], is_small: bool, deleted: int) -> None:
        """Make a record of the owner's edits; it is on this disk when this returns.

        Raises:
            NotPrimary: this replica does not lead, or hands over.
            StoreUnwritable: it may not be on disk. The process must end.
        """
        commits = self._writes.commits
        assert not commits, "a turn leaves nothing to be written while this replica takes proposals"
        self._is_rejected = ""
        self._step(events.Propose(0, edits, False))
        if self._is_rejected:
            raise NotPrimary(self._is_rejected)
        self._links.flush()
        (commit,) = commits
        self.store.write_own(commit, local, is_small, deleted)
        commits.clear()
        self._writes.written = self._told = commit.serial
        self._step(events.Durable(commit.serial))

    def _send(self, effect: effects.Send) -> None:
        if isinstance(effect.message, Handover):
            self._heir.tell(effect.to, effect.message)
        self._links.send(effect.to, effect.message)

    def _rejected(self, effect: effects.Rejected) -> None:
        self._is_rejected = effect.reason

    def _call_later(self, effect: Effect) -> None:
        self._tell(effect)
        self._calls.append(effect)
        if isinstance(effect, effects.Deposed) and self._leaves_by != float("inf"):
            self._is_leaving = True
            self._leaves_by = self._clock() + LEAVE_SECONDS
            self._answers.append(events.Leave())

    def _tell(self, effect: Effect) -> None:
        tell(self.name, self.host, effect)

    def _read_keys(self, effect: effects.ReadKeys) -> None:
        self._write()
        try:
            self._answers.append(events.KeysRead(effect.request, self.store.read_keys(effect.keys)))
        except TooMuch:
            self._answers.append(events.ReadFailed(effect.request, True))
        except RowDamaged as fault:
            self._read_failed(effect.request, fault)

    def _read_range(self, effect: effects.ReadRange) -> None:
        self._write()
        try:
            self._answers.append(events.RangeRead(effect.request, *self.store.read_range(effect.start, effect.bytes)))
        except RowDamaged as fault:
            self._read_failed(effect.request, fault)

    def _read_failed(self, request: int, fault: RowDamaged) -> None:
        _log.error("%s: another replica cannot be brought up to date: %s", self.name, fault)
        self._answers.append(events.ReadFailed(request, False))
