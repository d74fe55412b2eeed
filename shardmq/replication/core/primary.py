"""The role of the primary: beats and lease, records, releases.

A record is released once it is on this disk and on those of the in-sync set committed in etcd. The lease has no part in
that. It makes sure that of two that believe to lead, one at most answers: it ends before any follower campaigns.
"""

from collections.abc import Mapping

from shardmq.replication.core.catch_up import CatchUp, Peer
from shardmq.replication.core.changes import GroupChanges
from shardmq.replication.core.effects import Accepted, Deposed, Leading, Rejected, Released
from shardmq.replication.core.events import Propose
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Ack, Beat, BeatAnswer, Hello, RangeAck, Record
from shardmq.replication.core.note import Edits
from shardmq.replication.core.register import Register
from shardmq.replication.core.state import CommitUnderWay, ReplicaState
from shardmq.replication.core.timing import BEAT_SECONDS, LEASE_SECONDS


class Primary:
    """What a replica does in a term that it leads.

    Args:
        state: of the replica.
        register: the group's key, which names this replica.
        quiet_until: when the last lease that this replica granted as a follower has ended, in seconds on its clock.

    Attributes:
        term: that it leads.
        is_active: whether it takes proposals: no lease of another primary runs any more.
        changes: what it changes about the group.
    """

    def __init__(self, state: ReplicaState, register: Register, quiet_until: float) -> None:
        self._state = state
        self._register = register
        self._quiet_until = quiet_until
        group = self._group
        self.term = group.term
        self.is_active = False
        self._first_index = state.index + 1
        self._is_sure = state.released == state.index and not self.has_too_few()
        self._durable_index = 0
        self._beat_at = float("-inf")
        self._early: dict[str, Hello] = {}
        self._peers: dict[str, Peer] = {}
        self.changes = GroupChanges(state, register, self._peers)
        self._catch_up = CatchUp(state)
        self._awaited: list[Peer] = []
        self._learn_peers()

    @property
    def _group(self) -> Group:
        assert self._register.group is not None
        return self._register.group

    @property
    def wake(self) -> float:
        """When it wants to be called, in seconds on the replica's clock."""
        if self.changes.transfer_to:
            return self._state.now
        wake = self._beat_at + BEAT_SECONDS
        for peer in self._peers.values():
            if peer.rests_until is not None and peer.rests_until < wake:
                wake = peer.rests_until
        return wake if self.is_active else min(wake, max(self._quiet_until, self._state.now))

    def begin_at(self, now: float, drop: str) -> None:
        """Take proposals from a time on, as the primary before has ended its lease; drop a replica, to end its move."""
        self._quiet_until = min(self._quiet_until, now)
        if drop:
            self.changes.drop(drop)
        self._begin()

    def _learn_peers(self) -> None:
        for name in self._group.replicas:
            if name != self._state.name and name not in self._peers:
                self._peers[name] = Peer(name)
        for name in [name for name in self._peers if name not in self._group.replicas]:
            del self._peers[name]
        self._awaited = self.changes.awaited()

    def group_learned(self) -> None:
        """Take a new value of the group's key, of the same term."""
        self.changes.learned()
        self._learn_peers()
        for name, peer in self._peers.items():
            if name not in self._group.in_sync:
                peer.must_leave = False
        self._release()
        self._decide()

    def _decide(self) -> None:
        before = len(self.changes.growing)
        self.changes.decide()
        if len(self.changes.growing) != before:
            self._awaited = self.changes.awaited()

    def tick(self) -> None:
        """Send beats, begin to lead, look for what has to change."""
        state = self._state
        if self._register.must_read:
            self._register.read()
        if state.is_stalled:
            return
        self._begin()
        self._catch_up.tick(self._peers.values())
        if state.now >= self._beat_at + BEAT_SECONDS and state.durable_promised >= self.term:
            self._beat()
        self.changes.may_resign = self.may_answer(state.now)
        self._decide()
        self.changes.may_resign = False

    def _begin(self) -> None:
        """Take proposals, where nothing has to be waited for any more."""
        state = self._state
        if self.is_active or state.is_stalled:
            return
        if state.now >= self._quiet_until and state.durable_promised >= self.term:
            self.is_active = True
            self.changes.released_at = state.now
            state.effects.append(Leading(self.term, self._is_sure))
            state.begin_term(self.term)
            self._append(())
            self._beat()
            for sender, hello in self._early.items():
                self.hello(sender, hello)
            self._early.clear()

    def _beat(self) -> None:
        state = self._state
        self._beat_at = state.now
        for peer in self._peers.values():
            state.send(peer.name, Beat(self.term, state.now, peer.stream, state.released, state.clock()))

    def beat_answer(self, sender: str, answer: BeatAnswer) -> None:
        """Take note that a follower will not campaign for a while after the beat was sent."""
        peer = self._peers.get(sender)
        if peer is not None and answer.term == self.term:
            peer.answered = max(peer.answered, self.answered_at(answer))

    def answered_at(self, answer: BeatAnswer) -> float:
        """Return when the beat was sent: the follower may have heard it at once, and counts from there."""
        return answer.at

    @property
    def lease_until(self) -> float:
        """When the lease ends, in seconds on the replica's clock. Nobody but members of the set can campaign."""
        return min((peer.answered for peer in self._awaited), default=float("inf")) + LEASE_SECONDS

    def may_answer(self, now: float) -> bool:
        """Whether what was released may be told, now."""
        return (
            self.is_active
            and not self.changes.has_resigned
            and self._state.released >= self._first_index
            and self._has_lease(now)
        )

    def _has_lease(self, now: float) -> bool:
        return now < self.lease_until

    def propose(self, event: Propose) -> None:
        """Make a record of edits, and send it to all that need it."""
        reason = self._objection(event)
        if reason:
            self._state.effects.append(Rejected(event.number, reason))
            return
        self._append(event.edits)
        self._state.effects.append(Accepted(event.number, self._state.index))

    def _objection(self, event: Propose) -> str:
        if not self.is_active:
            return f"{self._state.name} waits for the end of the lease before it; try again"
        if self.changes.transfer_to:
            return f"{self._state.name} hands over to {self.changes.transfer_to}; try again there"
        if event.is_publish and self.has_too_few():
            group = self._group
            return f"{len(group.in_sync)} of at least {group.min_in_sync} replicas are in sync; nothing new is taken"
        return ""

    def has_too_few(self) -> bool:
        """Whether there are fewer replicas in sync than the group must have to take something new."""
        return len(self._group.in_sync) < self._group.min_in_sync

    def _append(self, edits: Edits) -> None:
        state = self._state
        if state.released == state.index:
            self.changes.released_at = state.now
        index, released, clock = state.index + 1, state.released, state.clock()
        for peer in self._peers.values():
            if peer.stream:
                record = Record(self.term, peer.stream, index, released, clock, edits)
                if peer.waiting is None:
                    state.send(peer.name, record)
                else:
                    peer.waiting.append(record)
        state.append(edits)

    def hello(self, sender: str, hello: Hello) -> None:
        """Bring a follower up to date."""
        peer = self._peers.get(sender)
        if peer is None or hello.term != self.term:
            return
        if not self.is_active:
            self._early[sender] = hello  # it would be said again after 0.5 s
            return
        is_in_sync = sender in self._group.in_sync or sender in self.changes.growing
        self._catch_up.hello(peer, hello, is_in_sync)
        self._decide()

    def ack(self, sender: str, ack: Ack) -> None:
        """Take note of what is on a follower's disk."""
        peer = self._peers.get(sender)
        if peer is None or ack.term != self.term or not self.is_of_stream(peer, ack):
            return
        peer.acked = max(peer.acked, ack.index)
        peer.is_complete = peer.is_complete or ack.complete
        self._release()
        if peer not in self._awaited:
            self._decide()

    def is_of_stream(self, peer: Peer, message: Ack | RangeAck) -> bool:
        """Whether a message is of the follower's process and connection of now."""
        return message.stream == peer.stream

    def range_ack(self, sender: str, ack: RangeAck) -> None:
        """Go on with a join."""
        peer = self._peers.get(sender)
        if peer is not None and ack.term == self.term and self.is_of_stream(peer, ack):
            self._catch_up.range_ack(peer, ack)

    def unable(self, sender: str) -> None:
        """Evict a follower whose disk is full, rather than wait for it."""
        peer = self._peers.get(sender)
        if peer is not None:
            peer.leave_stream()
            peer.must_leave = True
            self._decide()

    def link_lost(self, sender: str) -> None:
        """Send a follower no more before it has said anew what it holds."""
        self._early.pop(sender, None)
        peer = self._peers.get(sender)
        if peer is not None:
            peer.leave_stream()

    @property
    def peers(self) -> Mapping[str, Peer]:
        """What is known of the other replicas."""
        return self._peers

    @property
    def catch_up(self) -> CatchUp:
        """Who brings followers up to date."""
        return self._catch_up

    def durable(self, commit: CommitUnderWay) -> None:
        """Take note of what is on this disk."""
        # Commits of before the term are of records that it began with: what takes records back comes under a promise
        # that is on disk, and so are all commits before the promise; after it the log of one primary only grows.
        self._durable_index = self.changes.durable_index = commit.index
        self._begin()
        self._release()

    def releasable(self) -> int:
        """Return the index up to which all is on every disk of those that are waited for, and on this one."""
        index = self._durable_index
        for peer in self._awaited:
            index = min(index, peer.acked)
        return index

    def _release(self) -> None:
        index = self.releasable()
        if index > self._state.released:
            self._state.released = index
            self.changes.released_at = self._state.now
            self._state.effects.append(Released(index))

    def step_down(self, group: Group | None) -> None:
        """End the term: nothing that was not answered may be."""
        if group is not None:
            self.changes.deposed(group)
        self._state.effects.append(Deposed(self.term))
