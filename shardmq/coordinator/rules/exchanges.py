"""What commands on exchanges and bindings change, or why they are refused."""

from shardmq.coordinator.rules.equivalence import check_same
from shardmq.errors import AccessRefused, InvalidRequest, PreconditionFailed, ReplyCode
from shardmq.limits import NAME_BYTES_MAX
from shardmq.topology.arguments import check_exchange_arguments
from shardmq.topology.binding_ids import binding_id
from shardmq.topology.cascade import cascade
from shardmq.topology.changes import BindingAdded, Change, ExchangeAdded
from shardmq.topology.commands import Bind, DeclareExchange, DeleteExchange, Unbind
from shardmq.topology.entities import DEFAULT_EXCHANGE, PARTITION_EXCHANGE, Binding, Exchange, check_name_free
from shardmq.topology.exchanges import TYPES
from shardmq.topology.topology import Topology


def declare_exchange(topology: Topology, command: DeclareExchange) -> list[Change]:
    """Add an exchange; nothing changes where the same one exists."""
    thing = f"exchange '{command.name}' in vhost '{command.vhost}'"
    if command.name == DEFAULT_EXCHANGE:
        raise AccessRefused("the default exchange is always there; it cannot be declared")
    if command.type not in TYPES:
        known = ", ".join(TYPES)
        raise InvalidRequest(
            f"unknown exchange type '{command.type}' for {thing}; known are {known}", ReplyCode.COMMAND_INVALID
        )
    check_exchange_arguments(thing, command.type, command.arguments)
    asked = Exchange(
        command.vhost,
        command.name,
        command.type,
        command.durable,
        command.arguments,
        command.auto_delete,
        command.internal,
    )
    there = topology.exchanges.get((command.vhost, command.name))
    if there is None and command.type == PARTITION_EXCHANGE:
        raise PreconditionFailed(f"cannot declare {thing} by itself: topics have such exchanges; declare a topic")
    if there is None:
        check_name_free("exchange", command.name)
        return [ExchangeAdded(asked)]
    check_same(thing, _comparable(asked), _comparable(there))
    return []


def delete_exchange(topology: Topology, command: DeleteExchange) -> list[Change]:
    """Delete an exchange with the bindings from it and to it."""
    if command.name == DEFAULT_EXCHANGE:
        raise AccessRefused("the default exchange cannot be deleted")
    if command.name.startswith("amq."):
        raise AccessRefused(f"exchange '{command.name}' belongs to the broker and cannot be deleted")
    exchange = topology.exchange(command.vhost, command.name)
    if (command.vhost, command.name) in topology.topics:
        raise PreconditionFailed(f"exchange '{command.name}' in vhost '{command.vhost}' is a topic's; delete the topic")
    if command.if_unused and topology.binding_count(command.vhost, command.name):
        raise PreconditionFailed(f"exchange '{command.name}' in vhost '{command.vhost}' in use")
    return cascade(topology, exchanges=[exchange])


def bind(topology: Topology, command: Bind) -> list[Change]:
    """Add a binding; nothing changes where the same one exists."""
    binding = _binding(topology, command)
    if binding_id(binding) in topology.bindings:
        return []
    TYPES[topology.exchange(command.vhost, command.exchange).type].check_binding(command.key, command.arguments)
    return [BindingAdded(binding)]


def unbind(topology: Topology, command: Unbind) -> list[Change]:
    """Delete a binding where it exists, and an auto-delete exchange with its last binding."""
    found = topology.bindings.get(binding_id(_binding(topology, command)))
    topic = topology.topics.get((command.vhost, command.exchange))
    if topic is not None and not command.to_exchange:
        queue = topology.queue(command.vhost, command.destination)
        if topology.topic_of(queue.id) is topic:
            # whatever key and arguments are named: a binding that is not there would be unbound with an OK
            raise PreconditionFailed(
                f"queue '{queue.name}' in vhost '{queue.vhost}' is a partition of topic '{topic.name}' and stays bound "
                "to its exchange; delete the topic"
            )
    return cascade(topology, bindings=[found]) if found is not None else []


def _binding(topology: Topology, command: Bind | Unbind) -> Binding:
    if command.exchange == DEFAULT_EXCHANGE:
        raise AccessRefused("operation not permitted on the default exchange; it routes to every queue by its name")
    if command.to_exchange and command.destination == DEFAULT_EXCHANGE:
        raise AccessRefused("operation not permitted on the default exchange; nothing can be bound to it")
    topology.exchange(command.vhost, command.exchange)
    if command.to_exchange:
        topology.exchange(command.vhost, command.destination)
    else:
        topology.queue(command.vhost, command.destination)
    if len(command.key.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise InvalidRequest(f"binding key '{command.key[:32]}…' is over {NAME_BYTES_MAX} bytes of UTF-8")
    return Binding(
        command.vhost, command.exchange, command.destination, command.key, command.arguments, command.to_exchange
    )


def _comparable(exchange: Exchange) -> dict[str, object]:
    return {
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        **exchange.arguments,
    }
