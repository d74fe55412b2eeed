"""Who is in which ordered consumer group, and which partitions each member has; gateways and the coordinator say it."""

from shardmq.bus.messages.base import BusMessage, Request

Held = tuple[int, int]
"""A partition, by the id of its queue, and the epoch under which its member has it."""


class GroupMember(BusMessage, frozen=True):
    """A member of a group.

    Attributes:
        vhost: the virtual host of the topic.
        topic: name of the topic, or of a stream, which is a topic of one partition.
        group: name of the group.
        member: names it in the whole broker; no other member ever has the name.
        held: the partitions that it has.
    """

    vhost: str
    topic: str
    group: str
    member: str
    held: list[Held] = []


class JoinGroup(Request[None], frozen=True, tag=66):
    """Add a member to its group. Refused (404) where there is no such topic. Joining twice has the effect of once."""

    member: GroupMember


class TakeEpoch(Request[int], frozen=True, tag=74):
    """Take an epoch that nobody has: it is higher than all that were given to members. Answer: the epoch."""


class ReportMembers(BusMessage, frozen=True, tag=67):
    """All members of groups that a gateway has, the first message of a session. Those it does not name have left."""

    members: list[GroupMember]


class LeaveGroup(BusMessage, frozen=True, tag=68):
    """A member has left, and has let go of everything that it had."""

    member: str


class GroupReleased(BusMessage, frozen=True, tag=69):
    """A member has these partitions no longer, and has settled there what it will. Others may have them now."""

    member: str
    held: list[Held]


class GroupAssignment(BusMessage, frozen=True, tag=72):
    """A member is to consume from the partitions `assigned`, and to let go of those in `revoked`."""

    member: str
    assigned: list[Held]
    revoked: list[int]


class GroupEnded(BusMessage, frozen=True, tag=73):
    """A member is in its group no longer: the topic is deleted. It has let go of everything."""

    member: str
