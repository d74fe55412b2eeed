"""What is to be done when: one heap of appointments for everything in a shard that waits for a time.

Nothing is looked through in vain: ten thousand queues at rest cost a tick nothing. An appointment cannot be cancelled;
who made it looks whether it still holds, and knows what is to be looked at by its number, so that nothing outlives its
end by being expected.
"""

import heapq
from collections.abc import Callable

from shardmq.errors import RowDamaged
from shardmq.runtime.clock import SteadyClock


class Schedule:
    """Appointments.

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
        """Do something when it is `due_ms`; at once, that is in the next pass, if it is."""
        self._made += 1  # of those due at one time, who came first is first
        heapq.heappush(self._heap, (due_ms, self._made, action))

    def begin(self) -> None:
        """A pass begins: note the time."""
        self.now_ms = self._clock.now_ms()

    def run_due(self, damaged: Callable[[RowDamaged], None]) -> bool:
        """Do what is due; returns whether there was anything. What that makes due waits for the next pass.

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
        """How long until something is due; None when nothing will be."""
        if not self._heap:
            return None
        return max(0, self._heap[0][0] - self._clock.now_ms()) / 1000
