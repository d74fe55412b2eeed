"""One pass: receive, decide, commit, answer."""

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shardmq.bus.curve import NO_KEYS, CurveKeys
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.listener import Listener, Peer
from shardmq.bus.messages.base import Answer, Inspect
from shardmq.bus.messages.coordinator import (
    AdmitConnection,
    ReportConnections,
    RunCommand,
    ToCoordinator,
    TopologyApplied,
)
from shardmq.bus.messages.shard import FromShard
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.bus.poller import Poller, context
from shardmq.coordinator.handlers.backup import Backup
from shardmq.coordinator.handlers.commands import RETURN_SECONDS, CommandExecutor
from shardmq.coordinator.handlers.connections import ConnectionTracker
from shardmq.coordinator.handlers.status import StatusCollector
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.shard_identity import Members
from shardmq.coordinator.rules.users import guest, guests_permission
from shardmq.coordinator.state.transactions import TransactionState
from shardmq.coordinator.storage.store import Store
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.vitals import vitals
from shardmq.topology.changes import Change, PermissionPut, UserPut
from shardmq.topology.entities import DEFAULT_VHOST
from shardmq.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """How a coordinator runs.

    Attributes:
        data_dir: the broker's data directory; the coordinator's own is `coordinator` in it.
        listen: bus address for gateways, as `ipc:///run/shardmq/coordinator`.
        shards: bus addresses of all shards, by number.
        boot_id: names this life of the broker; with another one, what is not durable is gone.
        security: of the bus, where it is TCP.
    """

    data_dir: Path
    listen: str
    shards: tuple[str, ...]
    boot_id: str
    security: CurveKeys = NO_KEYS


TICK_SECONDS: Final = 0.1
"""How often links and deadlines are looked after."""

TICK_AT_REST_SECONDS: Final = 0.5
"""The same, when every shard is there and nobody waits: still twice for every ping."""


class CoordinatorLoop:
    """The parts of the process and its loop.

    Args:
        options: how to run.
        clock: steady time, by which transactions expire; the store's note of it goes on when None.

    Raises:
        StartupRefused: as `run`.
    """

    def __init__(self, options: CoordinatorOptions, clock: SteadyClock | None = None) -> None:
        self._store = Store(options.data_dir / "coordinator", options.boot_id)
        try:
            stored = self._store.load(len(options.shards))
        except BaseException:
            self._store.close()
            raise
        self._topology = Topology()
        self._topology.load(stored.topology)
        if not stored.knows_permissions:
            self._found()
        self._context = context(options.security)
        self._listener: Listener[ToCoordinator] = Listener(
            self._context, options.listen, "coordinator", "coordinator", ToCoordinator
        )
        self._founding = stored.founding
        members = Members(stored.founding, self._store.enroll)
        self._shards = [self._shard(number, address, members) for number, address in enumerate(options.shards)]
        silent_until = time.monotonic() + RETURN_SECONDS if stored.is_restart else 0.0
        clock = clock or SteadyClock.resumed(stored.transactions.clock)
        registry = TransactionState(self._topology, self._store, clock, stored.transactions.next_number)
        self._endings = TwoPhaseCommit(self._shards, stored.transactions.conclusions)
        self._desk = CommandExecutor(
            self._topology,
            self._store,
            self._shards,
            options.shards,
            registry,
            self._endings,
            stored.founding,
            silent_until,
        )
        self._attendance = ConnectionTracker(self._topology, self._on_orphan, silent_until)
        self._census = StatusCollector()
        self._backup = Backup(self._store, self._shards, self._desk, self._endings, stored.founding)
        for queue in self._topology.queues.values():
            self._shards[queue.shard].keep(queue)
        for queue_id, number in stored.tombstones.items():
            if number < len(self._shards):
                self._shards[number].drop(queue_id)
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._stopping = False

    def serve(self) -> None:
        """Pass after pass until stopped: take in what has come, decide, write, tell."""
        links: list[Any] = [self._listener.socket, *(shard.dialer.socket for shard in self._shards)]
        waiter = Poller([*links, self._woken.fileno()])
        ticked_at = tick_at = 0.0
        more = False
        while not self._stopping:
            if not more:
                waiter.wait(tick_at - time.monotonic())
            now = time.monotonic()
            more = self._receive(now)
            if now >= tick_at:
                ticked_at = now
                self._tick(now)
            self._desk.settle()
            self._backup.work(now)
            self._flush()
            is_busy = self._desk.is_busy or self._census.is_busy or self._attendance.is_busy or self._backup.is_busy
            at_rest = not is_busy and all(shard.is_open for shard in self._shards)
            tick_at = ticked_at + (TICK_AT_REST_SECONDS if at_rest else TICK_SECONDS)

    def stop(self) -> None:
        """Have `serve` return after its pass. May be called from a signal handler or another thread."""
        self._stopping = True
        try:
            self._wake.send(b"\0")
        except BlockingIOError:
            return  # it has been woken often enough

    def close(self) -> None:
        """Hang up and close the store."""
        self._backup.close()
        self._listener.close()
        for shard in self._shards:
            shard.dialer.close()
        self._context.term()
        self._wake.close()
        self._woken.close()
        self._store.close()

    def _shard(self, number: int, address: str, members: Members) -> ShardLink:
        name = f"shard-{number}"
        dialer: Dialer[FromShard] = Dialer(self._context, address, "coordinator", "coordinator", FromShard, name)
        return ShardLink(number, dialer, members)

    def _found(self) -> None:
        """A first start: the default virtual host, and a user to begin with. Or the first with a version that has
        permissions: that user could do everything so far, and still can.
        """
        changes: list[Change] = []
        if not self._topology.vhosts and not self._topology.users:
            changes += [*new_vhost(DEFAULT_VHOST), UserPut(guest()), PermissionPut(guests_permission())]
        elif DEFAULT_VHOST in self._topology.vhosts and guests_permission().user in self._topology.users:
            changes += [PermissionPut(guests_permission())]
        self._store.write(changes)
        for change in changes:
            self._topology.apply(change)

    def _receive(self, now: float) -> bool:
        more = False
        for shard in self._shards:  # first, so that nobody deletes what a shard has just called damaged
            more = shard.receive() or more
            for queue in shard.take_unused():
                self._desk.dismiss(queue, True, now)
        for peer, event in self._listener.receive():
            self._on_gateway(peer, event, now)
        return more or self._listener.more

    def _on_gateway(self, peer: Peer, event: LinkOpened | LinkLost | ToCoordinator, now: float) -> None:
        match event:
            case RunCommand():
                self._desk.perform(peer, event.request, event.command, now)
            case TopologyApplied():
                self._desk.synced(peer, event.version)
            case Inspect():
                self._census.begin(peer, event.request, self._status(), self._listener.peers, now, event.noun)
            case ReportConnections():
                self._attendance.present(peer, event)
            case AdmitConnection():
                self._attendance.admit(peer, event, now)
            case BeginBackup():
                self._backup.begin(peer, event, now)
            case LookBackup():
                self._backup.look(peer, event)
            case Answer():
                self._census.take(peer, event)
            case LinkOpened():
                self._desk.greet(peer)
            case LinkLost():
                self._lose(peer)

    def _tick(self, now: float) -> None:
        """The desk first: a listener's tick flushes, so nothing may be posted that is not on disk."""
        self._store.space.look()
        self._desk.tick(now)
        self._attendance.tick(now)
        self._desk.settle()
        for shard in self._shards:
            shard.tick(now)
        self._census.tick(now)
        for peer, _ in self._listener.tick(now):
            self._lose(peer)

    def _lose(self, peer: Peer) -> None:
        self._desk.lose(peer)
        self._census.lose(peer)
        self._attendance.lose(peer)

    def _on_orphan(self, queue: int) -> None:
        self._desk.dismiss(queue, False, time.monotonic())

    def _flush(self) -> None:
        self._listener.flush()
        for shard in self._shards:
            shard.flush()

    def _status(self) -> dict[str, Any]:
        topology = self._topology
        return {
            **vitals("coordinator", "coordinator"),
            "exchanges": len(topology.exchanges),
            "queues": len(topology.queues),
            "bindings": len(topology.bindings),
            "transactions": len(topology.transactions),
            "concluding": self._endings.concluding,
            "gateways": self._desk.gateways,
            "version_of_topology": topology.version,
            "broker": self._founding.broker,
            "generation": self._founding.generation,
        }
