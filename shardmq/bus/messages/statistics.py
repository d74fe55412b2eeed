"""Statistics of queues, asked of shards."""

from typing import Any, ClassVar

from shardmq.bus.messages.base import Request


class RankQueues(Request[list[tuple[int, float]]], frozen=True, tag=112):
    """Find those of these queues that come first by a column. Answer: their ids with the values, in that order.

    Attributes:
        queues: their ids; those that are not here are left out.
        column: "ready", "unacked", …, or "counts." or "rates." and the name of a counter.
        reverse: whether the largest come first.
        count: how many at most.
    """

    only_reads: ClassVar[bool] = True

    queues: list[int]
    column: str
    reverse: bool
    count: int


class QueueStatistics(Request[list[dict[str, Any]]], frozen=True, tag=113):
    """Describe these queues. Answer: a table for each that is here.

    Attributes:
        queues: their ids.
        is_detailed: whether their consumers are to be told of, too.
    """

    only_reads: ClassVar[bool] = True

    queues: list[int]
    is_detailed: bool = False


class ShardStatistics(Request[dict[str, Any]], frozen=True, tag=114):
    """Describe the shard: its vitals, what its queues have together by virtual host, and what it measures.

    Attributes:
        is_detailed: whether its histograms are to be told of, too.
    """

    only_reads: ClassVar[bool] = True

    is_detailed: bool = False
