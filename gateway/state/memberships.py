"""The members of consumer groups that this gateway has, and their way to the coordinator."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final, Protocol

from shardmq.bus.coordinator_link import CoordinatorLink, Outcome, Reply
from shardmq.bus.messages.coordinator import Changes
from shardmq.bus.messages.membership import (
    GroupAssignment,
    GroupEnded,
    GroupMember,
    GroupReleased,
    Held,
    JoinGroup,
    LeaveGroup,
    ReportMembers,
)
from shardmq.errors import RequestError
from shardmq.topology.changes import TopicPut

NAMED_BY_NUMBER: Final = "{}.{}"
"""A member's name: that of its connection, and a number of the gateway's."""


class OrderedMember(Protocol):
    """A member of an ordered group.

    Attributes:
        name: of the member.
    """

    name: str

    def said(self) -> GroupMember:
        """What the coordinator is to know of it."""

    def assigned(self, held: Sequence[Held]) -> None:
        """Begin to consume from partitions."""

    def revoked(self, queues: Sequence[int]) -> None:
        """Let go of partitions."""

    def ended(self) -> None:
        """End: its topic is deleted."""


class SharedMember(Protocol):
    """A member of a shared group, which consumes from all partitions."""

    def resize(self) -> None:
        """Look whether the topic has other partitions now."""


class Memberships:
    """Knows the members, and hears for them.

    Args:
        coordinator: the link to it.
    """

    def __init__(self, coordinator: CoordinatorLink) -> None:
        self._coordinator = coordinator
        self._ordered: dict[str, OrderedMember] = {}
        self._joining: set[str] = set()  # those of them that the coordinator has not added, as far as is known
        self._shared: dict[SharedMember, None] = {}
        self._numbers = count(1)
        coordinator.members = self
        coordinator.follow(self)

    def next_name(self, connection: str) -> str:
        """A name for one more member, which no other ever has."""
        return NAMED_BY_NUMBER.format(connection, next(self._numbers))

    def join(self, member: OrderedMember, reply: Reply) -> None:
        """Have the coordinator add a member to its group; the outcome is None, or the error that refused it."""

        def joined(outcome: Outcome) -> None:
            self._joining.discard(member.name)
            if isinstance(outcome, RequestError):
                self.leave(member)  # it may have been added, and the answer came too late
            elif member.name not in self._ordered:  # it left while the link was lost, and was added after that
                self._coordinator.tell(LeaveGroup(member.name))
            reply(outcome)

        self._ordered[member.name] = member
        self._joining.add(member.name)
        self._coordinator.ask(JoinGroup(member.said()), joined)

    def leave(self, member: OrderedMember) -> None:
        """Tell that a member has left and holds nothing any more."""
        if self._ordered.pop(member.name, None) is not None:
            self._joining.discard(member.name)
            self._coordinator.tell(LeaveGroup(member.name))

    def released(self, member: OrderedMember, held: Iterable[Held]) -> None:
        """Tell that a member has partitions no longer."""
        if member.name in self._ordered:
            self._coordinator.tell(GroupReleased(member.name, list(held)))

    def watch(self, member: SharedMember) -> None:
        """Tell a member of a shared group when there may be other partitions."""
        self._shared[member] = None

    def forget(self, member: SharedMember) -> None:
        """Tell a member nothing any more."""
        self._shared.pop(member, None)

    def report(self) -> ReportMembers:
        """All members of ordered groups, with what they hold.

        Not those that are joining: they hold nothing, and their request follows. The coordinator may refuse it.
        """
        return ReportMembers([member.said() for name, member in self._ordered.items() if name not in self._joining])

    def hear(self, message: GroupAssignment | GroupEnded) -> None:
        """Hand on what a member is told; one that is gone has said so."""
        member = self._ordered.get(message.member)
        if member is None:
            return
        if isinstance(message, GroupEnded):
            del self._ordered[message.member]
            member.ended()
            return
        member.assigned(message.assigned)
        member.revoked(message.revoked)

    def loaded(self) -> None:
        """Follow a topology that was loaded anew."""
        for member in list(self._shared):
            member.resize()

    def changed(self, news: Changes) -> None:
        """Follow changes of topics."""
        if self._shared and any(isinstance(change, TopicPut) for change in news.changes):
            self.loaded()
