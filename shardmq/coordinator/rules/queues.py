"""What commands on queues change, or why they are refused; and where a new queue goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from shardmq.coordinator.rules.equivalence import check_same
from shardmq.errors import NotFound, PreconditionFailed, ResourceLocked
from shardmq.topology.arguments import SERVER_NAMED, check_queue_arguments, is_stream
from shardmq.topology.cascade import cascade
from shardmq.topology.changes import Change, QueueAdded
from shardmq.topology.commands import DeclareQueue, DeleteQueue
from shardmq.topology.entities import REPLY_QUEUES, Queue, check_name, check_name_free
from shardmq.topology.topology import Topology

GENERATED: Final = (SERVER_NAMED, REPLY_QUEUES)
"""What queue names begin with that gateways generate."""


@dataclass(frozen=True, slots=True)
class QueuePlacement:
    """The id and the shard of the next new queue, and when in the order of transactions it is declared.

    Attributes:
        next_queue: the id; ids are never given twice.
        shards: how many there are.
        coming: by virtual host, queues that are being declared and not in the topology yet; they count for its limit.
        next_transaction: number of the next new transaction.
    """

    next_queue: int
    shards: int
    coming: Mapping[str, int] = field(default_factory=dict)
    next_transaction: int = 1

    def of(self, vhost: str, name: str) -> int:
        """The shard for a queue's name. It is chosen at the declaration, and stored with the queue."""
        return xxh3_64_intdigest(f"{vhost}\0{name}".encode()) % self.shards


def declare_queue(topology: Topology, command: DeclareQueue, places: QueuePlacement) -> list[Change]:
    """Add a queue; nothing changes where the same one exists."""
    thing = f"queue '{command.name}' in vhost '{command.vhost}'"
    there = topology.queues.get((command.vhost, command.name))
    if there is not None and there.owner != command.owner:
        raise ResourceLocked(
            f"cannot obtain exclusive access to locked {thing}. It could be originally declared on "
            "another connection or the exclusive property value does not match that of the original "
            "declaration."
        )
    check_queue_arguments(thing, command.arguments)
    if there is not None:
        check_same(thing, _comparable(command), _comparable(there))
        return []
    if is_stream(command.arguments):
        _check_stream(thing, command)
    if command.server_named and command.name.startswith(GENERATED):
        check_name("queue", command.name)
    else:
        check_name_free("queue", command.name)
    if not command.name.startswith(REPLY_QUEUES):  # clients do not declare those
        check_limit(topology, command.vhost, f"queue '{command.name}'", 1, places)
    shard = places.of(command.vhost, command.name)
    queue = Queue(
        command.vhost,
        command.name,
        places.next_queue,
        shard,
        command.durable,
        command.arguments,
        command.auto_delete,
        command.owner,
    )
    return [QueueAdded(queue)]


def delete_queue(topology: Topology, command: DeleteQueue) -> list[Change]:
    """Delete a queue with its bindings. Its shard was asked before whether it is unused or empty."""
    queue = topology.queues.get((command.vhost, command.name))
    if queue is None or command.queue not in (0, queue.id):
        raise NotFound(f"no queue '{command.name}' in vhost '{command.vhost}'")
    topic = topology.topic_of(queue.id)
    if topic is not None:
        raise PreconditionFailed(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is a partition of topic '{topic.name}'; delete the topic"
        )
    return cascade(topology, queues=[queue])


def _check_stream(thing: str, command: DeclareQueue) -> None:
    """Make sure that a stream is durable, and everybody's; the words are RabbitMQ's."""
    if command.server_named:
        raise PreconditionFailed("Cannot declare a server-named queue for type rabbit_stream_queue")
    for is_wrong, what in (
        (command.auto_delete, "auto-delete"),
        (bool(command.owner), "exclusive-owner"),
        (not command.durable, "non-durable"),
    ):
        if is_wrong:
            raise PreconditionFailed(f"invalid property '{what}' for {thing}")


def check_limit(topology: Topology, vhost: str, thing: str, count: int, places: QueuePlacement) -> None:
    """Make sure that a virtual host may have so many queues more.

    Raises:
        PreconditionFailed: its limit would be passed by declaring `thing`.
    """
    limit = topology.vhosts[vhost].limits.get("max-queues")
    if limit is not None and topology.queue_count(vhost) + places.coming.get(vhost, 0) + count > limit:
        raise PreconditionFailed(f"cannot declare {thing}: queue limit in vhost '{vhost}' ({limit}) is reached")


def _comparable(queue: Queue | DeclareQueue) -> dict[str, Any]:
    """The attributes and arguments that a declaration must repeat. The default type is classic, as in RabbitMQ."""
    arguments = {"x-queue-type": "classic", **queue.arguments}
    return {"durable": queue.durable, "auto_delete": queue.auto_delete, **arguments}
