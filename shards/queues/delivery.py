"""Messages that are handed out together."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from shardmq.message.record_batch import Run

LANE_BITS: Final = 55
"""Bits of a message's number within its lane; the lane's number is above them. Nobody counts that far."""

ALL_RUNS: Final = 1 << 62
"""More than there can be."""

class Parcel(NamedTuple):
    """Messages that go out together.

    Attributes:
        first: number of the first.
        redelivered: whether they were handed out before.
        deliveries: how often each was, in vain, where the queue counts that.
        run: themselves.
    """

    first: int
    redelivered: bool
    deliveries: int
    run: Run


_parcel: Final[Callable[[tuple[int, bool, int, Run]], Parcel]] = partial(tuple.__new__, Parcel)
"""Parcel(...), in 110 ns instead of 250; most of them carry one message."""
