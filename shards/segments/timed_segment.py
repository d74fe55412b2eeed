"""Segments of partitions, which know when their messages came, and about their tags: readers look for both there."""

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.segment import Segment


class TimedSegment(Segment):
    """A segment with times, which never go back from one message of a partition to the next.

    Attributes:
        first_ms: when its first message came, ms since 1970.
        last_ms: when its last message came.
        tags: a summary of its messages' tags (tag_summary.py); None where they were not looked at.
    """

    __slots__ = ("first_ms", "last_ms", "tags")

    def __init__(self, queue: int, first: int, durable: bool, born: float) -> None:
        super().__init__(queue, first, durable, born)
        self.first_ms = self.last_ms = 0
        self.tags: bytes | None = None

    def cover(self, batch: RecordBatch) -> None:
        """Note the time of a batch that is added."""
        if not self.count:
            self.first_ms = batch.timestamp_ms
        self.last_ms = batch.timestamp_ms
