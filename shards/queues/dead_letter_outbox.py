"""Dead letters on their way out: kept by their queue until they have arrived elsewhere.

    waiting  ── take ──▶  out  ── buried ──▶  settled
       ▲                   │
       └────── retry ──────┘

After a crash those that were dying are simply in their queue again, and some of them may have arrived. So each is
published as one of a producer's, under its number in the queue: its next home takes each number once.

A producer is a queue whose messages survive a restart: neither its id nor a number of its is ever used twice. Messages
that do not survive leave their numbers to others; a queue's are another producer's after each start.
"""

import secrets
from collections import deque
from typing import Final, NamedTuple, Protocol

from shardmq.limits import LETTER_PRODUCERS
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.segments.segment import Ranges

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT, ACK_TIMEOUT = (
    "rejected",
    "expired",
    "maxlen",
    "delivery_limit",
    "ack_timeout",
)
"""What a message may die of, in RabbitMQ's words."""


GONE_RANGES: Final = 8
"""Ranges of numbers told at a time that are never published again: one message that a consumer holds for hours parts
two of them."""

GONE_EVERY: Final = 16
"""How many letters are sent before those ranges are told anew."""

_PASSING: Final = 2**62
"""From here on above LETTER_PRODUCERS, producers are made up at each start."""


class DeadLetter(NamedTuple):
    """Messages that died together.

    Attributes:
        first: number of the first.
        reason: what they died of.
        delivery_count: how often each was delivered in vain, where the queue counts that.
        batch: themselves.
        producer: whose messages they are published as, by their numbers.
        gone: numbers of it that are never published again, as far as they are told.
    """

    first: int
    reason: str
    delivery_count: int
    batch: RecordBatch
    producer: int
    gone: Ranges


class Keeper(Protocol):
    """Where dead letters lie, held."""

    def read(self, ranges: Ranges, room: int, alone: bool) -> list[tuple[int, int, RecordBatch]]:
        """Read messages, cut where they were not delivered equally often: (first number, delivery count, batch)."""

    def drop(self, ranges: Ranges) -> None:
        """Settle messages."""

    def gaps_below(self, number: int, most: int) -> Ranges:
        """Return numbers below one whose messages are settled: their first ranges, `most` at most."""


def passing_producer() -> int:
    """Return whose messages the dead letters are published as that do not survive a restart."""
    return LETTER_PRODUCERS + _PASSING + secrets.randbelow(_PASSING)


class DeadLetterOutbox:
    """The dead letters of one queue, or of one group of a partition, in the order of their deaths.

    Args:
        keeper: where they lie, held.
        lasting: whose messages those are published as that survive a restart.
        passing: whose messages the others are published as.

    Attributes:
        count: how many there are.
        dead_lettered: how many have left, since start.
    """

    __slots__ = ("_dead_letters", "_keeper", "_lasting", "_out", "_passing", "_waiting", "count", "dead_lettered")

    def __init__(self, keeper: Keeper, lasting: int, passing: int) -> None:
        self._keeper = keeper
        self._passing = passing
        self._lasting = lasting
        self._dead_letters = 0
        self._waiting: deque[tuple[int, int, str]] = deque()
        self._out: dict[str, RangeSet] = {}
        self.count = 0
        self.dead_lettered = 0

    @property
    def waiting(self) -> bool:
        """Whether there are some to take."""
        return bool(self._waiting)

    def add(self, ranges: Ranges, reason: str) -> None:
        """Add held messages that have died."""
        waiting = self._waiting
        for start, end in ranges:
            self.count += end - start
            if waiting and waiting[-1][1:] == (start, reason):
                start = waiting.pop()[0]
            waiting.append((start, end, reason))

    def take(self, limit_bytes: int) -> list[DeadLetter]:
        """Return the next ones, up to `limit_bytes`, but one at least. They are out from here on."""
        outbox: list[DeadLetter] = []
        waiting = self._waiting
        while waiting:
            start, end, reason = waiting.popleft()
            after = start
            for first, delivery_count, batch in self._keeper.read([(start, end)], limit_bytes, alone=not outbox):
                producer = self._lasting if batch.flags & PERSISTENT else self._passing
                outbox.append(DeadLetter(first, reason, delivery_count, batch, producer, self._gone(first)))
                limit_bytes -= len(batch.records)
                after = first + batch.count
            self._out.setdefault(reason, RangeSet()).add(start, after)
            if after < end:
                waiting.appendleft((after, end, reason))
                break
        return outbox

    def _gone(self, first: int) -> Ranges:
        """Return numbers of settled messages that are told with a dead letter.

        All are below the dead letter's own: those above may be given anew after a crash.
        """
        self._dead_letters += 1
        return [] if self._dead_letters % GONE_EVERY else self._keeper.gaps_below(first, GONE_RANGES)

    def buried(self, ranges: Ranges) -> None:
        """Settle those of these messages that are out: they have arrived."""
        for start, end in ranges:
            for out in self._out.values():
                parts = out.within(start, end)
                gone = out.remove(start, end)
                self.count -= gone
                self.dead_lettered += gone
                self._keeper.drop(parts)

    def ranges(self) -> Ranges:
        """Return which messages they are."""
        return [(start, end) for start, end, _ in self._waiting] + [part for out in self._out.values() for part in out]

    def forget(self, end: int) -> Ranges:
        """Forget those below a number that are not on their way; returns them."""
        forgotten: Ranges = []
        for _ in range(len(self._waiting)):
            first, stop, reason = self._waiting.popleft()
            if first < end:
                forgotten.append((first, min(stop, end)))
                first = min(stop, end)
            if first < stop:
                self._waiting.append((first, stop, reason))
        self.count -= sum([stop - first for first, stop in forgotten])
        return forgotten

    def retry(self, ranges: Ranges) -> None:
        """Make those of these messages that are out the next ones to be taken."""
        again: list[tuple[int, int, str]] = []
        for start, end in ranges:
            for reason, out in self._out.items():
                again += [(*part, reason) for part in out.within(start, end)]
                out.remove(start, end)
        self._waiting.extendleft(sorted(again, reverse=True))
