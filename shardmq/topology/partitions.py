"""The partitions that a name stands for."""

from shardmq.topology.arguments import is_stream
from shardmq.topology.topology import Topology


def partitions_of(topology: Topology, vhost: str, topic: str) -> tuple[int, ...] | None:
    """The ids of the queues that a topic consists of, in order; None where there is no such topic.

    A stream is a topic of one partition.
    """
    there = topology.topics.get((vhost, topic))
    if there is not None:
        return there.partitions
    queue = topology.queues.get((vhost, topic))
    return (queue.id,) if queue is not None and is_stream(queue.arguments) else None
