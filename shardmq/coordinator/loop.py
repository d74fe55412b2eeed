"""One pass: receive, decide, commit, answer."""

import socket
import time
from typing import TYPE_CHECKING, Any, Final

from shardmq.bus.curve import Context
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.listener import Listener, Peer, Responder
from shardmq.bus.messages.base import Answer, Call, Inspect
from shardmq.bus.messages.coordinator import (
    AdmitConnection,
    CoordinatorRequest,
    ReportConnections,
    RunCommand,
    ToCoordinator,
    TopologyApplied,
)
from shardmq.bus.messages.membership import GroupReleased, JoinGroup, LeaveGroup, ReportMembers, TakeEpoch
from shardmq.bus.messages.stores import BeginBackup, LookBackup
from shardmq.bus.poller import Poller
from shardmq.bus.spinning import Spinning
from shardmq.coordinator.handlers.backup import Backup
from shardmq.coordinator.handlers.boot_definitions import BootDefinitions, DefinitionFiles
from shardmq.coordinator.handlers.commands import CommandExecutor
from shardmq.coordinator.handlers.connections import ConnectionTracker
from shardmq.coordinator.handlers.groups import GroupMembership
from shardmq.coordinator.handlers.replicas import TopologyReplicas
from shardmq.coordinator.handlers.status import StatusCollector
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.coordinator.state.fencing import Fencing
from shardmq.runtime import notify
from shardmq.runtime.vitals import vitals
from shardmq.runtime.waiting import WaitingReport

if TYPE_CHECKING:
    from shardmq.coordinator.handlers.shards import NewShards
    from shardmq.replication.member import GroupMember

TICK_SECONDS: Final = 0.1
"""Time between two ticks of links and deadlines."""

TICK_AT_REST_SECONDS: Final = 0.5
"""The same when every shard is connected and no command waits: two ticks for every ping."""


RECORDED_SECONDS: Final = 0.01
"""With its next queue, or after so long a rest, a shard hears that one is on disk: at once would be a wake-up more."""


class CoordinatorLoop:
    """The coordinator's handlers, and the loop that calls them.

    Args:
        state: what the coordinator knows, keeps and talks to.
        sockets: the ZeroMQ context of its links.
        listener: where gateways call.
        replicas: the gateways' copies of the topology.
        two_phase_commit: has shards prepare transactions and follow decisions.
        definitions: to be imported at the start; None for none.
        new_shards: takes in those that are added; None in a broker on one host.
        member: the replica that leads, whose links hold what is posted; None in a broker on one host.
    """

    def __init__(
        self,
        state: CoordinatorState,
        sockets: Context,
        listener: Listener[ToCoordinator],
        replicas: TopologyReplicas,
        two_phase_commit: TwoPhaseCommit,
        definitions: DefinitionFiles | None = None,
        new_shards: "NewShards | None" = None,
        member: "GroupMember | None" = None,
    ) -> None:
        self._member = member
        self._new_shards = new_shards
        self._state = state
        self._shards = state.shards if new_shards is None else new_shards.links
        self._sockets = sockets
        self._listener = listener
        self._replicas = replicas
        self._two_phase_commit = two_phase_commit
        self._commands = CommandExecutor(state, replicas, two_phase_commit)
        self._connections = ConnectionTracker(state.topology, self._on_orphan, state.returning)
        self._commands.claims.claim = self._connections.claim
        self._groups = GroupMembership(state.topology, state.identity.generation, state.returning)
        self._status_collector = StatusCollector()
        self._fencing = None if member is None else Fencing(self._shards, state.returning, replicas.remove)
        self._backup = Backup(state, self._commands, two_phase_commit)
        self._definitions = BootDefinitions(state, self._commands, definitions)
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._stopping = False
        self._shovels = 0  # as the supervisor knows
        self._waiting = WaitingReport(self._missing)
        self._heartbeat = notify.Heartbeat(lambda: [f"waits for {whom}" for whom in self._missing()])

    def serve(self) -> None:
        """Carry out passes until stopped: receive, decide, commit, answer.

        Raises:
            TermEnded, NotPrimary: this replica leads no more.
        """
        links: list[Any] = [self._listener.socket, *(shard.dialer.socket for shard in self._shards)]
        links.append(self._woken.fileno())
        poller = Poller(links) if self._member is None else self._member.poller(links)
        if self._new_shards is not None:
            poller.add(self._new_shards.fileno())
            self._new_shards.on_link = lambda link: poller.add(link.dialer.socket)
        spinning = Spinning()
        ticked_at = tick_at = say_at = 0.0
        more = False
        while not self._stopping:
            if not more and not poller.wait(self._wait_seconds(min(tick_at, say_at)), spinning.awake_until):
                for shard in self._shards:
                    shard.say_recorded()
            if self._member is not None and not self._may_go_on(self._member):
                continue
            now = time.monotonic()
            more = self._receive(now) or (self._new_shards is not None and self._look_for_shards(self._new_shards, now))
            is_conversing = self._commands.is_conversing
            if now >= tick_at:
                ticked_at = now
                self._tick(now)
            if self._fencing is not None:
                self._fencing.look()
            self._commands.settle()
            if self._definitions.is_busy:
                self._definitions.work(now)
                self._commands.settle()
            self._groups.settle()
            self._backup.work(now)
            if self._flush():
                spinning.passed(now, time.monotonic(), is_conversing)
            self._state.store.rest(now)
            is_busy = (
                self._commands.is_busy
                or self._status_collector.is_busy
                or self._connections.is_busy
                or self._groups.is_busy
                or self._backup.is_busy
                or self._definitions.is_busy
                or not self._state.returning.is_over
                or (self._new_shards is not None and self._new_shards.is_busy)
            )
            at_rest = not (is_busy or self._state.store.is_pending) and all(shard.is_open for shard in self._shards)
            tick_at = ticked_at + (TICK_AT_REST_SECONDS if at_rest else TICK_SECONDS)
            is_unsaid = any(shard.is_unsaid and shard.is_open for shard in self._shards)
            say_at = now + RECORDED_SECONDS if is_unsaid else tick_at

    def _look_for_shards(self, new_shards: "NewShards", now: float) -> bool:
        """Follow the shards' primaries, and take in shards that were added; returns whether one is elsewhere now."""
        if new_shards.is_busy and not self._backup.is_busy:  # one that has begun is of the shards there were
            new_shards.work(self._listener.peers, self._status_collector, now)
        return new_shards.look(now)

    def _wait_seconds(self, until: float) -> float:
        wait = until - time.monotonic()
        return wait if self._member is None else min(wait, self._member.node.wait_seconds())

    def _may_go_on(self, member: "GroupMember") -> bool:
        """Let the replica go on; returns whether this may, too."""
        member.turn()
        if self._state.promises.look(member.refusal, member.node.released):
            self._replicas.post_promised()
        return not member.is_paused

    def stop(self) -> None:
        """Have `serve` return after its pass. May be called from a signal handler or another thread."""
        self._stopping = True
        try:
            self._wake.send(b"\0")
        except BlockingIOError:
            return  # it has been woken already

    def close(self) -> None:
        """Close the links and the store; a replica's directory of primaries and its own links stay."""
        self._backup.close()
        if self._new_shards is not None and self._member is None:
            self._new_shards.close()
        self._listener.close()
        for shard in self._shards:
            shard.dialer.close()
        if self._member is None:  # else the process goes on, and so do its links and what knows the primaries
            self._sockets.term()
        self._wake.close()
        self._woken.close()
        self._state.store.close()

    def _receive(self, now: float) -> bool:
        more = False
        for shard in self._shards:  # first, so that no queue is deleted that a shard has just reported damaged
            if shard.dialer.has_come:
                more = shard.receive() or more
            for queue in shard.take_unused():
                self._commands.delete_queue(queue, True, now)
        for peer, event in self._listener.receive():
            self._on_gateway(peer, event, now)
        return more or self._listener.more

    def _on_gateway(self, peer: Peer, event: LinkOpened | LinkLost | ToCoordinator, now: float) -> None:
        match event:
            case Call():
                self._on_request(Responder(peer, event.request), event.message, now)
            case TopologyApplied():
                self._replicas.applied(peer, event.version)
            case ReportConnections():
                self._connections.report(peer, event)
            case ReportMembers() | LeaveGroup() | GroupReleased():
                self._groups.hear(peer, event)
            case Answer():
                self._status_collector.take(peer, event)
            case LinkOpened():
                self._replicas.add(peer)
                if self._fencing is not None:
                    self._fencing.opened(peer)
            case LinkLost():
                self._lose(peer, now)

    def _on_request(self, responder: Responder[Any], request: CoordinatorRequest, now: float) -> None:
        match request:
            case RunCommand():
                self._commands.perform(responder, request, now)
            case Inspect():
                self._status_collector.begin(responder, self._status(), self._listener.peers, now, request)
            case AdmitConnection():
                self._connections.admit(responder, request, now)
            case JoinGroup():
                self._groups.join(responder, request)
            case TakeEpoch():
                responder.answer(self._groups.take_epoch())
            case BeginBackup():
                self._backup.begin(responder, request, now)
            case LookBackup():
                responder.answer(self._backup.table())

    def _tick(self, now: float) -> None:
        """Commands come first: a listener's tick flushes, so nothing may be posted that is not on disk."""
        self._state.store.space.look()
        self._state.returning.look(now, self._connections.gateways)
        self._commands.tick(now)
        self._connections.tick(now)
        self._groups.tick(now)
        self._commands.settle()
        for shard in self._shards:
            shard.tick(now)
        self._status_collector.tick(now)
        for peer, _ in self._listener.tick(now):
            self._lose(peer, now)
        self._waiting.look(now)
        self._heartbeat.beat(now)
        shovels = len(self._state.topology.parameters)
        if shovels != self._shovels:
            self._shovels = shovels
            notify.shovels(shovels)

    def _missing(self) -> list[str]:
        """The shards without an open link."""
        away = [(number, shard.dialer) for number, shard in enumerate(self._shards) if not shard.is_open]
        nowhere = "(etcd names no primary that can be called)"
        return [f"shard {number} {f'at {dialer.address}' if dialer.address else nowhere}" for number, dialer in away]

    def _lose(self, peer: Peer, now: float) -> None:
        if self._fencing is None:
            self._replicas.remove(peer)
        else:
            self._fencing.lose(peer)
        self._groups.lose(peer, now)
        self._status_collector.lose(peer)
        self._connections.lose(peer)

    def _on_orphan(self, queue: int) -> None:
        self._commands.delete_queue(queue, False, time.monotonic())

    def _flush(self) -> bool:
        """Send what was posted. Returns whether there was anything."""
        has_sent = self._listener.flush()
        for shard in self._shards:
            has_sent = shard.flush() or has_sent
        return has_sent if self._member is None else self._member.release()

    def _status(self) -> dict[str, Any]:
        topology, identity = self._state.topology, self._state.identity
        return {
            **vitals("coordinator", "coordinator"),
            "exchanges": len(topology.exchanges),
            "queues": len(topology.queues),
            "bindings": len(topology.bindings),
            "transactions": len(topology.transactions),
            "concluding": self._two_phase_commit.following,
            "gateways": len(self._replicas),
            "queues_created": self._replicas.queues_created,
            "queues_deleted": self._replicas.queues_deleted,
            "groups": len(self._groups),
            "version_of_topology": topology.version,
            "broker": identity.broker,
            "generation": identity.generation,
            **({} if self._member is None else self._member.table()),
        }
