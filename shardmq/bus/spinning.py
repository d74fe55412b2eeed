"""Staying awake between two passes of a process, where that has paid lately.

A client that waits for each answer before it goes on is back within a few hundred microseconds, and waking up a process
takes 50 of them and more: with the shard awake, publishing with one in flight is 1.3 times as fast. Messages that come
by themselves gain little, and staying awake for them took half of a shard's processor time at 1,000 a second.

The last passes tell the two apart. A pass that sends something asks for more, and the next one that sends something
shows whether more came in time. Acks alone send nothing: they neither count nor end the wait.
"""

import time
from typing import Final

from shardmq.bus.poller import Poller

AWAKE_SECONDS: Final = 0.0005
"""How long a process stays awake after it has sent something: about the time a client takes to come again."""

SCORE_MAX: Final = 24
SCORE_MIN: Final = 12
"""From this score on, a process stays awake. A conversation reaches it from nothing in a dozen turns, some 7 ms."""

LOSS: Final = 3
"""What a try in vain weighs against those that paid: three of four must pay. Of what comes at random times, every
half a millisecond on average, 63 % come in time."""


class Spinning:
    """Decides whether a process stays awake after a pass.

    Args:
        poller: waits for what comes.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._score = SCORE_MIN
        self._sent_at: float | None = None

    @property
    def is_worth_it(self) -> bool:
        """Whether more has come in time often enough."""
        return self._score >= SCORE_MIN

    def passed(self, began: float, ended: float, is_small: bool) -> None:
        """Note a pass that has sent something.

        Args:
            began: when it began, monotonic seconds.
            ended: when it ended.
            is_small: whether it may belong to a conversation.
        """
        if self._sent_at is not None and is_small:
            if began - self._sent_at <= AWAKE_SECONDS:
                self._score = min(SCORE_MAX, self._score + 1)
            else:
                self._score = max(0, self._score - LOSS)
        self._sent_at = ended if is_small else None

    def wait(self, seconds: float) -> bool:
        """Wait for so many seconds at most, awake at first where that is worth it; returns whether something came."""
        if self._sent_at is not None and self._score >= SCORE_MIN:
            now = time.monotonic()
            until = min(now + seconds, self._sent_at + AWAKE_SECONDS)
            if now < until and self._poller.watch(until):
                return True
        return self._poller.wait(seconds)
