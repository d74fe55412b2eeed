"""Writing definitions, in the shape of RabbitMQ's tools (https://www.rabbitmq.com/docs/definitions).

Definitions hold what is durable: virtual hosts, users, permissions, policies, parameters, topics, exchanges, queues and
bindings.
Exclusive queues and the exchanges that every virtual host has are left out, and so are the parts of topics, which come
with them.
"""

from typing import Final

from shardmq.definitions.parameters import exported_parameter
from shardmq.definitions.policies import exported_parameters, exported_policies, exported_topic_permissions
from shardmq.definitions.rows import Row, binding_row, exchange_row, permission_row, topic_row
from shardmq.topology.entities import Binding, Exchange, Queue, Topic
from shardmq.topology.passwords import algorithm_of, check_hash, from_rabbitmq, to_rabbitmq
from shardmq.topology.topology import Topology
from shardmq.version import VERSION

RABBITMQ_VERSION: Final = "3.13.0"
"""The version of RabbitMQ whose shape is written. RabbitMQ's importer looks for it."""

OUR_ALGORITHM: Final = "shardmq_scrypt"
"""The `hashing_algorithm` of passwords that were set here. RabbitMQ does not know it; passwords have to be set anew
there."""

VHOST_LIMITS: Final = ("vhost-limits", "limits")
"""Component and name of the parameter with the limits of a virtual host."""


def shown_hash(stored: str) -> tuple[str, str]:
    """The `password_hash` and `hashing_algorithm` of a user with this stored hash."""
    return to_rabbitmq(stored) or (stored, OUR_ALGORITHM)


def stored_hash(password_hash: str, algorithm: str | None = None) -> str:
    """The stored hash of a user with this `password_hash` and `hashing_algorithm`.

    Args:
        password_hash: "" lets nobody in by password.
        algorithm: None where it is not given; the size of the hash tells it then.

    Raises:
        InvalidRequest: no password could be verified with it.
    """
    if "$" in password_hash or algorithm == OUR_ALGORITHM:
        check_hash(password_hash)
        return password_hash
    return from_rabbitmq(password_hash, algorithm_of(password_hash) if algorithm is None else algorithm)


def export(topology: Topology) -> Row:
    """All that is durable, in the shape of RabbitMQ's definitions."""
    exchanges = [each for each in topology.exchanges.values() if _is_exported_exchange(topology, each)]
    queues = [queue for queue in topology.queues.values() if _is_exported_queue(topology, queue)]
    bindings = [binding for binding in topology.bindings.values() if _is_exported_binding(topology, binding)]
    return {
        "product_name": "shardmq",
        "product_version": VERSION,
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "users": [_user(topology, name) for name in topology.users],
        "vhosts": [_vhost(topology, name) for name in topology.vhosts],
        "permissions": [permission_row(each) for each in topology.permissions.values()],
        "topic_permissions": exported_topic_permissions(topology),
        "parameters": [
            *exported_parameters(topology),
            *map(exported_parameter, topology.parameters),
            *(
                {"component": VHOST_LIMITS[0], "name": VHOST_LIMITS[1], "vhost": vhost.name, "value": vhost.limits}
                for vhost in topology.vhosts.values()
                if vhost.limits
            ),
        ],
        "global_parameters": [],
        "policies": exported_policies(topology),
        "topics": [_topic(topic) for topic in topology.topics.values()],
        "queues": [_queue(queue) for queue in queues],
        "exchanges": [exchange_row(exchange) for exchange in exchanges],
        "bindings": [binding_row(binding) for binding in bindings],
    }


def _user(topology: Topology, name: str) -> Row:
    user = topology.users[name]
    password_hash, algorithm = shown_hash(user.password)
    return {
        "name": name,
        "password_hash": password_hash,
        "hashing_algorithm": algorithm,
        "tags": list(user.tags),
        "limits": user.limits,
    }


def _vhost(topology: Topology, name: str) -> Row:
    vhost = topology.vhosts[name]
    about = {"description": vhost.description, "tags": list(vhost.tags)}
    return {"name": name, **about, "limits": [], "metadata": about}


def _queue(queue: Queue) -> Row:
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue.arguments.get("x-queue-type", "classic"),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def _topic(topic: Topic) -> Row:
    return {name: value for name, value in topic_row(topic).items() if name != "epoch"}


def _is_exported_exchange(topology: Topology, exchange: Exchange) -> bool:
    is_topics = (exchange.vhost, exchange.name) in topology.topics
    return exchange.durable and not exchange.name.startswith("amq.") and not is_topics


def _is_exported_queue(topology: Topology, queue: Queue) -> bool:
    return queue.durable and not queue.owner and topology.topic_of(queue.id) is None


def _is_exported_binding(topology: Topology, binding: Binding) -> bool:
    """Whether both ends are durable. Exchanges of the broker count: every virtual host has them."""
    if (binding.vhost, binding.exchange) in topology.topics:
        return False
    if not topology.exchanges[binding.vhost, binding.exchange].durable:
        return False
    end = binding.vhost, binding.destination
    if binding.to_exchange:
        return topology.exchanges[end].durable
    queue = topology.queues[end]
    return queue.durable and not queue.owner
