"""How many messages may wait in a queue, and how many bytes of bodies: x-max-length, x-max-length-bytes, x-overflow."""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.queues.priority_levels import PriorityLevels
from shardmq.shards.queues.subqueue import Subqueue
from shardmq.shards.segments.segment import Ranges, Segment, body_sizes
from shardmq.topology.arguments import QueueArguments

_segment: Final[Callable[[tuple[Segment, int, int]], Segment]] = itemgetter(0)

_EVERYTHING: Final = 1 << 62
_LOOK_MESSAGES: Final = 1000
_LOOK_BYTES: Final = 1 << 20
"""How far one look for messages to be dropped reaches. Dropping goes on until it is enough."""

_WHOLE_BYTES: Final = 1 << 20
"""From so much excess on, whole segments whose bytes are known are dropped without being read."""

_LOOK_MORE: Final = 8
"""Messages looked at beyond those that are enough if all are of one size: a thousand take 1.6 ms, for the one that goes
with each that comes.
"""


class LengthLimit:
    """The length limit of one queue. Only ready messages count.

    Args:
        arguments: of the queue.
        subqueues: its messages.

    Attributes:
        overflow: what happens beyond: drop-head, reject-publish or reject-publish-dlx.
        bytes: of the bodies of what is ready, where they are bounded.
    """

    __slots__ = ("_levels", "_length_max", "bytes", "bytes_max", "overflow")

    def __init__(self, arguments: QueueArguments, subqueues: PriorityLevels) -> None:
        self.overflow = arguments.overflow
        self._length_max = _EVERYTHING if arguments.max_length is None else arguments.max_length
        self.bytes_max = arguments.max_length_bytes
        self._levels = subqueues
        self.bytes = 0 if self.bytes_max is None else self._weigh(subqueues.waiting())

    @staticmethod
    def of(arguments: QueueArguments, subqueues: PriorityLevels) -> "LengthLimit | None":
        """Return the length limit of a queue, if it has one."""
        return (
            None
            if arguments.max_length is None and arguments.max_length_bytes is None
            else LengthLimit(arguments, subqueues)
        )

    def room_for(self, batch: RecordBatch, credit: int) -> int:
        """Return how many messages of a batch, from the first on, the queue has room for.

        Args:
            batch: the messages.
            credit: how many messages would leave the queue at once.
        """
        if self.overflow == "drop-head":
            return batch.count
        ready = self._levels.ready
        taken = max(0, min(batch.count, self._length_max + credit - ready))
        if self.bytes_max is not None:
            passing = max(0, credit - ready)
            room = self.bytes_max - (self.bytes if credit < ready or not credit else 0)
            taken = min(taken, passing + _fitting(body_sizes(batch)[passing:], room))
        return taken

    def has_room(self, batches: Sequence[RecordBatch], credit: int) -> bool:
        """Whether the queue has room for all of these batches together; `credit` as in `room_for`."""
        if self.overflow == "drop-head":
            return True
        ready = self._levels.ready
        if sum([batch.count for batch in batches]) > self._length_max + credit - ready:
            return False
        if self.bytes_max is None:
            return True
        sizes = [size for batch in batches for size in body_sizes(batch)]
        room = self.bytes_max - (self.bytes if credit < ready or not credit else 0)
        return sum(sizes[max(0, credit - ready) :]) <= room

    def append(self, batch: RecordBatch) -> None:
        """Put a batch at the end of its subqueue."""
        if self.bytes_max is None:
            self._levels.append(batch)
        else:
            size = sum(body_sizes(batch))
            self._levels.append(batch, size)
            self.bytes += size

    def went(self, deliveries: Iterable[Delivery]) -> None:
        """Count messages that were delivered."""
        if self.bytes_max is not None:
            for delivery in deliveries:
                self.bytes -= sum(body_sizes(delivery.batch))

    def withdrew(self, ranges: Ranges) -> None:
        """Count ready messages that were held."""
        if self.bytes_max is not None:
            self.bytes -= self._weigh(ranges)

    def came_back(self, ranges: Ranges) -> None:
        """Count messages that are ready again."""
        if self.bytes_max is not None:
            self.bytes += self._weigh(ranges)

    def withdraw_excess(self) -> Ranges:
        """Hold what is too much, where the head gives way."""
        if self.overflow != "drop-head":
            return []
        ranges: Ranges = []
        excess = self._levels.ready - self._length_max
        if excess > 0:
            ranges = self._levels.withdraw(excess)
            self.withdrew(ranges)
        if self.bytes_max is not None:
            while self.bytes > self.bytes_max:
                ranges += self._withdraw_bytes(self.bytes - self.bytes_max)
        return ranges

    def _withdraw_bytes(self, excess: int) -> Ranges:
        """Hold as many messages as have `excess` bytes together, if one look reaches so far."""
        subqueue = next(subqueue for subqueue in reversed(self._levels.order) if subqueue.ready)
        segment = _first_whole(subqueue) if excess >= _WHOLE_BYTES else None
        if segment is not None and segment.body_bytes and segment.body_bytes <= excess:
            self.bytes -= segment.body_bytes
            return subqueue.withdraw(segment.count)
        likely = excess * self._levels.ready // self.bytes + _LOOK_MORE
        pieces = subqueue.read(subqueue.waiting(0, min(likely, _LOOK_MESSAGES)), _LOOK_BYTES)
        sums = list(accumulate([size for _, batch in pieces for size in body_sizes(batch)]))
        count = next((place + 1 for place, size in enumerate(sums) if size >= excess), len(sums))
        self.bytes -= sums[count - 1]
        return subqueue.withdraw(count)

    def _weigh(self, ranges: Ranges) -> int:
        """The bytes of messages' bodies. Of whole segments they are known; others are read."""
        total = 0
        for subqueue, part in self._levels.split(ranges):
            for segment, group in groupby(subqueue.places(part), key=_segment):
                places = [(start, end) for _, start, end in group]
                if segment.body_bytes is not None and sum([end - start for start, end in places]) == segment.count:
                    total += segment.body_bytes
                else:
                    pieces = subqueue.read(places, _EVERYTHING, keep=False)
                    total += sum([sum(body_sizes(batch)) for _, batch in pieces])
        return total


def _first_whole(subqueue: Subqueue) -> Segment | None:
    """The segment that the next message is in, where all its messages are ready."""
    segment = subqueue.index.segments[subqueue.index.place(subqueue.waiting(0, 1)[0][0])]
    ready = sum([end - start for start, end in subqueue.between(segment.first, segment.end)])
    return segment if ready == segment.count else None


def _fitting(sizes: list[int], room: int) -> int:
    return sum([size <= room for size in accumulate(sizes)])
