"""Consumer groups of a partition: how their members consume, and what is asked of their cursors.

An offset of a group is the one it reads next. Epochs are given by the coordinator, and only rise: a shard refuses those
that are older than the newest it has seen.
"""

import msgspec

from shardmq.bus.messages.base import BusMessage, Request
from shardmq.bus.messages.streams import Reading


class GroupReading(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a member of a group consumes a partition. The first one makes the group's cursor there.

    Attributes:
        name: of the group.
        is_shared: whether any number of consumers get its messages in turn; of an ordered group, one does.
        epoch: of this member's right to the partition. In an ordered group, a higher one takes the partition from who
            has it, and a lower one is refused (406).
        member: who consumes, for people and for `InspectPartition`.
        begin: where the group begins where it has no cursor, and which tags it reads.
        delivery_limit: how often a message is returned before it dies; None for no limit.
        dead_letter_exchange: where messages go that die or are rejected; None where they are dropped.
        dead_letter_routing_key: by which key they go there; None for the one they were published with.
        partitions_at_begin: how many the topic had when the group began; 0 where that is not known.
    """

    name: str
    is_shared: bool
    epoch: int
    member: str
    begin: Reading
    delivery_limit: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    partitions_at_begin: int = 0


class Starved(BusMessage, frozen=True, tag=58):
    """Messages of a shared group wait in its queue, and a consumer of it has used up its prefetch.

    It gets more by Qos, or its gateway declines. Told once, and again after the next Qos.
    """

    consumer: int


class Declined(BusMessage, frozen=True, tag=59):
    """A consumer that is starved gets no more prefetch now: another may be asked."""

    consumer: int


class CommitOffset(Request[int], frozen=True, tag=100):
    """Move a group's offset on: all messages below it are acknowledged. Answer: the offset, once it is on disk.

    A group that has no cursor here gets one; who consumes as its first member says what kind of group it is. Refused
    with `OffsetOutOfRange` where the partition does not have the offset; and (406) where it is behind the group's,
    where the epoch is older than the newest, and where it is 0 (nobody's) while the group has consumers here.

    Attributes:
        queue: id of the partition's queue.
        group: its name.
        offset: of the message the group reads next.
        epoch: of the member that commits; 0 for nobody.
    """

    queue: int
    group: str
    offset: int
    epoch: int


class ResetGroup(Request[tuple[int, int]], frozen=True, tag=101):
    """Have a group go on elsewhere. Answer: its offset before and after, once that is on disk.

    Where it had none, or a damaged one, the answer is twice the one after.

    Its members' messages are forgotten: what they acknowledge of them has no effect. Its epoch is over, so no
    transaction commits what was staged before. Members of a shared group go on from the new place; the owner of an
    ordered group is cancelled. Refused (506) while a transaction is being decided that commits an offset of the group,
    (404) where the group has no cursor here, and with `OffsetOutOfRange` where the partition does not have the offset.

    Attributes:
        queue: id of the partition's queue.
        group: its name.
        reading: where it is to go on; tags are ignored.
        dry_run: whether nothing is to change.
        make: whether a group without a cursor here gets one.
        epoch: of the group from then on, where its cursor is damaged and gives way; 0 leaves a damaged one (506).
    """

    queue: int
    group: str
    reading: Reading
    dry_run: bool
    make: bool = False
    epoch: int = 0


class DropGroup(Request[bool], frozen=True, tag=102):
    """Forget a group's cursor, and have no transaction commit what is staged of it. Answer: whether there was one.

    Refused (406) while it has consumers here, and (506) while a transaction is being decided that commits an offset of
    the group.
    """

    queue: int
    group: str


class GroupState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group's cursor in a partition.

    Attributes:
        name: of the group.
        is_shared: whether it is shared; None where no member has consumed yet.
        offset: the lowest message that is not acknowledged; what is read next where there is none.
        epoch: the newest.
        member: whose the partition is; "" where it is nobody's, and in shared groups.
        consumers: how many consume.
        unacked: messages delivered and not settled, those that wait for a delay or as dead letters among them.
        acked_above: messages acknowledged above `offset`.
        delayed: messages returned with a delay that is not over.
        dying: dead letters that have not arrived.
        lost: messages that retention dropped before the group had read them.
        is_damaged: whether its cursor is damaged; nothing else is known then.
        partitions_at_begin: how many the topic had when the group began; 0 where that is not known.
    """

    name: str
    is_shared: bool | None
    offset: int
    epoch: int
    member: str = ""
    consumers: int = 0
    unacked: int = 0
    acked_above: int = 0
    delayed: int = 0
    dying: int = 0
    lost: int = 0
    is_damaged: bool = False
    partitions_at_begin: int = 0


class PartitionState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A partition and its groups.

    Attributes:
        first: offset of the oldest message.
        next: offset of the next message.
        bytes: of its messages.
        oldest_ms: when the oldest message came, ms since 1970; 0 where there is none.
        newest_ms: when the newest message came.
        groups: those with a cursor here, by name.
    """

    first: int
    next: int
    bytes: int
    oldest_ms: int
    newest_ms: int
    groups: list[GroupState]


class InspectPartition(Request[PartitionState], frozen=True, tag=103):
    """Look at a partition and its groups. Refused (406) where the queue is no stream.

    Attributes:
        queue: its id.
        group: the only one that is looked at, where it is there; None for all. Where one is named, the answer comes
            when what it has acknowledged is on disk. Refused (506) where its cursor is damaged.
        with_damaged: whether it is looked at also where its cursor is damaged.
    """

    queue: int
    group: str | None = None
    with_damaged: bool = False


class StageOffset(Request[None], frozen=True, tag=111):
    """Stage a commit of a group's offset: it takes effect if its transaction is committed. Answered once on disk.

    Refused (406) as CommitOffset is, also when the transaction is to be committed, and then, too, where the group was
    reset or deleted since. From then on nobody is given the partition for the group, until the decision is carried out.

    Attributes:
        transaction: its number.
        attempt: of the transaction.
        sequence: the attempt's number of it, OFFSETS_FROM or above; staging it twice has the effect of once.
        queue: id of the partition's queue.
        group: its name.
        offset: of the message the group reads next.
        epoch: of the member that commits; 0 for a program that is no member: it is refused while there are members,
            also if there were some between now and when the transaction is to be committed.
    """

    transaction: int
    attempt: int
    sequence: int
    queue: int
    group: str
    offset: int
    epoch: int
