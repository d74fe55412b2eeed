"""Time slices: what takes long for one connection is done in pieces, one a pass; others are served in between.

A piece ends after about PIECE_SECONDS of work. Whoever has more to do waits for the next turn; of all that wait, one
has its turn in each pass. So a pass takes as long as the others need, and one piece, however many connections flood.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

PIECE_SECONDS: Final = 0.002
"""After this time a piece ends, with the step it is at: some take 3 ms. Somebody else's publish waits for about four
pieces before it is confirmed."""

TURN_SECONDS: Final = 0.005
"""After this time no more is read from one connection in one pass. Reading 256 KB of small AMQP messages takes less."""

LEAST_READ_BYTES: Final = 16 << 10
"""What is read at once of a connection whose bytes take long; of others, all there is room for."""


class TimeSlices:
    """Gives those that have more to do one time slice after the other, one in each pass."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Have `go_on` called in a later pass."""
        if not self._waiting:
            self._loop.call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            self._loop.call_soon(self._next)
        go_on()


class TimeSlice:
    """The time of one piece of work."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.monotonic() + PIECE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the piece is to end: it is the others' turn."""
        return time.monotonic() > self._end
