"""Which bodies are in memory, within a budget."""

from collections import OrderedDict

from shardmq.shards.segments.segment import BATCH_OVERHEAD_BYTES, Segment


class BodyCache:
    """The segments that have their bodies in memory, oldest first.

    Args:
        bytes_max: what they may take together.
    """

    __slots__ = ("_costs", "bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self._costs: OrderedDict[Segment, int] = OrderedDict()

    def add(self, segment: Segment) -> None:
        """The bodies of this segment are in memory, and complete."""
        cost = segment.bytes + BATCH_OVERHEAD_BYTES * len(segment.batches or ())
        self._costs[segment] = cost
        self.bytes += cost

    def remove(self, segment: Segment) -> None:
        """Note that the bodies of a segment are not in memory any more."""
        self.bytes -= self._costs.pop(segment, 0)

    def surplus(self) -> list[Segment]:
        """Take out what is over the limit; the owner drops their bodies."""
        segments = []
        while self.bytes > self.bytes_max:
            segment, cost = self._costs.popitem(last=False)
            self.bytes -= cost
            segments.append(segment)
        return segments
