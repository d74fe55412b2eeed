"""What is to be done when: one heap of entries for everything in a shard that waits for a time.

Ten thousand queues at rest cost a tick nothing. What is not to happen any more is cancelled: its action goes at once,
its place in the heap when half of all are so. Actions name queues by number: none keeps a deleted one in memory.
"""

import heapq
from collections.abc import Callable
from typing import Final

from shardmq.errors import RowDamaged
from shardmq.runtime.clock import SteadyClock

CANCELLED_MIN: Final = 4096
"""So many places of cancelled entries are not worth a sweep."""


class Entry:
    """Something that is to be done.

    Attributes:
        due_ms: when.
        action: does it; None once it was done, or cancelled.
    """

    __slots__ = ("action", "due_ms")

    def __init__(self, due_ms: int, action: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.action: Callable[[], None] | None = action


class Schedule:
    """Actions in the order they are due.

    Args:
        clock: whose milliseconds they are in.

    Attributes:
        now_ms: what time it is in this pass.
    """

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Entry]] = []
        self._made = self._cancelled = 0
        self.now_ms = clock.now_ms()

    def at(self, due_ms: int, action: Callable[[], None]) -> Entry:
        """Have an action run at a time; in the next pass, if that time is over.

        Returns:
            What cancels it.
        """
        self._made += 1  # of those due at one time, who came first is first
        entry = Entry(due_ms, action)
        heapq.heappush(self._heap, (due_ms, self._made, entry))
        return entry

    def cancel(self, entry: Entry | None) -> None:
        """Have an action not run, unless it has run."""
        if entry is None or entry.action is None:
            return
        entry.action = None
        self._cancelled += 1
        if self._cancelled > CANCELLED_MIN and 2 * self._cancelled > len(self._heap):
            self._heap[:] = [place for place in self._heap if place[2].action is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def begin(self) -> None:
        """Note the time at the beginning of a pass."""
        self.now_ms = self._clock.now_ms()

    def run_due(self, damaged: Callable[[RowDamaged], None]) -> bool:
        """Run what is due; return whether there was anything. What that makes due waits for the next pass.

        Args:
            damaged: called with what was found damaged on the way; the rest is done nevertheless.
        """
        heap = self._heap
        if not heap or heap[0][0] > self.now_ms:
            return False
        due = []
        while heap and heap[0][0] <= self.now_ms:
            due.append(heapq.heappop(heap)[2])
        for entry in due:
            action, entry.action = entry.action, None
            if action is None:
                self._cancelled -= 1
                continue
            try:
                action()
            except RowDamaged as damage:
                damaged(damage)
        return True

    def wait_seconds(self) -> float | None:
        """Return how long until something is due; None when nothing will be."""
        if not self._heap:
            return None
        return max(0, self._heap[0][0] - self._clock.now_ms()) / 1000
