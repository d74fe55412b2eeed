"""Dead letters of a group: messages of a partition that its members rejected, or returned too often.

They go the way of a queue's dead letters, and are unsettled in the group until they have arrived. Each group's, and a
group's after it was reset, are another producer's: where several groups let the same message die, all of it arrives.
"""

import secrets
from typing import Final, Protocol

from shardmq.limits import LETTER_PRODUCERS
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.queues.dead_letter_outbox import DeadLetter, DeadLetterOutbox
from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.topics.partition import Partition

_GROUPS: Final = 2**61
"""From here on above LETTER_PRODUCERS, producers are made up for groups: there are fewer queues, and those that are
made up for them begin at twice that."""


def new_producer() -> int:
    """Return whose messages a group's dead letters are published as."""
    return LETTER_PRODUCERS + _GROUPS + secrets.randbelow(_GROUPS)


class Held(Protocol):
    """The deliveries that dead letters are among (group_deliveries.py)."""

    unsettled: RangeSet

    def settle(self, ranges: Ranges) -> None:
        """Acknowledge messages."""

    def lose(self, ranges: Ranges) -> None:
        """Forget messages that retention dropped."""

    def counted(self, first: int, batch: RecordBatch) -> list[Delivery]:
        """Return messages, cut where they were not returned equally often."""


class _Keeper:
    """The dead letters of a group among its deliveries (`dead_letter_outbox.Keeper`)."""

    __slots__ = ("_held", "_partition")

    def __init__(self, partition: Partition, held: Held) -> None:
        self._partition = partition
        self._held = held

    def read(self, ranges: Ranges, room: int, alone: bool) -> list[tuple[int, int, RecordBatch]]:
        """Read messages: (first, how often they were returned, batch)."""
        pieces = self._partition.read(ranges, room, alone)
        parts = [part for first, batch in pieces for part in self._held.counted(first, batch)]
        return [(first, count, batch) for first, _, count, batch in parts]

    def drop(self, ranges: Ranges) -> None:
        """Settle messages."""
        self._held.settle(ranges)

    def gaps_below(self, number: int, most: int) -> Ranges:
        """Return offsets below one whose messages are settled: their first ranges, `most` at most."""
        return self._held.unsettled.gaps(0, number)[:most]


class GroupLetters(DeadLetterOutbox):
    """The dead letters of one group in a partition.

    Args:
        partition: where they lie.
        held: the group's deliveries.
        producer: whose messages they are published as.
    """

    __slots__ = ("_held", "_partition")

    def __init__(self, partition: Partition, held: Held, producer: int) -> None:
        super().__init__(_Keeper(partition, held), producer, producer)
        self._partition = partition
        self._held = held

    def take(self, limit_bytes: int) -> list[DeadLetter]:
        """Return the next ones that retention has not dropped, up to `limit_bytes`, but one at least."""
        lost = self.forget(self._partition.first)
        if lost:
            self._held.lose(lost)
        return super().take(limit_bytes)
