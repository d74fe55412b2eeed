"""The partitions that a name stands for; and those that a transaction goes by, where there are more by now.

What a transaction sends again has to come to the partitions where it went first, though others were added meanwhile.
So a transaction goes by those that a topic had when it began:

    topic.growth      (5, 2)     (9, 3)        (number of the next new transaction, partitions before)
    transaction     …4 │ 5 6 7 8 │ 9 10…
    goes by          2 │    3    │ all

Gateways hear of added partitions once their shards have them. A transaction that begins in between goes by those of
before, which it notes (`growing`).
"""

from collections.abc import Iterable, Sequence

from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import OpenTransaction, Topic
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


def growth_with(topic: Topic, next_transaction: int, there: Iterable[OpenTransaction]) -> tuple[tuple[int, int], ...]:
    """The growth of a topic that gets partitions now, as far as one of the undecided transactions needs it."""
    growth = (*topic.growth, (next_transaction, len(topic.partitions)))
    needed = {_met(growth, each.number) for each in there if each.vhost == topic.vhost}
    return tuple([grown for grown in growth if grown in needed])


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
