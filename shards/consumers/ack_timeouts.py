"""Delivery acknowledgement timeouts: the deadlines of what a consumer holds unsettled.

Only consumers with a timeout have this. Entries lie in the order of their deadlines, as all of them get the same time.
Entries of settled messages are removed now and then, so that there are about as many as messages held.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from shardmq.ranges import RangeSet
from shardmq.shards.state.schedule import Entry, Schedule

ENTRIES_MIN: Final = 256
"""So many entries are not worth a sweep."""

Ranges = list[tuple[int, int]]


def _nobody(_: Ranges) -> None:
    """Do nothing: the consumer is gone."""


class AckTimeouts:
    """The deadlines of one consumer.

    Args:
        timeout_ms: how long it may hold a message.
        schedule: of the shard.
        held: what it holds, kept by the consumer.
        overdue: called with what it has held for too long.
    """

    __slots__ = ("_schedule", "_entries", "_held", "_limit", "_next_look", "_overdue", "_timeout_ms")

    def __init__(self, timeout_ms: int, schedule: Schedule, held: RangeSet, overdue: Callable[[Ranges], None]) -> None:
        self._timeout_ms = timeout_ms
        self._schedule = schedule
        self._held = held
        self._overdue = overdue
        self._entries: deque[tuple[int, int, int]] = deque()
        self._limit = ENTRIES_MIN
        self._next_look: Entry | None = None

    def add(self, first: int, end: int, again: bool) -> None:
        """Note delivered messages; `again` when this consumer may have held them before."""
        if again:
            self._cut(first, end)
        entries = self._entries
        due_ms = self._schedule.now_ms + self._timeout_ms
        if entries and entries[-1][0] == due_ms and entries[-1][2] == first:
            first = entries.pop()[1]
        entries.append((due_ms, first, end))
        if len(entries) > self._limit:
            self._sweep()
        if self._next_look is None:
            self._expect()

    def renew(self, ranges: Ranges) -> None:
        """Begin the time of held messages anew."""
        for start, end in ranges:
            for first, stop in self._held.within(start, end):
                self.add(first, stop, again=True)

    def forget(self, ranges: Ranges) -> None:
        """Forget the deadlines of messages that may come again as if this consumer had never held them."""
        for start, end in ranges:
            self._cut(start, end)

    def close(self) -> None:
        """Forget all deadlines, and the consumer."""
        self._overdue = _nobody
        self._entries.clear()
        self._schedule.cancel(self._next_look)

    def _look(self) -> None:
        entries, held, now_ms = self._entries, self._held, self._schedule.now_ms
        self._next_look = None
        overdue: Ranges = []
        while entries:
            due_ms, start, end = entries[0]
            parts = held.within(start, end)
            if parts and due_ms > now_ms:
                break
            overdue += parts
            entries.popleft()
        if entries:
            self._expect()
        if overdue:
            self._overdue(sorted(overdue))

    def _expect(self) -> None:
        self._next_look = self._schedule.at(self._entries[0][0], self._look)

    def _cut(self, first: int, end: int) -> None:
        """Forget the deadlines of messages [first, end)."""
        kept = []
        for due_ms, start, stop in self._entries:
            if start < first:
                kept.append((due_ms, start, min(stop, first)))
            if stop > end:
                kept.append((due_ms, max(start, end), stop))
        self._entries = deque(kept)

    def _sweep(self) -> None:
        """Forget the deadlines of what is not held any more."""
        within = self._held.within
        self._entries = deque([(due, *part) for due, start, end in self._entries for part in within(start, end)])
        self._limit = max(ENTRIES_MIN, 2 * len(self._entries))
