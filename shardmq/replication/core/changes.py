"""What a primary changes about its group: evictions, growth, transfers, moves. One swap at a time."""

from shardmq.replication.core.catch_up import Peer
from shardmq.replication.core.effects import CommandRefused, Transferred
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Handover
from shardmq.replication.core.register import Register
from shardmq.replication.core.state import ReplicaState
from shardmq.replication.core.timing import SILENT_SECONDS, STUCK_SECONDS, TRANSFER_SECONDS


class GroupChanges:
    """Decides what a primary's group is to become.

    Args:
        state: of the primary.
        register: the group's key.
        peers: the other replicas.

    Attributes:
        growing: learners that a swap adds to the in-sync set, and the revision that it was asked of. Each is waited
            for like a member until the key has another revision: a swap that was not answered may take place late.
        transfer_to: who shall lead; "" for nobody.
        released_at: when a release was last due to nobody, or took place, in seconds on the primary's clock.
        durable_index: index up to which all is on the primary's own disk.
        has_resigned: a swap was sent that ends the term: nothing is answered any more.
        may_resign: whether what was released has been answered, too.
    """

    def __init__(self, state: ReplicaState, register: Register, peers: dict[str, Peer]) -> None:
        self._state = state
        self._register = register
        self._peers = peers
        self._since = state.now
        self.growing: dict[str, int] = {}
        self.released_at = state.now
        self.durable_index = 0
        self.transfer_to = ""
        self._transfer_until = 0.0
        self.has_resigned = False
        self.may_resign = False
        self._move: tuple[str, str] | None = None
        self._drop = ""

    def awaited(self) -> list[Peer]:
        """Return whose acknowledgement a release waits for: the set committed in etcd, and who is about to join it."""
        group = self._register.group
        assert group is not None
        names = dict.fromkeys((*group.in_sync, *self.growing))
        return [self._peers[name] for name in names if name in self._peers]

    def learned(self) -> None:
        """Take a new value of the key: swaps that were asked of older revisions are dead."""
        self.growing = {
            name: revision for name, revision in self.growing.items() if revision >= self._register.revision
        }

    def decide(self) -> None:
        """Ask for the next change that is due."""
        if self._register.is_busy:
            return
        if self.has_resigned:
            self._end_transfer()
        for step in (self._eviction, self._fence, self._growth, self._moved, self._dropped, self._transferred):
            group = step()
            if group is not None:
                self._register.swap(group)
                return

    @property
    def _group(self) -> Group:
        assert self._register.group is not None
        return self._register.group

    def _is_gone(self, peer: Peer) -> bool:
        is_silent = self._state.now - max(peer.answered, self._since) > SILENT_SECONDS
        return peer.must_leave or is_silent or self.is_stuck(peer)

    def is_stuck(self, peer: Peer) -> bool:
        """Whether a replica that answers beats holds up what all others have, for long."""
        holds_up = peer.acked <= self._state.released < self.durable_index
        return holds_up and self._state.now - self.released_at > STUCK_SECONDS

    def _eviction(self) -> Group | None:
        for name in self._group.in_sync:
            peer = self._peers.get(name)
            if peer is not None and self._is_gone(peer):
                return self._group.shrunk(name)
        return None

    def _fence(self) -> Group | None:
        """Change nothing but the key's revision, so that a growth that was not answered cannot take place any more."""
        return self._group if any(self._is_gone(self._peers[name]) for name in self.growing) else None

    def _growth(self) -> Group | None:
        for name, peer in self._peers.items():
            if name not in self._group.in_sync and not self.is_leaving(name) and self.may_grow(peer):
                self.wait_for(name)
                return self._group.grown(name)
        return None

    def may_grow(self, peer: Peer) -> bool:
        """Whether a learner lacks nothing but what is under way.

        What the primary before may yet release, by late acknowledgements, this one began its term with. A learner
        that acknowledged anything in its stream has that: streams begin with all that the primary holds.
        """
        is_heard = self._state.now - peer.answered <= SILENT_SECONDS  # else the lease would end with its growth
        is_there = peer.stream and peer.is_complete and is_heard and not peer.must_leave
        return bool(is_there) and peer.acked >= self._state.released

    def is_leaving(self, name: str) -> bool:
        """Whether a replica is being dropped: taken in again, it would leave and come back without end."""
        return name == self._drop

    def wait_for(self, name: str) -> None:
        """Wait for a learner's acknowledgements from before the swap is sent."""
        self.growing[name] = self._register.revision

    def transfer(self, to: str) -> None:
        """Begin to hand over, by an operator's command."""
        if to == self._state.name or to not in self._group.in_sync or self.transfer_to:
            in_sync = ", ".join(self._group.in_sync)
            reason = f"cannot transfer to {to}: in sync are {in_sync}, and one transfer runs at a time"
            self._state.effects.append(CommandRefused(reason))
            return
        self.transfer_to = to
        self._transfer_until = self._state.now + TRANSFER_SECONDS

    def move(self, source: str, target: str) -> None:
        """Begin to have another replica in place of one, by an operator's command."""
        is_moving = self._move is not None or self._drop not in ("", self._state.name)
        if source not in self._group.replicas or target in self._group.in_sync or is_moving:
            replicas = ", ".join(self._group.replicas)
            reason = f"cannot move {source} to {target}: replicas are {replicas}, and one move runs at a time"
            self._state.effects.append(CommandRefused(reason))
            return
        self._move = (source, target)

    def drop(self, name: str) -> None:
        """Let go of a replica, the end of a move."""
        self._drop = name

    def _moved(self) -> Group | None:
        if self._move is None:
            return None
        source, target = self._move
        if target not in self._group.replicas:
            return self._group.with_replica(target)
        if target in self._group.in_sync:
            self._move = None
            self._drop = source
            if source == self._state.name and not self.transfer_to:
                self.transfer(target)
        return None

    def _dropped(self) -> Group | None:
        name = self._drop
        if not name or not self.may_drop(name):
            return None
        if name in self._group.in_sync:
            return self._group.shrunk(name)
        if name in self._group.replicas:
            return self._group.without_replica(name)
        self._drop = ""
        return None

    def may_drop(self, name: str) -> bool:
        """Whether a replica may leave: the primary must have handed over before."""
        return name != self._state.name

    def _transferred(self) -> Group | None:
        if not self.transfer_to:
            return None
        if self._state.now > self._transfer_until or self.transfer_to not in self._group.in_sync:
            self._end_transfer()
        elif self.may_resign and self.may_transfer(self._peers[self.transfer_to]):
            self.has_resigned = True
            return self._group.transferred(self.transfer_to)
        return None

    def may_transfer(self, peer: Peer) -> bool:
        """Whether all is released, so that nobody waits for an answer."""
        return self._state.released == self._state.index == peer.acked

    def _end_transfer(self) -> None:
        """Go on as the primary."""
        self._state.effects.append(Transferred(self.transfer_to, False))
        self.transfer_to = ""
        self.has_resigned = False

    def deposed(self, group: Group) -> None:
        """Tell the next primary, where this one handed over to it, that it need not wait for a lease to end."""
        if self.has_resigned and group.primary == self.transfer_to:
            self._state.effects.append(Transferred(self.transfer_to, True))
            drop = self._drop if self._drop == self._state.name else ""
            self._state.send(self.transfer_to, Handover(group.term, drop))
