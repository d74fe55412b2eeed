"""Where one reader is in a partition."""

from collections import deque
from typing import Final

from shardmq.bus.messages.streams import Reading
from shardmq.errors import OffsetOutOfRange
from shardmq.shards.queues.delivery import Delivery, make_delivery
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.topics.partition import Partition
from shardmq.shards.topics.tag_filter import TagFilter

NEXT: Final = Reading("next")
"""Where a reader begins that does not say: it gets what is published from then on."""

SCAN_BYTES: Final = 1 << 20
"""Looked through for tags at a time; others have their turns in between."""


class Cursor:
    """A reader's place, from which it is served (`serving.Source`).

    Args:
        partition: what is read.
        offset: of the first message it is to get; where that was dropped, the oldest one there is.

    Attributes:
        offset: of the message it gets next.
        is_exact: whether it is to get nothing where that message was dropped.
    """

    __slots__ = ("_partition", "is_exact", "offset")

    def __init__(self, partition: Partition, offset: int) -> None:
        self._partition = partition
        self.offset = offset
        self.is_exact = False

    @property
    def is_behind(self) -> bool:
        """Return whether there may be messages for it, though none is ready: more has to be looked through first."""
        return False

    def check(self) -> None:
        """Raise OffsetOutOfRange where the message it is at was dropped."""
        if self.offset < self._partition.first:
            raise out_of_range(self._partition, self.offset)

    @property
    def ready(self) -> int:
        """Return how many messages are before it in a row: all of them, where none is missing."""
        partition = self._partition
        self.offset, end = partition.run(max(self.offset, partition.first), partition.next)
        return end - self.offset

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Read on: `limit` messages at most, which take `room` bytes; one at least where `alone`."""
        partition = self._partition
        end = min(self.offset + limit, partition.next)
        pieces = partition.read_on(self.offset, end, room, alone)
        if pieces:
            first, batch = pieces[-1]
            self.offset = first + batch.count
        return [make_delivery((first, False, 0, batch)) for first, batch in pieces]

    def stored_bytes(self) -> int:
        """Return the bytes of the next message, where it is alone in a segment not in memory; else 0."""
        return self._partition.stored_at(self.offset)

    def head_bytes(self) -> int:
        """Return the bytes of the next message."""
        return self._partition.size_at(self.offset)

    def settle(self, ranges: Ranges) -> None:
        """Leave messages where they are."""


def look_for(partition: Partition, tags: TagFilter, start: int) -> tuple[Ranges, int]:
    """Look through SCAN_BYTES of a partition, up to a segment with messages that are wanted.

    Args:
        partition: it.
        tags: which messages are wanted.
        start: offset to begin at.

    Returns:
        Those that are wanted, and the offset up to which it was looked through.

    Raises:
        RowDamaged: a segment that had to be read is not what was written.
    """
    runs: Ranges = []
    left = SCAN_BYTES
    while left > 0 and not runs and start < partition.next:
        start, batches = partition.look_through(start, tags, left)
        if not batches:
            break
        for first, batch in batches:
            runs += tags.wanted(first, batch)
            start = first + batch.count
            left -= len(batch.records)
    return runs, start


class FilteredCursor(Cursor):
    """A reader's place, before which are messages with certain tags alone.

    Args:
        partition: what is read.
        offset: of the first message it may get.
        tags: which it is to get.
    """

    __slots__ = ("_runs", "_seen", "_tags")

    def __init__(self, partition: Partition, offset: int, tags: TagFilter) -> None:
        super().__init__(partition, offset)
        self._tags = tags
        self._seen = offset  # below it, what is wanted is in _runs
        self._runs: deque[tuple[int, int]] = deque()

    @property
    def is_behind(self) -> bool:
        """Return whether there may be messages for it, though none is ready."""
        return not self._runs and self._seen < self._partition.next

    @property
    def ready(self) -> int:
        """Return how many messages that are wanted are before it in a row. It looks through SCAN_BYTES at most."""
        runs, oldest = self._runs, self._partition.first
        while runs and runs[0][1] <= max(self.offset, oldest):
            runs.popleft()
        if not runs:
            found, self._seen = look_for(self._partition, self._tags, max(self._seen, oldest))
            runs.extend(found)
        if not runs:
            self.offset = self._seen
            return 0
        start, end = runs[0]
        self.offset = max(self.offset, start, oldest)
        return end - self.offset

    def take(self, limit: int, room: int, alone: bool) -> list[Delivery]:
        """Read on, as far as messages are wanted."""
        return super().take(min(limit, self.ready), room, alone)


def out_of_range(partition: Partition, offset: int) -> OffsetOutOfRange:
    """Return the error for an offset that a partition does not have."""
    declared = partition.declared
    title = f"queue '{declared.name}' in vhost '{declared.vhost}'"
    return OffsetOutOfRange.of(offset, title, partition.first, partition.next)


def offset_at(partition: Partition, reading: Reading) -> int:
    """Return the offset at which a reader asks to begin.

    Raises:
        OffsetOutOfRange: the reading is exact, and its offset is not kept, nor the next one.
        RowDamaged: a segment that had to be read is not what was written.
    """
    match reading.begin:
        case "first":
            return partition.first
        case "last":
            return partition.last_batch()
        case "time":
            return partition.offset_of(reading.number)
        case "offset":
            if reading.is_exact and not partition.first <= reading.number <= partition.next:
                raise out_of_range(partition, reading.number)
            return min(max(reading.number, partition.first), partition.next)
        case _:
            return partition.next


def cursor_at(partition: Partition, reading: Reading) -> Cursor:
    """Return a cursor where a reader asks for one.

    Raises:
        OffsetOutOfRange: the reading is exact, and its offset is not kept, nor the next one.
        RowDamaged: a segment that had to be read is not what was written.
    """
    offset = offset_at(partition, reading)
    if reading.tags is None:
        cursor = Cursor(partition, offset)
    else:
        cursor = FilteredCursor(partition, offset, TagFilter(reading.tags, reading.has_untagged))
    cursor.is_exact = reading.is_exact
    return cursor
