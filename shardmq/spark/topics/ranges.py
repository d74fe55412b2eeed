"""What one Spark task reads: a range of a partition, cut where there are to be more tasks than partitions."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from shardmq.errors import InvalidRequest
from shardmq.limits import SLICES_MAX
from shardmq.spark.options import Options
from shardmq.spark.topics.offsets import Places, TopicPartition


@dataclass(frozen=True)
class TopicRange(InputPartition):
    """Messages [first, end) of a partition.

    Attributes:
        topic: its name.
        number: the partition's.
        first: the offset of the first message.
        end: the offset behind the last one.
        gateway: on the host that led the partition's shard when this was planned, as host:port; "" where unknown.
    """

    topic: str
    number: int
    first: int
    end: int
    gateway: str = ""

    @property
    def partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.number)


def ranges_between(start: Places, end: Places, options: Options) -> list[TopicRange]:
    """The ranges of a batch, empty ones left out, in the order of topics, partitions and offsets.

    Args:
        start: where each partition begins; one that is missing begins at 0.
        end: where each ends.
        options: of the job: into how many tasks the ranges are cut.

    Raises:
        InvalidRequest: so many tasks would be too many.
    """
    whole = [
        TopicRange(*partition, start.get(partition, 0), end[partition])
        for partition in sorted(end)
        if end[partition] > start.get(partition, 0)
    ]
    total = sum(part.end - part.first for part in whole)
    pieces = [_pieces(part, total, len(whole), options) for part in whole]
    if sum(pieces) > max(SLICES_MAX, len(whole)):
        raise InvalidRequest(
            f"{total} messages in tasks of {options.max_records_per_partition} are {sum(pieces)} tasks; Spark is given "
            f"{SLICES_MAX} at most: raise maxRecordsPerPartition"
        )
    return [piece for part, count in zip(whole, pieces, strict=True) for piece in _cut(part, count)]


def _pieces(part: TopicRange, total: int, ranges: int, options: Options) -> int:
    """Into how many pieces a range is cut: its share of minPartitions, and none above maxRecordsPerPartition."""
    size = part.end - part.first
    pieces = 1
    if options.min_partitions > ranges:
        pieces = max(1, round(size / total * options.min_partitions))
    if options.max_records_per_partition:
        pieces = max(pieces, -(-size // options.max_records_per_partition))
    return min(pieces, size)


def _cut(part: TopicRange, pieces: int) -> Sequence[TopicRange]:
    size = part.end - part.first
    edges = [part.first + size * piece // pieces for piece in range(pieces + 1)]
    return [TopicRange(part.topic, part.number, first, end) for first, end in pairwise(edges)]
