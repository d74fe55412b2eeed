"""Requests about exchanges, queues and bindings, as values."""

from shardmq.client.api.results import (
    QueueDeclared,
    result_of,
)
from shardmq.client.core.requests.request import Arguments, Request, counted, nothing
from shardmq.client.core.validation import check_names, table
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)


def _declared(result: object) -> QueueDeclared:
    return result_of(QueueDeclared, result)


def exchange_declare(
    exchange: str,
    exchange_type: str,
    durable: bool,
    arguments: Arguments,
    auto_delete: bool,
    internal: bool,
    passive: bool,
) -> Request[None]:
    """Declare an exchange."""
    check_names(exchange=exchange, exchange_type=exchange_type)
    return Request(
        f"declaring exchange '{exchange}'",
        nothing,
        ExchangeDeclare(
            0, 0, exchange, exchange_type, durable, table("arguments", arguments), auto_delete, internal, passive
        ),
    )


def exchange_delete(exchange: str, if_unused: bool) -> Request[None]:
    """Delete an exchange."""
    check_names(exchange=exchange)
    return Request(f"deleting exchange '{exchange}'", nothing, ExchangeDelete(0, 0, exchange, if_unused))


def exchange_bind(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Bind an exchange to an exchange."""
    check_names(destination=destination, source=source, routing_key=routing_key)
    return Request(
        f"binding exchange '{destination}' to exchange '{source}'",
        nothing,
        ExchangeBind(0, 0, destination, source, routing_key, table("arguments", arguments)),
    )


def exchange_unbind(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Remove a binding."""
    check_names(destination=destination, source=source, routing_key=routing_key)
    return Request(
        f"unbinding exchange '{destination}' from exchange '{source}'",
        nothing,
        ExchangeUnbind(0, 0, destination, source, routing_key, table("arguments", arguments)),
    )


def queue_declare(
    queue: str, durable: bool, arguments: Arguments, exclusive: bool, auto_delete: bool, passive: bool
) -> Request[QueueDeclared]:
    """Declare a queue."""
    check_names(queue=queue)
    return Request(
        f"declaring queue '{queue}'",
        _declared,
        QueueDeclare(0, 0, queue, durable, table("arguments", arguments), exclusive, auto_delete, passive),
    )


def queue_delete(queue: str, if_unused: bool, if_empty: bool) -> Request[int]:
    """Delete a queue."""
    check_names(queue=queue)
    return Request(f"deleting queue '{queue}'", counted, QueueDelete(0, 0, queue, if_unused, if_empty))


def queue_bind(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Bind a queue to an exchange."""
    check_names(queue=queue, exchange=exchange, routing_key=routing_key)
    return Request(
        f"binding queue '{queue}' to exchange '{exchange}'",
        nothing,
        QueueBind(0, 0, queue, exchange, routing_key, table("arguments", arguments)),
    )


def queue_unbind(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Remove a binding."""
    check_names(queue=queue, exchange=exchange, routing_key=routing_key)
    return Request(
        f"unbinding queue '{queue}' from exchange '{exchange}'",
        nothing,
        QueueUnbind(0, 0, queue, exchange, routing_key, table("arguments", arguments)),
    )


def queue_purge(queue: str) -> Request[int]:
    """Purge a queue."""
    check_names(queue=queue)
    return Request(f"purging queue '{queue}'", counted, QueuePurge(0, 0, queue))
