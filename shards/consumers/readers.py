"""Readers of a partition, each served from its cursor, and the members of its groups."""

from collections.abc import Iterator

from shardmq.bus.messages.shard import Cancelled
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.group_members import GroupMembers
from shardmq.shards.consumers.serving import serve
from shardmq.shards.topics.cursor import Cursor, out_of_range
from shardmq.shards.topics.group_cursor import GroupCursor
from shardmq.shards.topics.partition import Partition


class Readers:
    """The readers of a partition (in the place of `RoundRobin`).

    A reader without credit, or with a message that does not fit, is out of turn until `wake`.

    Args:
        partition: what they read.
        behind: gets the id where a reader has more to look through than one pass does.

    Attributes:
        partition: what they read.
        groups: cursors of groups, by name.
        exclusive: nobody; who reads takes nothing from others.
    """

    __slots__ = ("_behind", "_cursors", "_members", "_members_of", "_turns", "groups", "partition")

    exclusive: Consumer | None = None

    def __init__(self, partition: Partition, behind: dict[int, None]) -> None:
        self.partition = partition
        self._behind = behind
        self._cursors: dict[Consumer, Cursor] = {}
        self._turns: dict[Consumer, Cursor] = {}
        self.groups: dict[str, GroupCursor] = {}
        self._members: dict[GroupCursor, GroupMembers] = {}
        self._members_of: dict[Consumer, GroupMembers] = {}

    def __len__(self) -> int:
        return len(self._cursors) + sum([len(members.turns) for members in self._members.values()])

    def __iter__(self) -> Iterator[Consumer]:
        return iter([*self._cursors, *[consumer for each in self._members.values() for consumer in each.turns]])

    def join(self, consumer: Consumer) -> None:
        """Add a reader that has a cursor, or that was attached to a group."""
        members = self._members_of.get(consumer)
        if members is not None:
            members.turns.join(consumer)
            return
        assert consumer.cursor is not None
        self._cursors[consumer] = self._turns[consumer] = consumer.cursor
        consumer.is_active = True
        self._share()

    def leave(self, consumer: Consumer) -> None:
        """Remove a reader, if it is there. A group's may hold messages still, until it is detached."""
        members = self._members_of.get(consumer)
        if members is not None:
            members.turns.leave(consumer)
            return
        self._cursors.pop(consumer, None)
        self._turns.pop(consumer, None)
        self._share()
        consumer.is_active = consumer.is_waiting = False

    def wake(self, consumer: Consumer) -> None:
        """Put a reader back in turn: it may have credit again."""
        if consumer.is_waiting:
            members = self._members_of.get(consumer)
            if members is not None:
                members.turns.wake(consumer)
                return
            consumer.is_waiting = False
            self._turns[consumer] = self._cursors[consumer]

    def retuned(self, consumer: Consumer) -> None:
        """Note that a reader's prefetch was changed."""
        members = self._members_of.get(consumer)
        if members is not None:
            members.turns.retuned(consumer)

    def attach(self, consumer: Consumer, group: GroupCursor, member: str) -> GroupMembers:
        """Make a consumer one of a group, with whose deliveries it settles; `join` has it served."""
        members = self._members.get(group)
        if members is None:
            members = self._members[group] = GroupMembers(group)
        self._members_of[consumer] = members
        members.names[consumer] = member
        self._share()
        consumer.settler = members.deliveries
        return members

    def detach(self, consumer: Consumer) -> None:
        """Forget a consumer of a group, which holds nothing any more."""
        members = self._members_of.pop(consumer, None)
        if members is not None:
            del members.names[consumer]
            if not members.names:
                del self._members[members.cursor]
                members.cursor.is_consumed = False
                members.cursor.close()
            self._share()

    def group_of(self, consumer: Consumer) -> GroupCursor:
        """Return the group that a consumer was attached to."""
        return self._members_of[consumer].cursor

    def members(self, group: GroupCursor) -> GroupMembers | None:
        """Return the consumers of a group; None where there are none."""
        return self._members.get(group)

    def credit(self) -> int:
        """Return 0: nothing is taken from a partition, which has room for everything."""
        return 0

    def _share(self) -> None:
        self.partition.is_shared = len(self._cursors) + len(self._members) > 1

    def _end(self, consumer: Consumer, cursor: Cursor) -> None:
        """Serve a reader no more whose next message was dropped; tell its gateway why."""
        fault = out_of_range(self.partition, cursor.offset)
        self.leave(consumer)
        consumer.peer.post(Cancelled(consumer.number, fault.text, fault.code))

    def deliver(self) -> None:
        """Give each reader with credit what is before its cursor, and the members of groups what is their groups'."""
        for members in self._members.values():
            if members.deliveries.has_nothing:
                continue
            members.turns.deliver()
            if members.deliveries.is_behind and members.turns.has_turns:
                self._behind[self.partition.id] = None
        for consumer, cursor in list(self._turns.items()):
            if cursor.is_exact and cursor.offset < self.partition.first:
                self._end(consumer, cursor)
                continue
            while (credit := consumer.credit()) > 0 and (ready := cursor.ready):
                if not serve(cursor, consumer, min(ready, credit)):
                    break
            else:
                if credit > 0:
                    if cursor.is_behind:
                        self._behind[self.partition.id] = None
                    continue
            consumer.is_waiting = True
            del self._turns[consumer]
