"""The consumers of a channel that are members of groups."""

from collections.abc import Collection
from typing import Protocol

from shardmq.bus.coordinator_link import Reply
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.channel import MembersChannel
from shardmq.gateway.session.groups.member import Member
from shardmq.gateway.session.groups.ordered import OrderedMember
from shardmq.gateway.session.groups.shared import SharedMember
from shardmq.gateway.session.groups.subscription import Subscription
from shardmq.gateway.session.groups.timed import TimedMember


class GroupsChannel(MembersChannel, Protocol):
    """The consumers of a channel."""

    @property
    def client(self) -> Client:
        """Whose channel it is."""


class GroupConsumers:
    """A channel's consumers that are members of groups: those that run, and those that are leaving.

    Args:
        channel: whose they are.

    Attributes:
        by_tag: those that run.
        settling: members some of whose messages were settled since they last followed up on it.
    """

    __slots__ = ("_channel", "_leaving", "by_tag", "settling")

    def __init__(self, channel: GroupsChannel) -> None:
        self._channel = channel
        self._leaving: dict[Member, None] = {}
        self.by_tag: dict[str, Member] = {}
        self.settling: dict[Member, None] = {}

    def start(self, subscription: Subscription, tag: str, reply: Reply) -> None:
        """Start a consumer; the outcome is its tag, or the error that refused it."""
        client = self._channel.client
        kind = _kind(client, subscription)
        member = self.by_tag[tag] = kind(client, self._channel, subscription, tag, self)
        client.consumers += 1
        member.start(reply)

    def cancel(self, tag: str, reply: Reply) -> None:
        """Stop a consumer; it stays in its group until what it holds is settled, or for a time."""
        member = self.by_tag.pop(tag)
        self._channel.client.consumers -= 1
        self._leaving[member] = None
        member.leave(reply)

    def released(self, tag: str, partitions: Collection[int]) -> None:
        """Have a member let go of partitions that were revoked: its client has. One that is gone has done so."""
        member = self.by_tag.get(tag)
        if isinstance(member, OrderedMember):
            member.released(partitions)

    def heard_of(self, consumer: Consumer) -> None:
        """Note that the client deals with what a consumer of one of them got, though nothing is settled by that."""
        if isinstance(consumer.receiver, TimedMember):
            consumer.receiver.heard()

    def epoch_of(self, topic: str, group: str, number: int) -> int | None:
        """Under which epoch one of them has a partition; None where none has."""
        for member in self.by_tag.values():
            if (member.subscription.topic, member.subscription.group) == (topic, group):
                epoch = member.epoch_of(number)
                if epoch is not None:
                    return epoch
        return None

    def of_shared(self, topic: str, group: str) -> list[SharedMember]:
        """Return those of a shared group."""
        return [
            member
            for member in self.by_tag.values()
            if isinstance(member, SharedMember)
            and (member.subscription.topic, member.subscription.group) == (topic, group)
        ]

    def limit(self, prefetch: int) -> None:
        """Change what each of them may hold."""
        for member in self.by_tag.values():
            member.limit(prefetch)

    def forget(self, member: Member) -> None:
        """Forget a member that is gone."""
        self._leaving.pop(member, None)
        if self.by_tag.get(member.tag) is member:
            del self.by_tag[member.tag]
            self._channel.client.consumers -= 1

    def after_settling(self) -> None:
        """Follow up on deliveries that were settled."""
        settling, self.settling = self.settling, {}
        for member in settling:
            member.after_settling()

    def socket_has_room(self) -> None:
        """Give consumers credit: the client reads again."""
        for member in self._all():
            member.socket_has_room()

    def close(self) -> None:
        """Have all leave their groups at once."""
        for member in self._all():
            member.close()
        self._channel.client.consumers -= len(self.by_tag)
        self.by_tag.clear()
        self._leaving.clear()
        self.settling.clear()

    def _all(self) -> list[Member]:
        return [*self.by_tag.values(), *self._leaving]


def _kind(client: Client, subscription: Subscription) -> type[Member]:
    """Which kind of member a client's consumer is."""
    if subscription.is_shared:
        return SharedMember
    is_timed = subscription.timeout_ms > 0 and not subscription.auto_ack
    return TimedMember if is_timed and client.answers_lost else OrderedMember
