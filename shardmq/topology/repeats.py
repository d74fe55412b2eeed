"""Whether what a command asks for is there already, exactly so: then the coordinator need not be asked.

Programs declare all they use whenever they start, and nearly always find it. A gateway answers such a declaration from
its replica: whoever was told that something exists, or does not any more, was told so after this replica had heard.
"""

from typing import Any, Final

import msgspec

from shardmq.topology.binding_ids import binding_id
from shardmq.topology.commands import Bind, DeclareExchange, DeclareQueue, DeclareTopic
from shardmq.topology.entities import Binding, Exchange, Queue
from shardmq.topology.topology import Topology


def repeated_queue(topology: Topology, command: DeclareQueue) -> Queue | None:
    """The queue that a declaration repeats; None where there is none, or one that differs."""
    there = topology.queues.get((command.vhost, command.name))
    if there is None or (command.durable, command.auto_delete, command.owner) != (
        there.durable,
        there.auto_delete,
        there.owner,
    ):
        return None
    return there if _is_same(command.arguments, there.arguments) else None


def is_repeated(topology: Topology, command: DeclareExchange | Bind | DeclareTopic) -> bool:
    """Whether an exchange, a binding or a topic is there as the command wants it."""
    if isinstance(command, DeclareTopic):
        topic = topology.topics.get((command.vhost, command.name))
        if topic is None or len(topic.partitions) != command.partitions:
            return False
        return _is_same(command.arguments, topic.arguments)
    if isinstance(command, Bind):
        binding = Binding(
            command.vhost, command.exchange, command.destination, command.key, command.arguments, command.to_exchange
        )
        return binding_id(binding) in topology.bindings
    there = topology.exchanges.get((command.vhost, command.name))
    return there is not None and _shape(command) == _shape(there) and _is_same(command.arguments, there.arguments)


def _shape(exchange: DeclareExchange | Exchange) -> tuple[str, bool, bool, bool]:
    return exchange.type, exchange.durable, exchange.auto_delete, exchange.internal


def _is_same(asked: dict[str, Any], there: dict[str, Any]) -> bool:
    """Whether arguments are the same, types included: to Python, 1 and True are equal."""
    return asked == there and (not asked or _encode_sorted(asked) == _encode_sorted(there))


_encode_sorted: Final = msgspec.msgpack.Encoder(order="sorted").encode
