"""What consumers do with a queue's messages, of which a partition does nothing: its messages stay."""

from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.queues.segment_log import SegmentLog
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.segments.steps import Steps
from shardmq.topology.entities import Queue as Declared


class KeptMessages(SegmentLog):
    """A log of which nothing is taken, settled or purged (`queue.Queue`).

    Attributes:
        declared: what it is.
    """

    __slots__ = ()

    declared: Declared

    def take(self, _limit: int, _room: int, alone: bool) -> list[Delivery]:  # noqa: ARG002  (of every queue)
        """Take nothing: messages stay.

        Raises:
            AssertionError: always; what would take messages of a partition is refused before.
        """
        raise AssertionError(f"messages are taken from partition '{self.declared.name}', which are to stay")

    def stored_bytes(self) -> int:
        """Return 0: no message is the next one for all."""
        return 0

    def head_bytes(self) -> int:
        """Return 0: no message is the next one for all."""
        return 0

    def settle(self, ranges: Ranges) -> None:
        """Leave messages where they are: who acknowledges has credit again, which is all that it means here."""

    def requeue(self, ranges: Ranges) -> None:
        """Leave messages where they are; as in RabbitMQ's streams, they do not come again to this reader."""

    def reject(self, ranges: Ranges) -> None:
        """Leave messages where they are."""

    def time_out(self, ranges: Ranges) -> None:
        """Leave messages where they are."""

    def delay_return(self, _ranges: Ranges) -> Ranges:
        """Leave messages where they are; none waits for a time."""
        return []

    def end_delay(self, ranges: Ranges) -> None:
        """Leave messages where they are."""

    def release(self, ranges: Ranges) -> None:
        """Leave messages where they are."""

    def settle_reserved(self, ranges: Ranges) -> None:
        """Leave messages where they are."""

    def reserve(self, _count: int) -> Ranges:
        """Reserve nothing: messages stay.

        Raises:
            AssertionError: always; it is refused before.
        """
        raise AssertionError(f"messages of partition '{self.declared.name}' are reserved, which are to stay")

    def put_back(self, ranges: Ranges, fresh_from: int) -> None:
        """Leave messages where they are; the reader that has not seen them is gone."""

    def purge(self) -> tuple[int, Steps]:
        """Remove nothing: messages stay.

        Raises:
            AssertionError: always; it is refused before.
        """
        raise AssertionError(f"partition '{self.declared.name}' is purged, whose messages are to stay")

    def trim(self) -> None:
        """Leave messages where they are; `seal` drops what is too much."""

    def mark_exactly(self) -> None:
        """Write down nothing: cursors are not the partition's."""
