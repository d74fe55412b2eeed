"""Offsets of groups that are committed with a transaction: staged as its messages are, and applied when it is decided.

    stage ──► the epoch is the newest ──► prepare: it still is ──► decided ──► the group's offset moves on
                                              └── nobody is given the partition for the group ──┘

So who has the partition next begins behind what was committed, and what an older member did is not committed at all.

A program that is no member stages under the epoch of the moment, while the group has no members: whoever is given the
partition before the transaction is prepared has read the same, and the program's offset is not committed.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from shardmq.message.record import pack_many
from shardmq.message.record_batch import OFFSETS, OUTSIDE, PERSISTENT, RecordBatch
from shardmq.shards.state.shard import ShardState


class StagedOffset(NamedTuple):
    """An offset that is staged.

    Attributes:
        attempt: of which attempt.
        queue: id of the partition's queue.
        group: its name.
        offset: of the message that the group is to read next.
        epoch: of the member that commits; of the group, where it is a program that is no member.
        is_member: whether it is a member.
    """

    attempt: int
    queue: int
    group: str
    offset: int
    epoch: int
    is_member: bool = True

    def as_batch(self, now_ms: int) -> RecordBatch:
        """As it is staged among an attempt's messages."""
        flags = PERSISTENT | OFFSETS if self.is_member else PERSISTENT | OFFSETS | OUTSIDE
        return RecordBatch("", self.group, flags, now_ms, self.epoch, self.offset, 1, pack_many([b""]))

    @classmethod
    def of(cls, attempt: int, queue: int, batch: RecordBatch) -> "StagedOffset":
        """The offset that a staged batch stands for."""
        return cls(attempt, queue, batch.routing_key, batch.serial, batch.origin, not batch.flags & OUTSIDE)


class StagedOffsets:
    """The offsets that are staged for transactions which are not over.

    Args:
        state: the partitions.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._staged: dict[int, dict[StagedOffset, None]] = {}  # by number of the transaction
        self._prepared: dict[int, None] = {}
        self._decided: set[int] = set()  # those of them that are being carried out

    def add(self, transaction: int, staged: StagedOffset) -> None:
        """Note an offset that was staged."""
        self._staged.setdefault(transaction, {})[staged] = None

    def prepare(self, transaction: int, attempts: Collection[int]) -> str | None:
        """Keep partitions from others, as a transaction is to be committed; returns the reason where it may not be."""
        staged = [each for each in self._staged.get(transaction, ()) if each.attempt in attempts]
        for each in staged:
            hosted = self._state.queues.get(each.queue)
            group = hosted.readers.groups.get(each.group) if hosted is not None and hosted.readers is not None else None
            if hosted is None or hosted.readers is None:
                continue
            if group is None:
                why = self._state.quarantine.group_text(each.queue, each.group, begins=True)
                if why is not None:
                    return why
                continue
            if not each.is_member and (each.epoch < group.epoch or hosted.readers.members(group) is not None):
                return (
                    f"{hosted.title} was given to a member of group '{each.group}' since transaction {transaction} "
                    f"staged an offset of it; abort the transaction, and ask where the group is"
                )
            if each.epoch < group.epoch:
                return (
                    f"{hosted.title} was given to a newer member of group '{each.group}': epoch {each.epoch} is older "
                    f"than {group.epoch}; abort transaction {transaction}, its messages are read again"
                )
        if staged:
            self._prepared[transaction] = None
        return None

    def restored(self, transaction: int, sealed: Iterable[int]) -> None:
        """At start: a transaction with these sealed attempts may have been prepared."""
        if any(each.attempt in set(sealed) for each in self._staged.get(transaction, ())):
            self._prepared[transaction] = None

    def decided(self, transaction: int) -> None:
        """Note that a transaction is decided, and being carried out."""
        if transaction in self._prepared:
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
