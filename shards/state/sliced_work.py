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


class SlicedWork:
    """Work that is under way.

    Args:
        buffer: what is to be written.
    """

    def __init__(self, buffer: WriteBuffer) -> None:
        self._buffer = buffer
        self._works: deque[tuple[Steps, Callable[[], None]]] = deque()
        self._left = SLICE_BYTES

    @property
    def is_behind(self) -> bool:
        """Whether there is some for the next pass."""
        return bool(self._works)

    def begin(self) -> None:
        """A pass begins: one slice."""
        self._left = SLICE_BYTES
        if self._works:
            self._works.rotate(-1)
            self._run()

    def add(self, steps: Steps, done: Callable[[], None]) -> None:
        """Add work. It is done at once where it is small enough, and this pass has done little.

        Args:
            steps: of it.
            done: called when there are no more.
        """
        self._works.appendleft((steps, done))
        self._run()

    def _run(self) -> None:
        while self._works and self._left > 0:
            steps, done = self._works[0]
            cost = next(steps, None)
            if cost is None:
                self._works.popleft()
                done()
            else:
                self._left -= cost
        self._buffer.demand()
