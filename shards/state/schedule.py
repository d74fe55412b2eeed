"""What is to be done when: one heap of entries for everything in a shard that waits for a time.

Ten thousand queues at rest cost a tick nothing. An entry cannot be cancelled: its action looks whether it still
applies, and names queues by number, so that no entry keeps a deleted queue in memory.
"""

import heapq
from collections.abc import Callable

from shardmq.errors import RowDamaged
from shardmq.runtime.clock import SteadyClock


class Schedule:
    """Actions in the order they are due.

    Args:
        clock: whose milliseconds they are in.

    Attributes:
        now_ms: what time it is in this pass.
    """

    def __init__(self, clock: SteadyClock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0
        self.now_ms = clock.now_ms()

    def at(self, due_ms: int, action: Callable[[], None]) -> None:
        """Have an action run at a time; in the next pass, if that time is over."""
        self._made += 1  # of those due at one time, who came first is first
        heapq.heappush(self._heap, (due_ms, self._made, action))

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
        for action in due:
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
