"""Routes by shard, remembered."""

from collections.abc import Sequence
from typing import Final

from shardmq.gateway.links.shard import ShardLink
from shardmq.topology.arguments import QueueArguments
from shardmq.topology.entities import Queue

PLANS_MAX: Final = 65_536
"""Routes remembered; past it they are forgotten all at once, which costs less than keeping their order of use."""


class Route(tuple[tuple[ShardLink, tuple[int, ...]], ...]):
    """Where a publish goes: shards, and the queues there.

    Attributes:
        levels: the highest priority that counts in one of the queues, 0 where none has any.
        sorts: whether every queue orders what it gets by priority, and takes all of it.
    """

    levels: int
    sorts: bool

    @staticmethod
    def to(queues: Sequence[Queue], links: Sequence[ShardLink]) -> "Route":
        """The way to some queues."""
        by_shard: dict[int, list[int]] = {}
        for queue in queues:
            by_shard.setdefault(queue.shard, []).append(queue.id)
        plan = Route((links[shard], tuple(numbers)) for shard, numbers in by_shard.items())
        terms = [QueueArguments.of(queue.arguments) for queue in queues if queue.arguments]
        plan.levels = max([each.max_priority or 0 for each in terms], default=0)
        plan.sorts = len(terms) == len(queues) and all(
            each.max_priority is not None and each.overflow == "drop-head" for each in terms
        )
        return plan
