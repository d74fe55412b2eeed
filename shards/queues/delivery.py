"""Messages that are handed out together."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from shardmq.message.record_batch import RecordBatch

SUBQUEUE_BITS: Final = 55
"""Bits of a message's number within its subqueue; the subqueue's number is above them. Nobody counts that far."""

ALL_BATCHES: Final = 1 << 62
"""More than there can be."""

EXPIRE_BYTES: Final = 32 << 20
"""Read, to see whether they have expired, and removed in one pass."""


class Delivery(NamedTuple):
    """Messages that go out together.

    Attributes:
        first: number of the first.
        redelivered: whether they were handed out before.
        delivery_count: how often each was, in vain, where the queue counts that.
        batch: themselves.
    """

    first: int
    redelivered: bool
    delivery_count: int
    batch: RecordBatch


make_delivery: Final[Callable[[tuple[int, bool, int, RecordBatch]], Delivery]] = partial(tuple.__new__, Delivery)
"""Delivery(...), in 110 ns instead of 250; most of them carry one message."""
