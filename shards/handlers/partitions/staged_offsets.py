"""Offsets of groups that are committed with a transaction: staged as its messages are, and applied when it is decided.

    stage ──► the epoch is the newest ──► prepare: it still is ──► decided ──► the group's offset moves on
                                              └── nobody is given the partition for the group ──┘

So who has the partition next begins behind what was committed, and what an older member did is not committed at all.

A program that is no member stages under the epoch of the moment, while the group has no members: whoever is given the
partition before the transaction is prepared has read the same, and the program's offset is not committed.

A reset raises the epoch, so what was staged before is not committed. A group that is deleted has no epoch any more:
what is staged of it is marked as dropped.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from shardmq.bus.messages.groups import StageOffset
from shardmq.message.record import pack_many
from shardmq.message.record_batch import DROPPED, OFFSETS, OUTSIDE, PERSISTENT, RecordBatch
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import Staged, StagedPlace

_RECORD: Final = pack_many([b""])
"""The record of a batch that stands for an offset."""


class StagedOffset(NamedTuple):
    """An offset that is staged.

    Attributes:
        place: where it is staged.
        queue: id of the partition's queue.
        group: its name.
        offset: of the message that the group is to read next.
        epoch: of the member that commits; of the group, where it is a program that is no member.
        is_member: whether it is a member.
        is_dropped: whether the group was deleted in the partition since.
    """

    place: StagedPlace
    queue: int
    group: str
    offset: int
    epoch: int
    is_member: bool
    is_dropped: bool = False

    def as_batch(self, now_ms: int) -> RecordBatch:
        """As it is staged among an attempt's messages."""
        flags = PERSISTENT | OFFSETS
        flags |= 0 if self.is_member else OUTSIDE
        flags |= DROPPED if self.is_dropped else 0
        return RecordBatch("", self.group, flags, now_ms, self.epoch, self.offset, 1, _RECORD)

    @classmethod
    def asked(cls, message: StageOffset, epoch: int) -> "StagedOffset":
        """The offset that is to be staged.

        Args:
            message: what is asked.
            epoch: of the group.
        """
        place = StagedPlace(message.transaction, message.attempt, message.sequence, 1, len(_RECORD))
        return cls(place, message.queue, message.group, message.offset, message.epoch or epoch, bool(message.epoch))

    @classmethod
    def of(cls, staged: Staged) -> "StagedOffset":
        """The offset that a staged batch stands for."""
        batch = staged.batch
        is_member, is_dropped = not batch.flags & OUTSIDE, bool(batch.flags & DROPPED)
        return cls(staged.place, staged.queues[0], batch.routing_key, batch.serial, batch.origin, is_member, is_dropped)


class StagedOffsets:
    """The offsets that are staged for transactions which are not over.

    Args:
        state: the partitions.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._staged: dict[int, dict[StagedOffset, None]] = {}  # by number of the transaction
        self._prepared: dict[int, None] = {}
        self._decided: set[int] = set()  # their decisions are being carried out

    def add(self, staged: StagedOffset) -> None:
        """Note an offset that was staged."""
        self._staged.setdefault(staged.place.transaction, {})[staged] = None

    def prepare(self, transaction: int, attempts: Collection[int]) -> str | None:
        """Keep partitions from others, as a transaction is to be committed; returns the reason where it may not be."""
        staged = [each for each in self._staged.get(transaction, ()) if each.place.attempt in attempts]
        for each in staged:
            hosted = self._state.queues.get(each.queue)
            why = self._why_not(hosted, each) if hosted is not None else None
            if why is not None:
                return why
        if staged:
            self._prepared[transaction] = None
        return None

    def _why_not(self, hosted: HostedQueue, each: StagedOffset) -> str | None:
        """Return why an offset may not be committed; None where it may."""
        transaction, readers = each.place.transaction, hosted.readers
        if readers is None:
            return None
        if each.is_dropped:
            return (
                f"group '{each.group}' was deleted in {hosted.title} since transaction {transaction} staged an offset "
                "of it; abort the transaction"
            )
        group = readers.groups.get(each.group)
        if group is None:
            return self._state.quarantine.group_text(each.queue, each.group, begins=True)
        if not each.is_member and (each.epoch < group.epoch or readers.members(group) is not None):
            return (
                f"{hosted.title} was given to a member of group '{each.group}' since transaction {transaction} "
                "staged an offset of it, or the group was reset; abort the transaction, and ask where the group is"
            )
        if each.epoch < group.epoch:
            return (
                f"{hosted.title} was given to a newer member of group '{each.group}': epoch {each.epoch} is older "
                f"than {group.epoch}; abort transaction {transaction}, its messages are read again"
            )
        return None

    def drop(self, queue: int, group: str) -> None:
        """Have no transaction commit what it has staged of a group, which is deleted in a partition.

        That is on disk with the deletion. What is decided is being carried out: nothing of it is written any more.
        """
        for transaction, here in self._staged.items():
            if transaction in self._decided:
                continue
            for each in [each for each in here if (each.queue, each.group) == (queue, group)]:
                dropped = each._replace(is_dropped=True)
                del here[each]
                here[dropped] = None
                batch = dropped.as_batch(self._state.schedule.now_ms)
                self._state.buffer.stage(Staged(dropped.place, (queue,), 0, batch))

    def restored(self, transaction: int, sealed: Iterable[int]) -> None:
        """At start: a transaction with these sealed attempts may have been prepared."""
        if any(each.place.attempt in set(sealed) for each in self._staged.get(transaction, ())):
            self._prepared[transaction] = None

    def decided(self, transaction: int) -> None:
        """Note that a transaction is decided, and being carried out."""
        if transaction in self._staged:
            self._decided.add(transaction)

    def is_deciding(self, queue: int, group: str, or_carried_out: bool = True) -> bool:
        """Whether a transaction is being decided that commits an offset of a group in a partition, or carried out."""
        numbers = self._prepared if or_carried_out else self._prepared.keys() - self._decided
        return any((each.queue, each.group) == (queue, group) for number in numbers for each in self._staged[number])

    def epoch_of(self, queue: int, group: str) -> int:
        """Return the newest epoch under which an offset of a group is staged in a partition; 0 where none is."""
        staged = [each for of_transaction in self._staged.values() for each in of_transaction]
        return max([each.epoch for each in staged if (each.queue, each.group) == (queue, group)], default=0)

    def ended(self, transaction: int) -> None:
        """Forget a transaction of which nothing is left."""
        self._staged.pop(transaction, None)
        self._prepared.pop(transaction, None)
        self._decided.discard(transaction)
