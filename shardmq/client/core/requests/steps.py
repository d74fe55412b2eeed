"""What the steps of a transaction yield, and how long they insist."""

import math
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import msgspec

from shardmq.client.core.requests.request import Request
from shardmq.errors import ShardmqError, StillPreparing

T = TypeVar("T")

ASK_AGAIN_SECONDS: Final = 0.25
"""Between two tries of a request that nobody could answer, or that is not done yet."""


class Asking(msgspec.Struct, frozen=True):
    """A step: ask, and wait so many seconds for the answer."""

    request: Request[Any]
    seconds: float


class Flush(msgspec.Struct, frozen=True):
    """A step: wait until all that was published is confirmed, for so many seconds."""

    seconds: float


class Pause(msgspec.Struct, frozen=True):
    """A step: wait."""

    seconds: float


Step = Asking | Flush | Pause
Steps = Generator[Step, Any, T]


class Patience:
    """How long a request is asked again.

    Args:
        seconds: from now on; or from the last time on that the broker has got on with it.
        clock: rises by one each second.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until = clock() + seconds
        self._bytes_left: float = math.inf

    @property
    def left(self) -> float:
        """How many seconds an answer may take; the last one, too, has a moment."""
        return max(self._until - self._clock(), ASK_AGAIN_SECONDS)

    @property
    def lasts(self) -> bool:
        """Whether there is time to ask once more."""
        return self._clock() + ASK_AGAIN_SECONDS < self._until

    def hear(self, error: ShardmqError) -> None:
        """Begin anew where a refusal tells that less is to be done than ever before."""
        if isinstance(error, StillPreparing) and error.left < self._bytes_left:
            self._bytes_left = error.left
            self._until = self._clock() + self._seconds
