"""Definitions as RabbitMQ's tools write and read them: https://www.rabbitmq.com/docs/definitions. Here: writing them.

What is in them is what is durable: virtual hosts, users, permissions, exchanges, queues and bindings that are not the
broker's own nor a connection's.
"""

import base64
import binascii
from typing import Final

from shardmq.definitions.rows import Row, binding_row, exchange_row, permission_row
from shardmq.errors import InvalidRequest
from shardmq.topology.entities import Binding, Exchange, Queue
from shardmq.topology.passwords import check_hash, from_rabbitmq, to_rabbitmq
from shardmq.topology.topology import Topology
from shardmq.version import VERSION

RABBITMQ_VERSION: Final = "3.13.0"
"""Whose shape it is. RabbitMQ's own importer looks for it."""

OUR_ALGORITHM: Final = "shardmq_scrypt"
"""`hashing_algorithm` of passwords that were set here. RabbitMQ does not know it: set those passwords anew there."""

VHOST_LIMITS: Final = ("vhost-limits", "limits")
"""Component and name of the parameter in which RabbitMQ's definitions have a virtual host's limits."""


def shown_hash(stored: str) -> tuple[str, str]:
    """A user's `password_hash` and `hashing_algorithm`."""
    return to_rabbitmq(stored) or (stored, OUR_ALGORITHM)


def stored_hash(password_hash: str, algorithm: str | None = None) -> str:
    """The other way round: what is kept of a user.

    Args:
        password_hash: "" lets nobody in by password.
        algorithm: the user's `hashing_algorithm`; None where it is not said, and shows.

    Raises:
        InvalidRequest: nothing that a password could be verified with.
    """
    if "$" in password_hash or algorithm == OUR_ALGORITHM:
        check_hash(password_hash)
        return password_hash
    if algorithm is not None:
        return from_rabbitmq(password_hash, algorithm)
    try:
        size = len(base64.b64decode(password_hash, validate=True))
    except (binascii.Error, ValueError) as fault:
        raise InvalidRequest(f"no password hash that is known here: {fault}") from fault
    return from_rabbitmq(password_hash, f"rabbit_password_hashing_{'sha512' if size > 36 else 'sha256'}")


def export(topology: Topology) -> Row:
    """All that is durable, in the shape of RabbitMQ's definitions."""
    exchanges = [exchange for exchange in topology.exchanges.values() if _is_exported_exchange(exchange)]
    queues = [queue for queue in topology.queues.values() if queue.durable and not queue.owner]
    bindings = [binding for binding in topology.bindings.values() if _is_exported_binding(topology, binding)]
    return {
        "product_name": "shardmq",
        "product_version": VERSION,
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "users": [_user(topology, name) for name in topology.users],
        "vhosts": [_vhost(topology, name) for name in topology.vhosts],
        "permissions": [permission_row(each) for each in topology.permissions.values()],
        "topic_permissions": [],
        "parameters": [
            {"component": VHOST_LIMITS[0], "name": VHOST_LIMITS[1], "vhost": vhost.name, "value": vhost.limits}
            for vhost in topology.vhosts.values()
            if vhost.limits
        ],
        "global_parameters": [],
        "policies": [],
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
    said = {"description": vhost.description, "tags": list(vhost.tags)}
    return {"name": name, **said, "limits": [], "metadata": said}


def _queue(queue: Queue) -> Row:
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue.arguments.get("x-queue-type", "classic"),
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def _is_exported_exchange(exchange: Exchange) -> bool:
    return exchange.durable and not exchange.name.startswith("amq.")


def _is_exported_binding(topology: Topology, binding: Binding) -> bool:
    """Both its ends are durable; the broker's own exchanges are at every birth of a virtual host."""
    if not topology.exchanges[binding.vhost, binding.exchange].durable:
        return False
    end = binding.vhost, binding.destination
    if binding.to_exchange:
        return topology.exchanges[end].durable
    queue = topology.queues[end]
    return queue.durable and not queue.owner
