"""Work that is too much for one pass: it is carried out in slices, one a pass, and others have their turns in between.

What a slice does is written by the commit of its pass. A request is answered in the pass of the last one.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from shardmq.shards.segments.steps import Steps
from shardmq.shards.storage.write_buffer import WriteBuffer

SLICE_BYTES: Final = 32 << 20
"""About what is removed in one pass: some milliseconds, most of them LMDB's for the pages that become free."""


class PassBudget:
    """How much work of a kind is done in one pass.

    Args:
        buffer: it knows when the pass began.
    """

    def __init__(self, buffer: WriteBuffer) -> None:
        self._buffer = buffer
        self._pass_began = buffer.now
        self._spent = 0

    def left(self, bytes_max: int) -> int:
        """Return how many of the bytes that a pass may work on are left of this one; 0 or less for none."""
        if self._pass_began != self._buffer.now:
            self._pass_began, self._spent = self._buffer.now, 0
        return bytes_max - self._spent

    def spend(self, count: int) -> None:
        """Note that so many bytes were worked on, after a look at what was left."""
        self._spent += count


class SlicedWork:
    """Work that is under way.

    Args:
        buffer: what is to be written.

    Attributes:
        late: what waits for the next pass.
    """

    def __init__(self, buffer: WriteBuffer) -> None:
        self._buffer = buffer
        self.late: deque[tuple[Steps, Callable[[], None]]] = deque()
        self._budget = PassBudget(buffer)

    def wait_seconds(self, _now: float) -> float | None:
        """Return when the next slice is due, in seconds from now; None where there is none."""
        return 0.0 if self.late else None

    def begin(self) -> None:
        """A pass begins where something is late: one slice."""
        self.late.rotate(-1)
        self._run()

    def add(self, steps: Steps, done: Callable[[], None]) -> None:
        """Add work. It is done at once where it is small enough, and this pass has done little.

        Args:
            steps: of it.
            done: called when there are no more.
        """
        self.late.appendleft((steps, done))
        self._run()

    def _run(self) -> None:
        while self.late and self._budget.left(SLICE_BYTES) > 0:
            steps, done = self.late[0]
            cost = next(steps, None)
            if cost is None:
                self.late.popleft()
                done()
            else:
                self._budget.spend(cost)
        self._buffer.demand()
