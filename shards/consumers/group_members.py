"""A group's consumers of one partition."""

from shardmq.bus.messages.groups import GroupState
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.member_turns import MemberTurns
from shardmq.shards.topics.group_cursor import GroupCursor
from shardmq.shards.topics.group_deliveries import GroupDeliveries


class GroupMembers:
    """Consumers of a group, served from its deliveries. Of an ordered group there is one, its owner.

    Args:
        cursor: the group's.

    Attributes:
        cursor: the group's.
        deliveries: the group's, for as long as there are members.
        turns: those who are served.
        names: whose each consumer is; those that were cancelled and hold messages still are among them.
    """

    __slots__ = ("cursor", "deliveries", "names", "turns")

    def __init__(self, cursor: GroupCursor) -> None:
        self.cursor = cursor
        cursor.is_consumed = True
        self.deliveries: GroupDeliveries = cursor.open()
        self.turns = MemberTurns(self.deliveries, cursor.settings is not None and cursor.settings.is_shared)
        self.names: dict[Consumer, str] = {}

    @property
    def owner(self) -> str:
        """Return whose the partition is; "" in a shared group."""
        if self.cursor.settings is not None and self.cursor.settings.is_shared:
            return ""
        return next(reversed(self.names.values()), "")

    def state(self) -> GroupState:
        """Return what the group looks like."""
        return self.cursor.state(len(self.turns), self.owner)

    def commit(self, offset: int) -> None:
        """Acknowledge all messages below an offset, whoever holds them."""
        self.cursor.commit(offset)
        for consumer in self.names:
            consumer.held.remove(0, offset)
            self.turns.wake(consumer)

    def reset(self, offset: int) -> None:
        """Go on elsewhere: what consumers hold is forgotten."""
        self.cursor.reset(offset)
        for consumer in self.names:
            consumer.forget(offset)
            self.turns.wake(consumer)
