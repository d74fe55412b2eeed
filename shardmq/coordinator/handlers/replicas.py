"""Gateways and the topology version each has reached."""

from collections import deque
from collections.abc import Sequence

from shardmq.bus.listener import Peer
from shardmq.bus.messages.coordinator import Changes, Snapshot, TellEvents
from shardmq.coordinator.rules.shard_identity import BrokerIdentity
from shardmq.coordinator.state.pending_command import PendingCommand, Stage
from shardmq.coordinator.state.promises import Promises
from shardmq.topology.changes import Change, QueueAdded, QueueRemoved
from shardmq.topology.topology import Topology


class TopologyReplicas:
    """The gateways' copies of the topology, and the commands that wait for them.

    Messages are only posted here. The owner flushes once the changes are on disk.

    Args:
        topology: the authority; changed only by `tell`.
        addresses: of the shards, for the gateways.
        identity: the broker's id and the generation, for the gateways.
        promises: tells whether gateways may promise what they are told of.

    Attributes:
        queues_created: since the coordinator started.
        queues_deleted: since then.
    """

    def __init__(
        self, topology: Topology, addresses: Sequence[str], identity: BrokerIdentity, promises: Promises
    ) -> None:
        self._topology = topology
        self._promises = promises
        self._addresses = list(addresses)
        self._identity = identity
        self._versions: dict[Peer, int] = {}  # applied by each gateway
        self._waiting: dict[Peer | None, deque[PendingCommand]] = {}  # by who need not say so, in order of versions
        self._untold: list[Change] = []  # applied in this pass
        self._performers: list[tuple[int, str]] = []  # of these, as Changes has them
        self.queues_created = self.queues_deleted = 0

    def __len__(self) -> int:
        return len(self._versions)

    def __contains__(self, peer: object) -> bool:
        return peer in self._versions

    def add(self, peer: Peer) -> None:
        """Send a gateway the whole topology, and every change from now on."""
        if peer in self._versions:
            return
        self.post_changes()  # they are in the snapshot
        self._versions[peer] = -1
        fields = self._topology.snapshot()
        broker, generation = self._identity.broker, self._identity.generation
        transactions, topics = list(fields.transactions), list(fields.topics)
        policies, allowed = list(fields.policies), list(fields.topic_permissions)
        tracing, given = dict(fields.tracing), list(fields.parameters)
        head = *fields[:7], self._addresses
        tail = topics, policies, allowed, tracing, given, not self._promises.is_in_doubt
        peer.post(Snapshot(*head, transactions, broker, generation, *tail))
        if len(self._versions) == 1:
            peer.post(TellEvents())

    def remove(self, peer: Peer) -> None:
        """Wait no more for a gateway that is gone."""
        was_teller = peer is next(iter(self._versions), None)
        self._versions.pop(peer, None)
        if was_teller and self._versions:
            next(iter(self._versions)).post(TellEvents())

    def applied(self, peer: Peer, version: int) -> None:
        """Note that a gateway routes by a version."""
        if peer in self._versions:
            self._versions[peer] = version

    def tell(self, changes: Sequence[Change], user: str) -> None:
        """Apply a user's changes to the topology. The gateways get them at the end of the pass."""
        if not changes:
            return
        for change in changes:
            self._topology.apply(change)
            self.queues_created += isinstance(change, QueueAdded)
            self.queues_deleted += isinstance(change, QueueRemoved)
        if not self._untold:
            self._topology.version += 1
        self._untold += changes
        before = 0
        if self._performers and self._performers[-1][1] == user:
            before, _ = self._performers.pop()
        self._performers.append((before + len(changes), user))

    def post_changes(self) -> None:
        """Post what this pass has changed, as one version whatever the number of commands.

        A thousand declarations in one pass take a third of the time that a thousand versions would.
        """
        if not self._untold:
            return
        untold, self._untold = self._untold, []
        performers, self._performers = self._performers, []
        is_promised = not self._promises.is_in_doubt
        for peer in self._versions:
            is_awaited = len(self._versions) > 1 or any(asker is not peer for asker in self._waiting)
            peer.post(Changes(self._topology.version, untold, performers, is_awaited, is_promised))

    def post_promised(self) -> None:
        """Tell the gateways that enough replicas have all that they were told of."""
        for peer in self._versions:
            peer.post(Changes(self._topology.version, [], [], False))

    def wait(self, pending: PendingCommand) -> None:
        """Have a command wait until every gateway has applied the topology as it is now.

        A command that changed nothing waits too: a gateway may still be applying the change that made it so. The
        gateway that asked is not waited for, as its answer is sent behind the change: with one gateway, nearly every
        command is answered in its own pass.
        """
        pending.stage, pending.version = Stage.GATEWAYS, self._topology.version
        asker = None if pending.responder is None else pending.responder.peer
        self._waiting.setdefault(asker, deque()).append(pending)

    def take_applied(self) -> list[PendingCommand]:
        """The commands that every gateway has applied since the last call. What this pass has changed is posted."""
        if not self._waiting:
            return []
        self.post_changes()
        applied: list[PendingCommand] = []
        for asker, waiting in list(self._waiting.items()):
            others = [version for peer, version in self._versions.items() if peer is not asker]
            reached = min(others, default=self._topology.version)
            while waiting and waiting[0].version <= reached:
                applied.append(waiting.popleft())
            if not waiting:
                del self._waiting[asker]
        return applied

    def laggard(self, version: int) -> str:
        """The name of a gateway that has not applied a version."""
        return next((peer.name for peer, reached in self._versions.items() if reached < version), "a gateway")
