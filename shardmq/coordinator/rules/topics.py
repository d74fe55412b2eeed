"""What commands on topics change, or why they are refused.

A topic is declared in one command with all that belongs to it: a queue for each partition, an exchange, and a binding
between the exchange and each queue. What a coordinator's store has lost of it, and the shards have kept, is taken again
when the topic is declared again: the queues say which topic they are of.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from xxhash import xxh3_64_intdigest

from shardmq.coordinator.rules.equivalence import check_same
from shardmq.coordinator.rules.queues import QueuePlacement, check_limit
from shardmq.errors import InvalidRequest, PreconditionFailed
from shardmq.topology.arguments import OF_TOPIC, PARTITIONER, TOPIC_ARGUMENTS, check_arguments, exchange_arguments
from shardmq.topology.binding_ids import binding_id
from shardmq.topology.cascade import cascade
from shardmq.topology.changes import BindingAdded, Change, ExchangeAdded, QueueAdded, TopicPut, TopicRemoved
from shardmq.topology.commands import DeclareTopic, DeleteTopic, ExtendTopic
from shardmq.topology.entities import (
    PARTITION_EXCHANGE,
    PARTITIONS_MAX,
    Binding,
    Exchange,
    Queue,
    Topic,
    check_name_free,
    partition_name,
)
from shardmq.topology.partitions import growth_with
from shardmq.topology.topology import Topology

PARTITION_ORDER: Final = "x-stream-partition-order"
"""The argument of a partition's binding that has its number, as bindings of RabbitMQ's super streams have."""

T = TypeVar("T", Queue, Exchange)


def declare_topic(topology: Topology, command: DeclareTopic, places: QueuePlacement) -> list[Change]:
    """Add a topic with all that belongs to it; nothing changes where the same one exists."""
    vhost, name = command.vhost, command.name
    thing = f"topic '{name}' in vhost '{vhost}'"
    there = topology.topics.get((vhost, name))
    _check_count(thing, command.partitions)
    check_arguments(thing, command.arguments, TOPIC_ARGUMENTS)
    if there is not None:
        check_same(thing, _comparable(command.partitions, command.arguments), _comparable_to(there))
        return []
    check_name_free("topic", name)
    check_name_free("topic", partition_name(name, command.partitions - 1))
    known = exchange_arguments(PARTITION_EXCHANGE)
    arguments = {key: value for key, value in command.arguments.items() if key in known}
    exchange = Exchange(vhost, name, PARTITION_EXCHANGE, True, arguments)
    found = _checked_free(thing, "exchange", topology.exchanges.get((vhost, name)), exchange)
    added: list[Change] = [] if found is not None else [ExchangeAdded(exchange)]
    return added + _partitions_added(topology, Topic(vhost, name, (), command.arguments, 0), command.partitions, places)


def extend_topic(topology: Topology, command: ExtendTopic, places: QueuePlacement) -> list[Change]:
    """Add partitions; nothing changes where there are as many. They are never removed: their messages would be lost."""
    topic = topology.topic(command.vhost, command.name)
    thing = f"topic '{topic.name}' in vhost '{topic.vhost}'"
    _check_count(thing, command.partitions)
    count = len(topic.partitions)
    if command.partitions < count:
        raise PreconditionFailed(
            f"{thing} has {count} partitions, which cannot become {command.partitions}: they are added, never removed"
        )
    check_name_free("topic", partition_name(topic.name, command.partitions - 1))
    return _partitions_added(topology, topic, command.partitions, places) if command.partitions > count else []


def delete_topic(topology: Topology, command: DeleteTopic) -> list[Change]:
    """Delete a topic with all that belongs to it."""
    topic = topology.topic(command.vhost, command.name)
    exchange = topology.exchanges.get((topic.vhost, topic.name))
    exchanges = [exchange] if exchange is not None else []  # a repair of the store may have deleted its row
    removed = cascade(topology, queues=_queues_of(topology, topic), exchanges=exchanges)
    return [TopicRemoved(topic.vhost, topic.name), *removed]


def _queues_of(topology: Topology, topic: Topic) -> Iterable[Queue]:
    found = (topology.queue_by_id(queue) for queue in topic.partitions)
    return [queue for queue in found if queue is not None]


def _partitions_added(topology: Topology, topic: Topic, count: int, places: QueuePlacement) -> list[Change]:
    """The changes that bring a topic to so many partitions; shards take turns, so they differ by one at most."""
    vhost, name = topic.vhost, topic.name
    thing = f"topic '{name}' in vhost '{vhost}'"
    arguments = _partition_arguments(topic)
    first_shard = xxh3_64_intdigest(f"{vhost}\0{name}".encode())
    changes: list[Change] = []
    queues: list[Queue] = []
    next_queue = places.next_queue
    for number in range(len(topic.partitions), count):
        shard = (first_shard + number) % places.shards
        queue = Queue(vhost, partition_name(name, number), next_queue, shard, True, arguments)
        found = _checked_free(thing, "queue", topology.queues.get((vhost, queue.name)), queue)
        if found is None:
            next_queue += 1
            changes.append(QueueAdded(queue))
        queues.append(found or queue)
    check_limit(topology, vhost, f"topic '{name}'", len(changes), places)
    for number, queue in enumerate(queues, len(topic.partitions)):
        binding = Binding(vhost, name, queue.name, str(number), {PARTITION_ORDER: number})
        if binding_id(binding) not in topology.bindings:
            changes.append(BindingAdded(binding))
    partitions = (*topic.partitions, *[queue.id for queue in queues])
    growth = growth_with(topic, places.next_transaction) if topic.partitions else ()
    return [*changes, TopicPut(Topic(vhost, name, partitions, topic.arguments, topic.epoch + 1, growth))]


def _partition_arguments(topic: Topic) -> dict[str, Any]:
    limits = {name: value for name, value in topic.arguments.items() if name.startswith("x-max-")}
    return {"x-queue-type": "stream", **limits, OF_TOPIC: topic.name}


def _checked_free(thing: str, kind: str, there: T | None, wanted: T) -> T | None:
    """What is there already, where it belongs to this topic; None where the name is free.

    Raises:
        PreconditionFailed: something else has the name.
    """
    if there is None:
        return None
    own = (there.arguments, there.type) if isinstance(there, Exchange) else there.arguments
    asked = (wanted.arguments, wanted.type) if isinstance(wanted, Exchange) else wanted.arguments
    if own != asked:
        raise PreconditionFailed(
            f"cannot declare {thing}: there is {kind} '{there.name}', which is not the topic's; delete it, or choose "
            "another name for the topic"
        )
    return there


def _check_count(thing: str, partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidRequest(f"{thing} cannot have {partitions} partitions; give it 1 to {PARTITIONS_MAX}")


def _comparable_to(topic: Topic) -> dict[str, Any]:
    return _comparable(len(topic.partitions), topic.arguments)


def _comparable(partitions: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """What a declaration must repeat."""
    return {"partitions": partitions, PARTITIONER: "key", **arguments}
