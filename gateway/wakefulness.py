"""Staying awake for what a gateway is about to hear, where that pays: see also bus/spinning.py.

    pass ─► look ─► look ─► … ─► pass        or, when nothing has come in time, ─► sleep

Each look is a turn of the event loop that does not wait; other processes get the processor between two.

It is tried where clients may be waiting for answers. It pays where this process has time to spare, or where clients say
more for it, as those do that go on with each answer. Else it is off for a while: with 10,000 messages a second on two
cores, which the gateway, a shard and the client need by themselves, 1 in 100 took 0.4 ms longer. So it is where others
use the processor between two looks: who looks and gives way all the time takes a share of it all the same.
"""

import asyncio
import os
import time
from typing import Final

from shardmq.bus.spinning import Spinning

WORK_SHARE_MAX: Final = 0.5
"""Of a processor: a gateway whose work takes less has time to stay awake."""

GAIN: Final = 1.1
"""By so much more clients have to say, else."""

LOST_SHARE_MAX: Final = 0.25
"""Of the time of looking, that others had the processor."""

REMEASURE_SECONDS: Final = 5.0
"""After this time it is measured again what they say without it."""

FIRST_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 2.0
AGAIN_SECONDS_MAX: Final = 60.0
"""So much later a gateway without time to spare tries it first. After a trial in vain comes the next one, each after
twice the time."""


class Wakefulness:
    """Keeps an event loop from sleeping where more is about to come.

    Args:
        loop: of this process.

    Attributes:
        is_on: whether `passed` is to be told of passes.
        is_due: whether one has begun; whoever notices sets it.
        seconds: of processor time that it took.
    """

    __slots__ = (
        "_again_at",
        "_again_seconds",
        "_asleep_per_s",
        "_is_awaited",
        "_is_looking",
        "_looked_at",
        "_looked_seconds",
        "_loop",
        "_lost_seconds",
        "_remeasure_at",
        "_spinning",
        "_used_seconds",
        "is_due",
        "is_on",
        "seconds",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spinning = Spinning()
        self.is_on = self.is_due = self._is_awaited = self._is_looking = False
        self.seconds = 0.0
        self._looked_at = self._used_seconds = 0.0  # the last look, and the processor time then; 0.0 behind a pass
        self._looked_seconds = self._lost_seconds = 0.0  # since the last decision
        self._asleep_per_s = self._remeasure_at = self._again_at = 0.0
        self._again_seconds = AGAIN_SECONDS

    def decide(self, now: float, is_awaited: bool, bytes_per_s: float, busy_share: float) -> None:
        """Decide whether it is on; called about ten times a second.

        Args:
            now: monotonic seconds.
            is_awaited: whether clients may be waiting for answers.
            bytes_per_s: that clients said since the last call.
            busy_share: of a processor, that the work of this process took since then.
        """
        was_awaited, self._is_awaited = self._is_awaited, is_awaited
        is_crowded = self._lost_seconds > LOST_SHARE_MAX * self._looked_seconds
        self._looked_seconds = self._lost_seconds = 0.0
        if not (is_awaited and was_awaited):  # clients that came in between said less than they do
            self.is_on, self._again_at, self._again_seconds = False, 0.0, AGAIN_SECONDS
        elif not self.is_on:
            if not self._again_at:
                self._again_at = now + (FIRST_SECONDS if busy_share >= WORK_SHARE_MAX else 0)
            if now >= self._again_at:
                self.is_on, self._remeasure_at, self._asleep_per_s = True, now + REMEASURE_SECONDS, bytes_per_s
        elif busy_share < WORK_SHARE_MAX and not is_crowded:
            self._again_seconds = AGAIN_SECONDS
        elif is_crowded or bytes_per_s < GAIN * self._asleep_per_s:
            self.is_on, self._again_at = False, now + self._again_seconds
            self._again_seconds = min(2 * self._again_seconds, AGAIN_SECONDS_MAX)
        elif now >= self._remeasure_at:
            self.is_on, self._again_at, self._again_seconds = False, now, AGAIN_SECONDS

    def passed(self, began: float, has_sent: bool, is_small: bool) -> None:
        """Note a pass that ends now, and stay awake after it where that is worth it.

        Args:
            began: when it began, monotonic seconds.
            has_sent: whether it has sent anything but acks.
            is_small: whether it may belong to a conversation.
        """
        self.is_due, self._looked_at = False, 0.0
        if not has_sent:
            return
        self._spinning.passed(began, time.monotonic(), is_small)
        if self._spinning.awake_until and not self._is_looking:
            self._is_looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        now, used_seconds = time.monotonic(), time.thread_time()
        if self._looked_at:
            looked, used = now - self._looked_at, used_seconds - self._used_seconds
            self._looked_seconds += looked
            self._lost_seconds += looked - used
            if not self.is_due:
                self.seconds += used
        if now < self._spinning.awake_until:
            self._looked_at, self._used_seconds = now, used_seconds
            os.sched_yield()
            self._loop.call_soon(self._look)
        else:
            self._looked_at = 0.0
            self._is_looking = False
