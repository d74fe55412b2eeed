"""How much of a partition is kept. Whole segments are dropped, the oldest first, whoever reads them."""

from collections.abc import Sequence

from shardmq.shards.segments.timed_segment import TimedSegment
from shardmq.topology.arguments import QueueArguments


class Retention:
    """The limits of one partition.

    The last segment stays, as in RabbitMQ's streams: a partition that had messages has some.

    Args:
        arguments: of the partition: x-max-length-bytes, x-max-length and x-max-age.
    """

    __slots__ = ("_age_ms", "_bytes_max", "_messages_max")

    def __init__(self, arguments: QueueArguments) -> None:
        self._bytes_max = arguments.max_length_bytes
        self._messages_max = arguments.max_length
        self._age_ms = arguments.max_age_ms

    def surplus(self, segments: Sequence[TimedSegment], size: int, now_ms: int) -> int:
        """Return how many of the oldest segments are not kept any more.

        Args:
            segments: the partition's, in order.
            size: bytes of their records.
            now_ms: ms since 1970.
        """
        count, last = 0, len(segments) - 1
        oldest = self._oldest_offset(segments)
        while count < last and (
            self._is_over(size) or segments[count].end <= oldest or self._is_old(segments[count], now_ms)
        ):
            size -= segments[count].bytes
            count += 1
        return count

    def next_ms(self, segments: Sequence[TimedSegment]) -> int | None:
        """Return when the oldest segment is too old, ms since 1970; None when none will be."""
        if self._age_ms is None or len(segments) < 2:
            return None
        return segments[0].last_ms + self._age_ms + 1

    def _oldest_offset(self, segments: Sequence[TimedSegment]) -> int:
        """Return the first offset that the limit of messages keeps; 0 where all are."""
        return 0 if self._messages_max is None or not segments else segments[-1].end - self._messages_max

    def _is_over(self, size: int) -> bool:
        return self._bytes_max is not None and size > self._bytes_max

    def _is_old(self, segment: TimedSegment, now_ms: int) -> bool:
        return self._age_ms is not None and segment.last_ms + self._age_ms < now_ms
