"""What a command changes, or why it is refused. RabbitMQ's rules; pure functions of the topology."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from xxhash import xxh3_64_intdigest

from shardmq.commands import (
    Bind,
    BindingAdded,
    BindingRemoved,
    Change,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    ExchangeAdded,
    ExchangeRemoved,
    QueueAdded,
    QueueRemoved,
    Unbind,
    VhostPut,
)
from shardmq.errors import AccessRefused, InvalidRequest, NotFound, PreconditionFailed
from shardmq.limits import NAME_BYTES_MAX
from shardmq.model import DEFAULT_EXCHANGE, PREDECLARED, Binding, Exchange, Queue, Vhost, check_name_free, check_nesting
from shardmq.routing import TYPES
from shardmq.topology import Topology, binding_id

EXCHANGE_ARGUMENTS: Final[Mapping[str, type]] = {}
"""Arguments of exchanges this version knows, with the type of their values."""

QUEUE_ARGUMENTS: Final[Mapping[str, type]] = {}
"""Arguments of queues this version knows, with the type of their values."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the next queue goes.

    Attributes:
        next_queue: the id it gets; ids are never given twice.
        shards: how many there are.
    """

    next_queue: int
    shards: int

    def of(self, vhost: str, name: str) -> int:
        """The shard of a queue's name. Asked once, at declaration; from then on it stands in the queue."""
        return xxh3_64_intdigest(f"{vhost}\0{name}".encode()) % self.shards


def changes_for(topology: Topology, command: Command, places: Places) -> list[Change]:
    """What a command changes; nothing when all is already as it asks.

    Args:
        topology: as it is now; not touched.
        command: what is asked for.
        places: for a queue that is new.

    Raises:
        RequestError: refused; NotFound, PreconditionFailed, AccessRefused, NotAllowed or InvalidRequest.
    """
    topology.check_vhost(command.vhost)
    check_nesting(getattr(command, "arguments", None))
    return _RULES[type(command)](topology, command, places)


def new_vhost(vhost: str) -> list[Change]:
    """A virtual host and the exchanges it is born with."""
    exchanges = [ExchangeAdded(Exchange(vhost, name, kind)) for name, kind in PREDECLARED]
    return [VhostPut(Vhost(vhost)), *exchanges]


def check_arguments(thing: str, arguments: Mapping[str, Any], known: Mapping[str, type]) -> None:
    """Refuse arguments that would be ignored or cannot be meant, so that nobody relies on them in vain.

    Raises:
        PreconditionFailed: unknown, or a value of the wrong type (RabbitMQ's code for it).
    """
    for name, value in arguments.items():
        if name not in known:
            knows = f"knows {', '.join(sorted(known))}" if known else "knows no arguments"
            raise PreconditionFailed(f"invalid arg '{name}' for {thing}: this version {knows}")
        if type(value) is not known[name]:
            raise PreconditionFailed(
                f"invalid arg '{name}' for {thing}: {value!r} is of type {type(value).__name__}, "
                f"{known[name].__name__} is expected"
            )


def _declare_exchange(topology: Topology, command: DeclareExchange, places: Places) -> list[Change]:  # noqa: ARG001
    thing = f"exchange '{command.name}' in vhost '{command.vhost}'"
    if command.name == DEFAULT_EXCHANGE:
        raise AccessRefused("the default exchange is always there; it can not be declared")
    if command.type not in TYPES:
        raise InvalidRequest(f"unknown exchange type '{command.type}' for {thing}; known are {', '.join(TYPES)}")
    check_arguments(thing, command.arguments, EXCHANGE_ARGUMENTS)
    there = topology.exchanges.get((command.vhost, command.name))
    if there is not None:
        _check_same(
            thing,
            {"type": command.type, "durable": command.durable, **command.arguments},
            {"type": there.type, "durable": there.durable, **there.arguments},
        )
        return []
    check_name_free("exchange", command.name)
    return [ExchangeAdded(Exchange(command.vhost, command.name, command.type, command.durable, command.arguments))]


def _delete_exchange(topology: Topology, command: DeleteExchange, places: Places) -> list[Change]:  # noqa: ARG001
    if command.name == DEFAULT_EXCHANGE:
        raise AccessRefused("the default exchange can not be deleted")
    if command.name.startswith("amq."):
        raise AccessRefused(f"exchange '{command.name}' belongs to the broker and can not be deleted")
    if (command.vhost, command.name) not in topology.exchanges:
        raise NotFound(f"no exchange '{command.name}' in virtual host '{command.vhost}'")
    unbound = topology.bindings_of_exchange(command.vhost, command.name)
    return [*map(BindingRemoved, unbound), ExchangeRemoved(command.vhost, command.name)]


def _declare_queue(topology: Topology, command: DeclareQueue, places: Places) -> list[Change]:
    thing = f"queue '{command.name}' in vhost '{command.vhost}'"
    check_arguments(thing, command.arguments, QUEUE_ARGUMENTS)
    there = topology.queues.get((command.vhost, command.name))
    if there is not None:
        _check_same(
            thing,
            {"durable": command.durable, **command.arguments},
            {"durable": there.durable, **there.arguments},
        )
        return []
    check_name_free("queue", command.name)
    shard = places.of(command.vhost, command.name)
    queue = Queue(command.vhost, command.name, places.next_queue, shard, command.durable, command.arguments)
    return [QueueAdded(queue)]


def _delete_queue(topology: Topology, command: DeleteQueue, places: Places) -> list[Change]:  # noqa: ARG001
    if (command.vhost, command.name) not in topology.queues:
        raise NotFound(f"no queue '{command.name}' in virtual host '{command.vhost}'")
    unbound = topology.bindings_of_queue(command.vhost, command.name)
    return [*map(BindingRemoved, unbound), QueueRemoved(command.vhost, command.name)]


def _bind(topology: Topology, command: Bind, places: Places) -> list[Change]:  # noqa: ARG001
    binding = _ends(topology, command, "bound to")
    return [] if binding_id(binding) in topology.bindings else [BindingAdded(binding)]


def _unbind(topology: Topology, command: Unbind, places: Places) -> list[Change]:  # noqa: ARG001
    binding = _ends(topology, command, "unbound from")
    return [BindingRemoved(binding)] if binding_id(binding) in topology.bindings else []


def _ends(topology: Topology, command: Bind | Unbind, verb: str) -> Binding:
    if command.exchange == DEFAULT_EXCHANGE:
        raise AccessRefused(f"queues can not be {verb} the default exchange; it routes to every queue by its name")
    topology.exchange(command.vhost, command.exchange)
    topology.queue(command.vhost, command.destination)
    if len(command.key.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"binding key '{command.key[:32]}…' is over {NAME_BYTES_MAX} bytes of UTF-8")
    return Binding(command.vhost, command.exchange, command.destination, command.key, command.arguments)


def _check_same(thing: str, asked: dict[str, Any], there: dict[str, Any]) -> None:
    """Refuse declaring again with other arguments, in RabbitMQ's words."""
    for name in {**there, **asked}:
        received, current = asked.get(name), there.get(name)
        if type(received) is not type(current) or received != current:
            raise PreconditionFailed(
                f"inequivalent arg '{name}' for {thing}: received {_shown(received)} but current is {_shown(current)}"
            )


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return f"'{str(value).lower() if isinstance(value, bool) else value}'"


_RULES: Final[dict[type[Any], Callable[[Topology, Any, Places], list[Change]]]] = {
    DeclareExchange: _declare_exchange,
    DeleteExchange: _delete_exchange,
    DeclareQueue: _declare_queue,
    DeleteQueue: _delete_queue,
    Bind: _bind,
    Unbind: _unbind,
}
