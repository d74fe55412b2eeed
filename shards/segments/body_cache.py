"""Which bodies are in memory, within a budget."""

from collections import OrderedDict

from shardmq.shards.segments.segment import BATCH_OVERHEAD_BYTES, Segment
from shardmq.shards.segments.shared_batch import SHARED_BYTES_MIN, SharedBatch


class BodyCache:
    """The segments that have their bodies in memory, oldest first. A body that several of them share counts once.

    Args:
        bytes_max: what they may take together.
    """

    __slots__ = ("_costs", "_sharing", "_shared", "bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max
        self._costs: OrderedDict[Segment, int] = OrderedDict()
        self._sharing: dict[Segment, list[int]] = {}  # the shared bodies that they have
        self._shared: dict[int, tuple[bytes, int]] = {}  # shared bodies, and how many segments have them

    def add(self, segment: Segment) -> None:
        """The bodies of this segment are in memory, and complete."""
        cost = segment.bytes + BATCH_OVERHEAD_BYTES * len(segment.batches or ())
        if segment.bytes >= SHARED_BYTES_MIN:
            cost -= self._share(segment)
        self._costs[segment] = cost
        self.bytes += cost

    def remove(self, segment: Segment) -> None:
        """Note that the bodies of a segment are not in memory any more."""
        self.bytes -= self._costs.pop(segment, 0)
        if segment in self._sharing:
            self._unshare(segment)

    def surplus(self) -> list[Segment]:
        """Take out what is over the limit; the owner drops their bodies."""
        segments = []
        while self.bytes > self.bytes_max:
            segment, cost = self._costs.popitem(last=False)
            self.bytes -= cost
            if segment in self._sharing:
                self._unshare(segment)
            segments.append(segment)
        return segments

    def shared(self, body: int) -> bytes | None:
        """Return the records of a shared body; None where no segment has them in memory."""
        found = self._shared.get(body)
        return None if found is None else found[0]

    def _share(self, segment: Segment) -> int:
        """Count the shared bodies of a segment by themselves; returns how many of its bytes those are."""
        batches = [batch for _, batch in segment.batches or () if type(batch) is SharedBatch and batch.is_whole]
        for batch in batches:
            records, users = self._shared.get(batch.body, (batch.records, 0))
            self._shared[batch.body] = records, users + 1
            if not users:
                self.bytes += len(records)
        if batches:
            self._sharing[segment] = [batch.body for batch in batches]
        return sum([len(batch.records) for batch in batches])

    def _unshare(self, segment: Segment) -> None:
        for body in self._sharing.pop(segment):
            records, users = self._shared[body]
            if users > 1:
                self._shared[body] = records, users - 1
            else:
                del self._shared[body]
                self.bytes -= len(records)
