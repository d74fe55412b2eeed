"""Members of ordered consumer groups over all gateways: who joins, who leaves, who is to have which partition.

All of it is in memory. Gateways know who their members are and what each has, and say so whenever a session opens
(ReportMembers). So a coordinator that starts takes in what there is, and nothing moves. A gateway whose link is lost is
back within moments as a rule: its members keep what they have for a while, and consume meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shardmq.bus.listener import Peer, Responder
from shardmq.bus.messages.coordinator import MembershipNews
from shardmq.bus.messages.membership import (
    GroupAssignment,
    GroupEnded,
    GroupMember,
    GroupReleased,
    JoinGroup,
    LeaveGroup,
    ReportMembers,
)
from shardmq.coordinator.handlers.connections import ORPHAN_SECONDS
from shardmq.coordinator.rules.shard_identity import QUEUES_BITS
from shardmq.coordinator.state.groups import Epochs, Group
from shardmq.coordinator.state.returning import Returning
from shardmq.errors import NotFound, RequestError, Unavailable
from shardmq.topology.partitions import partitions_of
from shardmq.topology.topology import Topology

MEMBERS_MAX: Final = 100_000
"""Members of all groups, beyond which nobody joins. Each takes the coordinator about 1 kB."""

_Key = tuple[str, str, str]
"""Virtual host, topic, group."""


@dataclass(slots=True)
class _Member:
    gateway: str
    key: _Key
    peer: Peer | None


class GroupMembership:
    """Assigns partitions to the members of groups. Messages are only posted here; the owner flushes.

    Args:
        topology: has the topics.
        generation: of this start; epochs begin with it, so each start gives higher ones.
        returning: gateways that may still report members; nothing is assigned before.
    """

    def __init__(self, topology: Topology, generation: int, returning: Returning) -> None:
        self._topology = topology
        self._returning = returning
        self._epochs = Epochs(generation << QUEUES_BITS)
        self._groups: dict[_Key, Group] = {}
        self._members: dict[str, _Member] = {}
        self._of_gateway: dict[str, dict[str, None]] = {}
        self._lost_at: dict[str, float] = {}  # gateways whose link is lost
        self._unsettled: dict[_Key, None] = {}
        self._version = -1

    @property
    def is_busy(self) -> bool:
        """Whether something is to be done at a certain time: a gateway is away, or this start is still silent."""
        return bool(self._lost_at or self._unsettled)

    def __len__(self) -> int:
        return len(self._groups)

    def join(self, responder: Responder[None], request: JoinGroup) -> None:
        """Add a member to its group, and answer. What it is to have it hears at the end of the pass, or later."""
        try:
            self._check_room(request.member)
            self._join(responder.peer, request.member)
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        responder.answer(None)

    def take_epoch(self) -> int:
        """An epoch that no member has, higher than all there are."""
        return self._epochs.take()

    def hear(self, peer: Peer, news: MembershipNews) -> None:
        """Take in what a gateway tells of its members."""
        match news:
            case ReportMembers(members):
                self._report(peer, members)
            case LeaveGroup(name):
                self._leave(name)
            case GroupReleased(name, held):
                member = self._members.get(name)
                if member is not None:
                    self._groups[member.key].released(name, held)
                    self._unsettled[member.key] = None

    def lose(self, peer: Peer, now: float) -> None:
        """Note that a gateway's link is lost. Its members keep what they have until its time is over."""
        here = [member for name in self._of_gateway.get(peer.name, ()) if (member := self._members[name]).peer is peer]
        for member in here:
            member.peer = None
        if here:
            self._lost_at[peer.name] = now

    def tick(self, now: float) -> None:
        """Have members leave whose gateway is away for too long, and follow what became of topics."""
        for name, since in list(self._lost_at.items()):
            if now - since > ORPHAN_SECONDS:
                del self._lost_at[name]
                for member in list(self._of_gateway.get(name, ())):
                    self._leave(member)
        if self._version != self._topology.version:
            self._version = self._topology.version
            self._follow_topics()

    def settle(self) -> None:
        """Tell members what they are to have, where that has changed."""
        if not self._unsettled or not self._returning.is_over:
            return
        unsettled, self._unsettled = self._unsettled, {}
        for key in unsettled:
            group = self._groups.get(key)
            if group is None:
                continue
            for name, notice in group.settle().items():
                peer = self._members[name].peer
                if peer is not None:  # it hears of it when its gateway is back
                    peer.post(GroupAssignment(name, notice.assigned, notice.revoked))

    def _report(self, peer: Peer, members: Sequence[GroupMember]) -> None:
        """Take in all members of a gateway; they are members already, so there is no limit to them."""
        self._lost_at.pop(peer.name, None)
        named = {member.member for member in members}
        for name in [name for name in self._of_gateway.get(peer.name, ()) if name not in named]:
            self._leave(name)
        for member in members:
            try:
                self._join(peer, member)
            except NotFound:
                peer.post(GroupEnded(member.member))

    def _join(self, peer: Peer, said: GroupMember) -> None:
        """Add a member, or take in what one says that is back.

        Raises:
            NotFound: there is no such topic.
        """
        key = said.vhost, said.topic, said.group
        partitions = partitions_of(self._topology, said.vhost, said.topic)
        if partitions is None:
            self._leave(said.member)
            raise NotFound(f"no topic or stream '{said.topic}' in vhost '{said.vhost}'")
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(partitions, self._epochs.take)
        for _, epoch in said.held:
            self._epochs.seen(epoch)
        self._members[said.member] = _Member(peer.name, key, peer)
        self._of_gateway.setdefault(peer.name, {})[said.member] = None
        group.join(said.member, said.held)
        self._unsettled[key] = None

    def _check_room(self, said: GroupMember) -> None:
        """Make sure that one more may join.

        Raises:
            Unavailable: there are too many members.
        """
        if said.member not in self._members and len(self._members) >= MEMBERS_MAX:
            raise Unavailable(f"the groups of this broker have {MEMBERS_MAX} members; end some, or try again later")

    def _leave(self, name: str) -> None:
        member = self._members.pop(name, None)
        if member is None:
            return
        others = self._of_gateway[member.gateway]
        del others[name]
        if not others:
            del self._of_gateway[member.gateway]
        group = self._groups[member.key]
        group.leave(name)
        if group:
            self._unsettled[member.key] = None
        else:
            del self._groups[member.key]

    def _follow_topics(self) -> None:
        for key, group in list(self._groups.items()):
            partitions = partitions_of(self._topology, key[0], key[1])
            if partitions is not None:
                if group.resize(partitions):
                    self._unsettled[key] = None
                continue
            for name in group.members:
                peer = self._members[name].peer
                self._leave(name)
                if peer is not None:
                    peer.post(GroupEnded(name))
