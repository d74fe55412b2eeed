"""What the compactor looks after."""

from typing import Protocol

from shardmq.shards.segments.segment import Segment, SegmentIndex


class Compactable(Protocol):
    """Segments that the compactor may merge, or copy what lives out of.

    Attributes:
        id: of their queue.
        index: of the segments.
        young: how many of them were never merged.
    """

    id: int
    index: SegmentIndex
    young: int

    @property
    def is_sparse(self) -> bool:
        """Whether much of what they hold is settled."""

    def replace(self, start: int, stop: int, new: list[Segment]) -> None:
        """Segments `start` to `stop` give way to others with the same live messages."""

    def __hash__(self) -> int:
        """Tell subqueues apart by identity."""
