"""The partitions that a name stands for; and those that a message goes by, where there are more by now.

What is sent again has to come to the partition where it went first, though others were added meanwhile. So a
transaction goes by the partitions that a topic had when it began:

    topic.growth      (5, 2)     (9, 3)        (number of the next new transaction, partitions before)
    transaction     …4 │ 5 6 7 8 │ 9 10…
    goes by          2 │    3    │ all

Gateways hear of added partitions once their shards have them. A transaction that begins in between goes by those of
before, which it notes (`growing`).

A publisher says with each message how much growth it knew of when it sent that first: the id of the first queue that
was added last, to any topic. Ids of queues rise, so each growth has a higher one than those before:

    topic.partitions  11 12 │ 17 │ 23 24       ids; growth 17 and growth 23
    message's growth  0…16      17…22    23…
    goes by           2         3        all   (but 0 is not said, and goes by all)
"""

from collections.abc import Sequence

from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import Topic
from shardmq.topology.router import Router
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


def growth_with(topic: Topic, next_transaction: int) -> tuple[tuple[int, int], ...]:
    """The growth of a topic that gets partitions now."""
    return (*topic.growth, (next_transaction, len(topic.partitions)))


def router_at(topology: Topology, growth: int) -> Router:
    """The routes of messages that were first sent when no more growth was known; until the next change."""
    counts: dict[tuple[str, str], int] = {}
    for name in topology.grown:
        topic = topology.topics[name]
        count = next((count for _, count in topic.growth if topic.partitions[count] > growth), None)
        if count is not None:
            counts[name] = count
    return topology.router.with_partitions(counts) if counts else topology.router


def router_for(topology: Topology, number: int) -> Router:
    """The routes of an undecided transaction; of use until the next change of the topology.

    They are those of everybody where no topic got partitions since it began.
    """
    transaction = topology.transactions.get(number)
    if transaction is None or not (topology.grown or transaction.growing):
        return topology.router
    vhost = transaction.vhost
    grown = [(name, _met(topology.topics[name].growth, number)) for name in topology.grown if name[0] == vhost]
    counts = {name: met[1] for name, met in grown if met is not None}
    counts.update({(vhost, name): partitions for name, partitions in transaction.growing.items()})
    return topology.router.with_partitions(counts) if counts else topology.router


def _met(growth: Sequence[tuple[int, int]], number: int) -> tuple[int, int] | None:
    """The first growth behind the beginning of a transaction; None where there is none."""
    return next((grown for grown in growth if grown[0] > number), None)
