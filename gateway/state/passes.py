"""How much is in a pass: what takes long for one connection is done in pieces, and what many say is gathered.

**Time slices.** What takes long is done one piece a pass; others are served in between. A piece ends after about
PIECE_SECONDS of work. Whoever has more to do waits for the next turn; of all that wait, one has its turn in each pass.
So a pass takes as long as the others need, and one piece, however many connections flood.

**Gathering.** A pass takes a gateway and a shard 50 to 100 µs, however little is in it. A thousand devices that say
something now and then would have one for nearly every message. Where a gateway is busy with so many, passes begin
APART_SECONDS apart, with what all of them said: of 500 clients with 20 messages a second each, a message takes the
broker half as much of the processor. A gateway with time to spare does not wait, nor does one with clients that are
read so often that they may be waiting for answers. Answers to those that speak seldom come up to two such times later.
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

APART_SECONDS: Final = 0.005
"""Between the beginnings of two gathered passes."""

OFTEN: Final = 10
"""Reads from one client between two looks. Who is read more often may be waiting for answers."""

OFTEN_SHARE_MAX: Final = 1 / 400
"""Of all reads, those beyond OFTEN. One client that waits for each answer has more, among a thousand others."""

READS_MIN: Final = 3000.0
"""A second. With fewer, passes have no more in them when they are gathered."""

BUSY_SHARE: Final = 0.4
SPARE_SHARE: Final = 0.15
"""Of a processor that this process takes: from the former on passes are gathered, until it takes less than the latter.
In between, gathering is what makes the difference."""


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


class Gathering:
    """Decides whether passes are gathered, and has one wait for more.

    Attributes:
        looks: how many there were.
        reads: from clients since the last look.
        often: those of them beyond a client's first OFTEN.
        bytes: that were read since the last look.
        is_on: whether passes are gathered now.
        is_awaited: whether some clients were read so often that they may be waiting for answers.
        bytes_per_s: that were read between the last two looks.
        busy_share: of a processor, that this process took between them.
    """

    __slots__ = (
        "_began_at",
        "_looked_at",
        "_used_seconds",
        "busy_share",
        "bytes",
        "bytes_per_s",
        "is_awaited",
        "is_on",
        "looks",
        "often",
        "reads",
    )

    def __init__(self) -> None:
        self.looks = self.reads = self.often = self.bytes = 0
        self.is_on = self.is_awaited = False
        self.bytes_per_s = self.busy_share = 0.0
        self._began_at = 0.0
        self._looked_at = self._used_seconds = 0.0

    def look(self, now: float, used_seconds: float) -> None:
        """Decide anew; called about ten times a second.

        Args:
            now: monotonic seconds.
            used_seconds: processor time of this process, without what it took to stay awake.
        """
        passed = now - self._looked_at
        self.busy_share = (used_seconds - self._used_seconds) / passed
        self.bytes_per_s = self.bytes / passed
        self.is_awaited = self.often > OFTEN_SHARE_MAX * self.reads
        is_busy = self.busy_share >= (SPARE_SHARE if self.is_on else BUSY_SHARE)
        self.is_on = is_busy and self.reads >= READS_MIN * passed and not self.is_awaited
        self._looked_at, self._used_seconds = now, used_seconds
        self.looks += 1
        self.reads = self.often = self.bytes = 0

    def wait(self) -> None:
        """Wait until the next pass is due, without being woken up by each client."""
        left = self._began_at + APART_SECONDS - time.monotonic()
        if left > 0:
            time.sleep(left)
        self._began_at = time.monotonic()
