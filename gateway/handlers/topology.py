"""Exchanges, queues and bindings: permissions, then commands for the coordinator.

The permissions each needs are RabbitMQ's: https://www.rabbitmq.com/docs/access-control#authorisation
"""

import base64
import secrets
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.errors import AccessRefused
from shardmq.gateway.handlers.replies import done, shaped
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from shardmq.topology.arguments import SERVER_NAMED
from shardmq.topology.commands import Bind, DeclareExchange, DeclareQueue, DeleteExchange, Unbind
from shardmq.topology.entities import DEFAULT_EXCHANGE
from shardmq.topology.policies.keys import ALTERNATE
from shardmq.topology.repeats import is_repeated

SERVER_NAME_BYTES: Final = 16
"""Random bytes in the name of a queue whose client gave none: 22 characters."""


def exchange_declare(channel: Channel, operation: ExchangeDeclare, reply: Reply) -> None:
    """Declare an exchange; or with `passive` see whether it exists.

    Raises:
        AccessRefused: the default exchange, or not permitted.
        NotFound: it was asked for passively, and is not there.
    """
    client, name = channel.client, operation.exchange
    _not_default(name, "declared")
    if operation.passive:
        client.state.topology.exchange(client.vhost, name)
        reply(None)
        return
    client.permissions.check_configure(name, "exchange")
    alternate = operation.arguments.get(ALTERNATE)
    if isinstance(alternate, str) and (client.vhost, name) not in client.state.topology.exchanges:
        client.permissions.check_read(name, "exchange")
        client.permissions.check_write(alternate, "exchange")
    command = DeclareExchange(
        client.vhost,
        name,
        operation.type,
        operation.durable,
        operation.arguments,
        operation.auto_delete,
        operation.internal,
    )
    _perform(client, command, reply)


def exchange_delete(channel: Channel, operation: ExchangeDelete, reply: Reply) -> None:
    """Delete an exchange.

    Raises:
        AccessRefused: the default exchange, or not permitted.
    """
    client = channel.client
    _not_default(operation.exchange, "deleted")
    client.permissions.check_configure(operation.exchange, "exchange")
    client.perform(DeleteExchange(client.vhost, operation.exchange, operation.if_unused), done(reply))


def queue_declare(channel: Channel, operation: QueueDeclare, reply: Reply) -> None:
    """Declare a queue; or with `passive` count what is in it.

    Raises:
        AccessRefused: not permitted.
        NotFound: it was asked for passively, and is not there.
        ResourceLocked: it is exclusive to another connection.
    """
    client, name = channel.client, operation.queue
    there = client.state.topology.queues.get((client.vhost, name))
    shape = shaped(reply, lambda counts: {"queue": name, "messages": counts[0], "consumers": counts[1]})
    if operation.passive:
        client.count(client.queue(name), shape)
        return
    client.state.traffic.churn["queues_declared"] += 1
    server_named = not name
    if server_named:
        name = SERVER_NAMED + base64.urlsafe_b64encode(secrets.token_bytes(SERVER_NAME_BYTES)).decode().rstrip("=")
    client.permissions.check_configure(name, "queue")
    if there is not None and not client.is_elsewhere(there):  # else the coordinator knows whether its owner lives
        client.queue(name)
    else:
        client.permissions.check_dead_letters(name, operation.arguments)
    owner = client.identity if operation.exclusive else ""
    command = DeclareQueue(
        client.vhost, name, operation.durable, operation.arguments, operation.auto_delete, owner, server_named
    )
    client.declare_queue(command, shape)


def queue_delete(channel: Channel, operation: QueueDelete, reply: Reply) -> None:
    """Delete a queue; the result is how many messages that were ready went with it.

    Raises:
        AccessRefused: not permitted.
        ResourceLocked: it is exclusive to another connection.
        NotFound: it is not there.
    """
    client = channel.client
    client.permissions.check_configure(operation.queue, "queue")
    queue = client.queue(operation.queue)
    client.delete_queue(
        queue, operation.if_unused, operation.if_empty, shaped(reply, lambda messages: {"messages": messages})
    )


def queue_bind(channel: Channel, operation: QueueBind, reply: Reply, *, any_key: bool = False) -> None:
    """Bind a queue to an exchange; with `any_key` also by keys that have no sensible meaning there.

    Raises:
        AccessRefused: the default exchange, or not permitted.
        NotFound: one of them is not there.
        ResourceLocked: the queue is exclusive to another connection.
        InvalidRequest: the key has no sensible meaning for that exchange.
    """
    client = channel.client
    _check_ends(client, "queue", operation.queue, operation.exchange, operation.routing_key)
    client.state.topology.exchange(client.vhost, operation.exchange)
    client.queue(operation.queue)
    if not any_key:
        client.state.topology.check_binding_key(client.vhost, operation.exchange, operation.routing_key)
    command = Bind(client.vhost, operation.exchange, operation.queue, operation.routing_key, operation.arguments)
    _perform(client, command, reply)


def queue_unbind(channel: Channel, operation: QueueUnbind, reply: Reply) -> None:
    """Unbind a queue from an exchange.

    Raises:
        AccessRefused: the default exchange, or not permitted.
        NotFound: no such queue.
        ResourceLocked: the queue is exclusive to another connection.
    """
    client = channel.client
    _check_ends(client, "queue", operation.queue, operation.exchange, operation.routing_key)
    client.queue(operation.queue)
    command = Unbind(client.vhost, operation.exchange, operation.queue, operation.routing_key, operation.arguments)
    client.perform(command, done(reply))


def exchange_bind(channel: Channel, operation: ExchangeBind, reply: Reply, *, any_key: bool = False) -> None:
    """Bind an exchange to another.

    Raises:
        AccessRefused: the default exchange, or not permitted.
        NotFound: one of them is not there.
        InvalidRequest: the key has no sensible meaning for that exchange.
    """
    client = channel.client
    _not_default(operation.destination, "bound")
    _check_ends(client, "exchange", operation.destination, operation.source, operation.routing_key)
    client.state.topology.exchange(client.vhost, operation.source)
    client.state.topology.exchange(client.vhost, operation.destination)
    if not any_key:
        client.state.topology.check_binding_key(client.vhost, operation.source, operation.routing_key)
    command = Bind(
        client.vhost,
        operation.source,
        operation.destination,
        operation.routing_key,
        operation.arguments,
        to_exchange=True,
    )
    _perform(client, command, reply)


def exchange_unbind(channel: Channel, operation: ExchangeUnbind, reply: Reply) -> None:
    """Unbind an exchange from another.

    Raises:
        AccessRefused: the default exchange, or not permitted.
    """
    client = channel.client
    _not_default(operation.destination, "unbound")
    _check_ends(client, "exchange", operation.destination, operation.source, operation.routing_key)
    command = Unbind(
        client.vhost,
        operation.source,
        operation.destination,
        operation.routing_key,
        operation.arguments,
        to_exchange=True,
    )
    client.perform(command, done(reply))


def _perform(client: Client, command: DeclareExchange | Bind, reply: Reply) -> None:
    """Have a command carried out, unless what it asks for is there already."""
    if client.state.coordinator.is_promised and is_repeated(client.state.topology, command):
        reply(None)
    else:
        client.perform(command, done(reply))


def _check_ends(client: Client, kind: str, destination: str, source: str, key: str) -> None:
    client.permissions.check_write(destination, kind)
    _not_default(source, "bound to, nor unbound from, anything by hand")
    client.permissions.check_read(source, "exchange")
    client.permissions.check_topic("read", source, key)


def _not_default(exchange: str, what: str) -> None:
    if exchange == DEFAULT_EXCHANGE:
        raise AccessRefused(f"the default exchange cannot be {what}; it always routes to every queue by its name")


REQUESTS: Final[dict[type[Any], Any]] = {
    ExchangeDeclare: exchange_declare,
    ExchangeDelete: exchange_delete,
    QueueDeclare: queue_declare,
    QueueDelete: queue_delete,
    QueueBind: queue_bind,
    QueueUnbind: queue_unbind,
    ExchangeBind: exchange_bind,
    ExchangeUnbind: exchange_unbind,
}
