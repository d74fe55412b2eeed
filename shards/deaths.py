"""Dead letters on their way out: kept by their queue until they have arrived elsewhere.

    waiting  ── take ──▶  out  ── buried ──▶  done with
       ▲                   │
       └────── retry ──────┘

After a crash those that were dying are simply in their queue again.
"""

from collections import deque
from typing import NamedTuple

from shardmq.ranges import RangeSet
from shardmq.records import Run
from shardmq.shards.lanes import Lanes
from shardmq.shards.shelf import Ranges

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT, ACK_TIMEOUT = (
    "rejected", "expired", "maxlen", "delivery_limit", "ack_timeout")  # fmt: skip
"""What a message may die of, in RabbitMQ's words."""


class Death(NamedTuple):
    """Messages that died together.

    Attributes:
        first: number of the first.
        reason: what they died of.
        deliveries: how often each was delivered in vain, where the queue counts that.
        run: themselves.
    """

    first: int
    reason: str
    deliveries: int
    run: Run


class Deaths:
    """The dead letters of one queue, in the order of their deaths.

    Args:
        lanes: where they lie, set aside.

    Attributes:
        count: how many there are.
        dead_lettered: how many have left, since start.
    """

    __slots__ = ("_lanes", "_out", "_waiting", "count", "dead_lettered")

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._waiting: deque[tuple[int, int, str]] = deque()
        self._out: dict[str, RangeSet] = {}
        self.count = 0
        self.dead_lettered = 0

    @property
    def waiting(self) -> bool:
        """Whether there are some to take."""
        return bool(self._waiting)

    def add(self, ranges: Ranges, reason: str) -> None:
        """Messages that were set aside are dead."""
        waiting = self._waiting
        for start, end in ranges:
            self.count += end - start
            if waiting and waiting[-1][1:] == (start, reason):
                start = waiting.pop()[0]
            waiting.append((start, end, reason))

    def take(self, limit_bytes: int) -> list[Death]:
        """The next ones: as many as take `limit_bytes`, but one at least. They are out from here on."""
        deaths: list[Death] = []
        waiting = self._waiting
        while waiting:
            start, end, reason = waiting.popleft()
            after = start
            for first, deliveries, run in self._lanes.read([(start, end)], limit_bytes, alone=not deaths):
                deaths.append(Death(first, reason, deliveries, run))
                limit_bytes -= len(run.records)
                after = first + run.count
            self._out.setdefault(reason, RangeSet()).add(start, after)
            if after < end:
                waiting.appendleft((after, end, reason))
                break
        return deaths

    def buried(self, ranges: Ranges) -> None:
        """Those of these that are out have arrived; they are done with."""
        for start, end in ranges:
            for out in self._out.values():
                parts = out.within(start, end)
                gone = out.remove(start, end)
                self.count -= gone
                self.dead_lettered += gone
                self._lanes.drop(parts)

    def retry(self, ranges: Ranges) -> None:
        """Those of these that are out are the next ones to take again."""
        again: list[tuple[int, int, str]] = []
        for start, end in ranges:
            for reason, out in self._out.items():
                again += [(*part, reason) for part in out.within(start, end)]
                out.remove(start, end)
        self._waiting.extendleft(sorted(again, reverse=True))
