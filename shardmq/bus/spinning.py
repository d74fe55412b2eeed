"""Staying awake between two passes of a process, where that has paid lately.

A client that waits for each answer before it goes on is back within a few hundred microseconds, and waking up a process
takes 50 of them and more. With gateway and shards awake, publishing with one in flight is 1.3 times as fast, and direct
reply-to 1.7 times. Messages that come by themselves gain little, and staying awake for them took half of a shard's
processor time at 1,000 a second.

The last passes tell the two apart. A pass that sends something asks for more, and the next one that sends something
shows whether more came in time. Acks alone send nothing: they neither count nor end the wait.
"""

from typing import Final

from shardmq.runtime.cores import core_count

AWAKE_SECONDS: Final = 0.0005
"""How long a process stays awake after it has sent something: about the time a client takes to come again."""

SCORE_MAX: Final = 24
SCORE_MIN: Final = 12
"""From this score on, a process stays awake. A conversation reaches it from nothing in a dozen turns, some 7 ms."""

LOSS: Final = 3
"""What a try in vain weighs against those that paid: three of four must pay. Of what comes at random times, every
half a millisecond on average, 63 % come in time."""

CONVERSATION_EVENTS: Final = 4
CONVERSATION_BYTES: Final = 4096
"""A pass no larger than this may be one of a client that waits for each answer before it goes on."""


class Spinning:
    """Decides whether a process stays awake after a pass.

    Attributes:
        awake_until: monotonic time until which it should; 0.0 where it should sleep.
    """

    def __init__(self) -> None:
        self.awake_until = 0.0
        self._score = SCORE_MIN
        self._sent_at: float | None = None
        self._can = core_count() > 1  # alone on one, it would keep those waiting for whom it waits

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
        is_worth_it = is_small and self._can and self._score >= SCORE_MIN
        self.awake_until = ended + AWAKE_SECONDS if is_worth_it else 0.0
