"""By which numbers a consumer knows the messages that its gateway forwarded to it."""

from bisect import bisect_right
from typing import Final

from shardmq.bus.messages.columns import FORWARDED
from shardmq.ranges import RangeSet

PRUNE_SPANS: Final = 16
"""With so many spans, and twice as many as were left the last time, those of settled messages are forgotten."""


class ForwardedNumbers:
    """The numbers of messages that were forwarded to a consumer, and those that they have in their queue.

    A gateway numbers what it forwards by what its shard told it, which is right as long as nothing else comes to the
    queue. So there is one span, nearly always.
    """

    __slots__ = ("_prune_at", "_spans")

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, int]] = []  # start, end, what is to be added
        self._prune_at = PRUNE_SPANS

    def add(self, first: int, count: int, number: int, held: RangeSet) -> None:
        """Note messages that were taken in.

        Args:
            first: as which the first one was forwarded, beside FORWARDED; above all before.
            count: of them.
            number: that it has in its queue; the others follow.
            held: what the consumer holds.
        """
        start = FORWARDED + first
        end, more = start + count, number - start
        spans = self._spans
        if spans and spans[-1][1] == start and spans[-1][2] == more:
            spans[-1] = spans[-1][0], end, more
            return
        if len(spans) >= self._prune_at:
            spans[:] = [span for span in spans if held.within(span[0] + span[2], span[1] + span[2])]
            self._prune_at = max(PRUNE_SPANS, 2 * len(spans))
        spans.append((start, end, more))

    def numbers(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the numbers in the queue of messages that the consumer knows as [start, end); others are left out."""
        spans = self._spans
        place = max(0, bisect_right(spans, (start + 1,)) - 1)
        found: list[tuple[int, int]] = []
        while place < len(spans) and spans[place][0] < end:
            first, stop, more = spans[place]
            if stop > start:
                found.append((max(first, start) + more, min(stop, end) + more))
            place += 1
        return found
