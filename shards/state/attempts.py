"""What an attempt of a transaction has staged here: how much, and which of its numbers, so that each is staged once.

An attempt's messages go to several shards, so that each sees gaps; and while a shard comes back, later messages may be
taken before earlier ones that were refused meanwhile are sent again. So nothing is guessed here: the highest ranges are
in memory, and what is below them is looked up in the store.
"""

from typing import Final

from shardmq.ranges import RangeSet
from shardmq.shards.storage.entries import StagedPlace
from shardmq.shards.storage.store import Store

RANGES_MAX: Final = 64
RANGES_KEPT: Final = 32
"""Ranges that are kept in memory of one attempt between passes: beyond the first, the highest of the second stay."""


class StagedAttempt:
    """What one attempt of a transaction has staged.

    Args:
        transaction: number of its transaction.
        number: its own.

    Attributes:
        messages: that are staged.
        bytes: of their records.
        is_sealed: whether it takes nothing more.
        unread_from: the sequence from which a commit is yet to read what is staged; None where all was read.
        bytes_read: of the bytes, those that were read.
    """

    __slots__ = (
        "_horizon",
        "_seen",
        "bytes",
        "bytes_read",
        "is_sealed",
        "messages",
        "number",
        "transaction",
        "unread_from",
    )

    def __init__(self, transaction: int, number: int) -> None:
        self.transaction = transaction
        self.number = number
        self.messages = self.bytes = 0
        self.is_sealed = False
        self.unread_from: int | None = 0
        self.bytes_read = 0
        self._seen = RangeSet()
        self._horizon = 0  # below it, the store has numbers that are not in `_seen`

    @property
    def is_wide(self) -> bool:
        """Whether it has more ranges in memory than should stay there."""
        return len(self._seen) > RANGES_MAX

    def unseen(self, store: Store, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of numbers [start, end) that are not staged."""
        seen = self._seen
        if start >= seen.end:
            return [(start, end)]
        if start < self._horizon:
            for place in store.staging.within(self.transaction, self.number, start, min(end, self._horizon)):
                seen.add(place.sequence, place.sequence + place.messages)
        return seen.gaps(start, end)

    def add(self, place: StagedPlace) -> None:
        """One more batch is staged."""
        self.messages += place.messages
        self.bytes += place.bytes
        self._seen.add(place.sequence, place.sequence + place.messages)

    def remove(self, place: StagedPlace) -> None:
        """A batch is in its queues, or was not to be."""
        self.messages -= place.messages
        self.bytes -= place.bytes

    def narrow(self) -> None:
        """Let go of the lowest ranges. All that was added has to be in the store by now."""
        if self.is_wide:
            self._horizon = max(self._horizon, list(self._seen)[-RANGES_KEPT][0])
            self._seen.remove(0, self._horizon)
