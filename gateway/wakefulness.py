"""Staying awake for what a gateway is about to hear, where that pays: see also bus/spinning.py.

    pass ─► look ─► look ─► … ─► pass        or, when nothing has come in time, ─► sleep

Each look is a turn of the event loop that does not wait; other processes get the processor between two.

It is tried where clients may be waiting for answers. It pays where this process has time to spare, or where clients say
more for it, as those do that go on with each answer. Else it is off for a while: with 10,000 messages a second on two
cores, which the gateway, a shard and the client need by themselves, 1 in 100 took 0.4 ms longer.
"""

import asyncio
import os
import time
from typing import Final

from shardmq.bus.spinning import Spinning

SPARE_SHARE: Final = 0.3
"""Of a processor: a gateway whose work takes less has time to stay awake."""

GAIN: Final = 1.1
"""By so much more clients have to say, else."""

TRIAL_SECONDS: Final = 5.0
"""After this time it is measured again what they say without it."""

AGAIN_SECONDS: Final = 2.0
AGAIN_SECONDS_MAX: Final = 60.0
"""After a trial in vain comes the next one, each after twice the time."""


class Wakefulness:
    """Keeps an event loop from sleeping where more is about to come.

    Args:
        loop: of this process.

    Attributes:
        is_on: whether `passed` is to be told of passes.
        seconds: of processor time that it took.
    """

    __slots__ = (
        "_again_at",
        "_again_seconds",
        "_asleep_per_s",
        "_is_awaited",
        "_is_looking",
        "_loop",
        "_spinning",
        "_trial_at",
        "_used_seconds",
        "is_on",
        "seconds",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spinning = Spinning()
        self.is_on = self._is_awaited = self._is_looking = False
        self.seconds = 0.0
        self._used_seconds: float | None = None  # at the last look, with no pass since
        self._asleep_per_s = self._trial_at = self._again_at = 0.0
        self._again_seconds = AGAIN_SECONDS

    def look(self, now: float, is_awaited: bool, bytes_per_s: float, busy_share: float) -> None:
        """Decide anew; called about ten times a second.

        Args:
            now: monotonic seconds.
            is_awaited: whether clients may be waiting for answers.
            bytes_per_s: that clients said since the last look.
            busy_share: of a processor, that the work of this process took since then.
        """
        was_awaited, self._is_awaited = self._is_awaited, is_awaited
        if not (is_awaited and was_awaited):  # clients that came in between said less than they do
            self.is_on, self._again_at, self._again_seconds = False, 0.0, AGAIN_SECONDS
        elif not self.is_on:
            if now >= self._again_at:
                self.is_on, self._trial_at, self._asleep_per_s = True, now + TRIAL_SECONDS, bytes_per_s
        elif busy_share < SPARE_SHARE:
            self._again_seconds = AGAIN_SECONDS
        elif bytes_per_s < GAIN * self._asleep_per_s:
            self.is_on, self._again_at = False, now + self._again_seconds
            self._again_seconds = min(2 * self._again_seconds, AGAIN_SECONDS_MAX)
        elif now >= self._trial_at:
            self.is_on, self._again_at, self._again_seconds = False, now, AGAIN_SECONDS

    def passed(self, began: float, is_small: bool) -> None:
        """Note a pass that has sent something and ends now, and stay awake after it where that is worth it.

        Args:
            began: when it began, monotonic seconds.
            is_small: whether it may belong to a conversation.
        """
        self._used_seconds = None
        self._spinning.passed(began, time.monotonic(), is_small)
        if self._spinning.awake_until and not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        used_seconds = time.thread_time()
        if self._used_seconds is not None:
            self.seconds += used_seconds - self._used_seconds
        if time.monotonic() < self._spinning.awake_until:
            self._used_seconds = used_seconds
            os.sched_yield()
            self._loop.call_soon(self._look)
        else:
            self._used_seconds = None
            self._is_looking = False
