"""A host: its clock, its process with a replica core, and what the core asks for."""

from collections import deque
from typing import TYPE_CHECKING

from shardmq.replication.core.effects import (
    Accepted,
    CommandRefused,
    Commit,
    Deposed,
    Effect,
    EtcdBehind,
    Leading,
    ReadGroup,
    ReadKeys,
    ReadRange,
    Rejected,
    Released,
    Send,
    Swap,
    Transferred,
    UncleanElection,
)
from shardmq.replication.core.events import Durable, Event, KeysRead, LinkLost, RangeRead, ReadFailed, Received, Tick
from shardmq.replication.core.messages import Message
from shardmq.replication.core.note import Note
from shardmq.replication.core.replica import Replica
from tests.replication.simulator.application import Application
from tests.replication.simulator.disk import Disk

if TYPE_CHECKING:
    from tests.replication.simulator.world import World

RANGE_ROWS = 6


class Node:
    """A host, up or down.

    Attributes:
        life: of its process; what was meant for a process of before finds nobody.
        first_stream: streams of processes of before are below it.
    """

    def __init__(self, world: "World", name: str, note: Note) -> None:
        self._world = world
        self.name = name
        self.rate = world.random.uniform(0.95, 1.05)
        self.offset = world.random.uniform(0, 1000)
        self.disk = Disk(note)
        self.life = 0
        self.is_up = False
        self.paused_until = 0.0
        self.first_stream = 0
        self._inbox: deque[Event] = deque()
        self.core: Replica
        self.application: Application
        self._carry = {
            Send: self._send,
            Commit: self._commit,
            ReadKeys: self._read_keys,
            ReadRange: self._read_range,
            ReadGroup: self._read_group,
            Swap: self._swap,
            Leading: self._leading,
            Deposed: self._deposed,
            Accepted: self._accepted,
            Released: self._released,
            Rejected: self._rejected,
            Transferred: self._transferred,
            CommandRefused: self._ignored,
            EtcdBehind: self._ignored,
            UncleanElection: self._unclean_election,
        }

    def believes_whole(self, name: str, before: int) -> bool:
        """Whether a primary here takes another host's store to be complete, from a stream below a number."""
        if not self.is_up or self.core._primary is None:
            return False
        peer = self.core._primary._peers.get(name)
        return peer is not None and peer.is_complete and peer.stream < before

    def clock(self) -> float:
        return self.offset + self.rate * self._world.now

    def start(self) -> None:
        world = self._world
        self.life += 1
        self.is_up = True
        self.paused_until = 0.0
        self._inbox.clear()
        self.first_stream = self._stream_of_now()
        self.core = Replica(self.name, self.disk.synced.stored(), self.clock(), self.first_stream)
        self.core._state.touched.records_max = world.scenario.touched_max
        self.core._state.touched.keys_max = world.scenario.keys_max
        self.application = Application(world, self)
        self.tick(self.life)

    def _stream_of_now(self) -> int:
        return int(self._world.now * 1e6) << 16

    def crash(self) -> None:
        self.life += 1
        self.is_up = False
        self.first_stream = self._stream_of_now()
        self.disk.crash(self._world.random)
        for other in self._world.nodes:
            if other != self.name:
                self._world.network.lose(self.name, other)

    def receive(self, source: str, message: Message) -> None:
        if self.is_up:
            self.hand(self.life, Received(source, message))

    def link_lost(self, peer: str) -> None:
        if self.is_up:
            self.hand(self.life, LinkLost(peer))

    def tick(self, life: int) -> None:
        if life != self.life:
            return
        world = self._world
        if world.now < self.paused_until:
            world.at(self.paused_until, self.tick, life)
            return
        self.application.flush()
        self.step(Tick())
        self.application.flush()
        wait = (self.core.wake - self.clock()) / self.rate
        world.at(world.now + min(max(wait, 0.02), 0.4), self.tick, life)

    def hand(self, life: int, event: Event) -> None:
        """Let the process see what happened, once it runs again."""
        if life != self.life or not self.is_up:
            return
        if self._world.now < self.paused_until or self._inbox:
            if not self._inbox:
                self._world.at(self.paused_until, self._resume, life)
            self._inbox.append(event)
            return
        self.step(event)

    @property
    def is_behind(self) -> bool:
        """Whether something happened that the process has not seen yet."""
        return bool(self._inbox)

    def _resume(self, life: int) -> None:
        while life == self.life and self._inbox:
            if self._world.now < self.paused_until:
                self._world.at(self.paused_until, self._resume, life)
                return
            self.step(self._inbox.popleft())

    def step(self, event: Event) -> None:
        world = self._world
        world.steps += 1
        if world.is_traced:
            world.trace(self.name, "◄", event)
        carry = self._carry
        for effect in self.core.step(self.clock(), event):
            if world.is_traced and type(effect) is not Send:
                world.trace(self.name, "  ►", effect)
            carry[type(effect)](effect)

    def _send(self, effect: Send) -> None:
        if self._world.is_traced:
            self._world.trace(self.name, f"  ► to {effect.to}", effect.message)
        if effect.to in self._world.nodes:
            self._world.network.send(self.name, effect.to, effect.message)

    def _commit(self, commit: Commit) -> None:
        self.disk.write(commit)
        self._world.checker.written(self, commit)
        if not self.disk.syncing:
            self._begin_sync()
        if commit.cut is not None:
            self._world.scenario.caught_up(self)

    def _begin_sync(self) -> None:
        world = self._world
        self.disk.begin_sync()
        done = max(world.now, self.disk.stalled_until) + 0.0005 + 0.004 * world.random.random()
        world.at(done, self._end_sync, self.life)

    def _end_sync(self, life: int) -> None:
        if life != self.life:
            return
        serial = self.disk.end_sync()
        self.hand(life, Durable(serial))
        if self.disk.unsynced and not self.disk.syncing and self.life == life:
            self._begin_sync()

    def _failed_read(self, request: int) -> ReadFailed | None:
        random = self._world.random
        if random.random() >= self._world.scenario.failed_reads:
            return None
        return ReadFailed(request, random.random() < 0.5)

    def _read_keys(self, effect: ReadKeys) -> None:
        answer = self._failed_read(effect.request) or KeysRead(effect.request, self.disk.read(effect.keys))
        self._world.at(self._world.now + 0.003 * self._world.random.random(), self.hand, self.life, answer)

    def _read_range(self, effect: ReadRange) -> None:
        rows = self.disk.read_range(effect.start, RANGE_ROWS)
        answer = self._failed_read(effect.request) or RangeRead(effect.request, *rows)
        self._world.at(self._world.now + 0.01 * self._world.random.random(), self.hand, self.life, answer)

    def _read_group(self, _: ReadGroup) -> None:
        self._world.etcd.read(self)

    def _swap(self, effect: Swap) -> None:
        self._world.etcd.swap(self, effect.revision, effect.group)

    def _leading(self, effect: Leading) -> None:
        self._world.checker.leading(self, effect.term)

    def _deposed(self, _: Deposed) -> None:
        self.application.deposed()

    def _accepted(self, effect: Accepted) -> None:
        self.application.accepted(effect.number, effect.index)

    def _released(self, effect: Released) -> None:
        self._world.checker.released(self, effect.index)
        self.application.flush_soon()

    def _transferred(self, effect: Transferred) -> None:
        if effect.done:
            self._world.checker.transferred(self)

    def _rejected(self, effect: Rejected) -> None:
        self.application.rejected(effect.number)

    def _unclean_election(self, effect: UncleanElection) -> None:
        self._world.checker.unclean(self, effect)

    def _ignored(self, effect: Effect) -> None:
        pass
