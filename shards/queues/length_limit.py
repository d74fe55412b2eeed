"""How many messages may wait in a queue, and how many bytes of bodies: x-max-length, x-max-length-bytes, x-overflow."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.queues.priority_levels import PriorityLevels
from shardmq.shards.segments.segment import Ranges, Segment, body_sizes
from shardmq.topology.arguments import QueueArguments

_segment: Final[Callable[[tuple[Segment, int, int]], Segment]] = itemgetter(0)

_EVERYTHING: Final = 1 << 62
_LOOK_MESSAGES: Final = 1000
_LOOK_BYTES: Final = 1 << 20
"""How far one look for messages to be dropped reaches. Dropping goes on until it is enough."""

_LOOK_MORE: Final = 8
"""Messages looked at beyond those that are enough if all are of one size: a thousand take 1.6 ms, for the one that goes
with each that comes.
"""


class LengthLimit:
    """The bounds of one queue. Only ready messages count.

    Args:
        terms: of the queue.
        lanes: its messages.

    Attributes:
        overflow: what happens beyond: drop-head, reject-publish or reject-publish-dlx.
        bytes: of the bodies of what is ready, where they are bounded.
    """

    __slots__ = ("_lanes", "_length_max", "bytes", "bytes_max", "overflow")

    def __init__(self, terms: QueueArguments, lanes: PriorityLevels) -> None:
        self.overflow = terms.overflow
        self._length_max = _EVERYTHING if terms.max_length is None else terms.max_length
        self.bytes_max = terms.max_length_bytes
        self._lanes = lanes
        self.bytes = 0 if self.bytes_max is None else self._weigh(lanes.waiting())

    @staticmethod
    def of(terms: QueueArguments, lanes: PriorityLevels) -> "LengthLimit | None":
        """The bounds a queue has, if it has any."""
        return None if terms.max_length is None and terms.max_length_bytes is None else LengthLimit(terms, lanes)

    def room_for(self, run: RecordBatch, credit: int) -> int:
        """How many messages of a run, from the first on, the queue has room for.

        Args:
            run: the messages.
            credit: how many messages would leave the queue at once.
        """
        if self.overflow == "drop-head":
            return run.count
        ready = self._lanes.ready
        taken = max(0, min(run.count, self._length_max + credit - ready))
        if self.bytes_max is not None:
            passing = max(0, credit - ready)
            room = self.bytes_max - (self.bytes if credit < ready or not credit else 0)
            taken = min(taken, passing + _fitting(body_sizes(run)[passing:], room))
        return taken

    def has_room(self, runs: Sequence[RecordBatch], credit: int) -> bool:
        """Whether the queue has room for all of these runs together; `credit` as in `room_for`."""
        if self.overflow == "drop-head":
            return True
        ready = self._lanes.ready
        if sum([run.count for run in runs]) > self._length_max + credit - ready:
            return False
        if self.bytes_max is None:
            return True
        sizes = [size for run in runs for size in body_sizes(run)]
        room = self.bytes_max - (self.bytes if credit < ready or not credit else 0)
        return sum(sizes[max(0, credit - ready) :]) <= room

    def append(self, run: RecordBatch) -> None:
        """Put a run at the end of its lane."""
        if self.bytes_max is None:
            self._lanes.append(run)
        else:
            size = sum(body_sizes(run))
            self._lanes.append(run, size)
            self.bytes += size

    def went(self, parcels: Iterable[Delivery]) -> None:
        """Messages were handed out."""
        if self.bytes_max is not None:
            for parcel in parcels:
                self.bytes -= sum(body_sizes(parcel.run))

    def withdrew(self, ranges: Ranges) -> None:
        """Ready messages were set aside."""
        if self.bytes_max is not None:
            self.bytes -= self._weigh(ranges)

    def came_back(self, ranges: Ranges) -> None:
        """Messages are ready again."""
        if self.bytes_max is not None:
            self.bytes += self._weigh(ranges)

    def withdraw_excess(self) -> Ranges:
        """Set aside what is too much, where the head gives way."""
        if self.overflow != "drop-head":
            return []
        ranges: Ranges = []
        excess = self._lanes.ready - self._length_max
        if excess > 0:
            ranges = self._lanes.withdraw(excess)
            self.withdrew(ranges)
        if self.bytes_max is not None:
            while self.bytes > self.bytes_max:
                ranges += self._withdraw_bytes(self.bytes - self.bytes_max)
        return ranges

    def _withdraw_bytes(self, excess: int) -> Ranges:
        """Set aside as many messages as have `excess` bytes together, if one look reaches so far."""
        lane = next(lane for lane in reversed(self._lanes.order) if lane.ready)
        likely = excess * self._lanes.ready // self.bytes + _LOOK_MORE
        pieces = lane.read(lane.waiting(0, min(likely, _LOOK_MESSAGES)), _LOOK_BYTES)
        sums = list(accumulate([size for _, run in pieces for size in body_sizes(run)]))
        count = next((place + 1 for place, size in enumerate(sums) if size >= excess), len(sums))
        self.bytes -= sums[count - 1]
        return lane.withdraw(count)

    def _weigh(self, ranges: Ranges) -> int:
        """The bytes of messages' bodies. Of whole segments they are known; others are read."""
        total = 0
        for lane, part in self._lanes.split(ranges):
            for segment, group in groupby(lane.places(part), key=_segment):
                places = [(start, end) for _, start, end in group]
                if segment.body_bytes is not None and sum([end - start for start, end in places]) == segment.count:
                    total += segment.body_bytes
                else:
                    pieces = lane.read(places, _EVERYTHING, keep=False)
                    total += sum([sum(body_sizes(run)) for _, run in pieces])
        return total


def _fitting(sizes: list[int], room: int) -> int:
    return sum([size <= room for size in accumulate(sizes)])
