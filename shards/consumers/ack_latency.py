"""How long a consumer takes to acknowledge: a few of its messages are timed, one after the other.

    ARMED ── the next one goes out ──► its number ── it is settled ──► ARMED … RESTING ── next look ──► ARMED

A message that is not timed costs one comparison as it goes out with others, and one as it is settled with others.
"""

import time
from array import array
from typing import Final

ARMED: Final = -1
"""In place of a message's number: the next one that goes out is timed."""

RESTING: Final = -2
"""In place of a message's number: none is timed before the next look."""

TIMED_MAX: Final = 8
"""Messages that are timed between two looks, which come every 5 s."""

KEPT: Final = 64
"""Times that are kept of a consumer: 256 bytes."""


class AckLatency:
    """Times from the moment that messages go out to a consumer until they are settled.

    Attributes:
        timed: the number of the message that is timed, or ARMED, or RESTING.
    """

    __slots__ = ("_begun_at", "_left", "_taken_ms", "timed")

    def __init__(self) -> None:
        self.timed = ARMED
        self._begun_at = 0.0
        self._left = TIMED_MAX
        self._taken_ms = array("f")

    def begin(self, number: int) -> None:
        """Time this message, which goes out now."""
        self.timed = number
        self._begun_at = time.monotonic()

    def end(self) -> None:
        """The message that is timed is settled."""
        self._taken_ms.append(1000 * (time.monotonic() - self._begun_at))
        if len(self._taken_ms) > KEPT:
            del self._taken_ms[0]
        self._left -= 1
        self.timed = ARMED if self._left > 0 else RESTING

    def look(self, is_held: bool) -> None:
        """Time some more messages; the one that is timed goes on where it is held still."""
        self._left = TIMED_MAX
        if not is_held:
            self.timed = ARMED

    def table(self) -> dict[str, float | None]:
        """The middle and the longest of the last times, in milliseconds; None where there is none yet."""
        taken = sorted(self._taken_ms)
        half, most = (round(taken[len(taken) // 2], 3), round(taken[-1], 3)) if taken else (None, None)
        return {"ack_latency_ms": half, "ack_latency_ms_max": most}
