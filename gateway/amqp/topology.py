"""Exchanges, queues and bindings, with RabbitMQ's rules in front of the handlers.

What differs from native requests: what is not there may be deleted and unbound; binding keys may be anything; "" is the
queue this channel declared last; arguments that mean nothing to the broker are left out, where native ones are refused.
"""

from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import NotFound, ReplyCode
from shardmq.gateway.amqp import arguments, direct_reply
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.handlers import topology as handlers
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.topology import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from shardmq.protocol.native.operations import topology
from shardmq.topology.entities import DEFAULT_EXCHANGE, check_nesting
from shardmq.topology.exchanges import TYPES

RESERVED: Final = "amq."
"""What names begin with that are the broker's own."""


def exchange_declare(channel: AmqpChannel, method: ExchangeDeclare) -> None:
    """Declare an exchange, or see whether it exists."""
    name = _stripped(method.exchange)
    if method.type not in TYPES and not method.passive:
        raise AmqpError(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{method.type}'", method.id)
    _not_default(name, method)
    operation = topology.ExchangeDeclare(
        0,
        channel.number,
        name,
        method.type,
        durable=method.durable,
        arguments={} if method.passive else arguments.of_exchange(method.type, name, method.arguments),
        auto_delete=method.auto_delete,
        internal=method.internal,
        passive=method.passive,
    )
    handlers.exchange_declare(channel.session_channel, operation, _answered(channel, method, ExchangeDeclareOk()))


def exchange_delete(channel: AmqpChannel, method: ExchangeDelete) -> None:
    """Delete an exchange, if it exists."""
    name = _stripped(method.exchange)
    _not_default(name, method)
    if name.startswith(RESERVED):
        vhost = channel.client.vhost
        text = f"deletion of system exchange '{name}' in vhost '{vhost}' not allowed"
        raise AmqpError(ReplyCode.ACCESS_REFUSED, text, method.id)
    operation = topology.ExchangeDelete(0, channel.number, name, method.if_unused)
    reply = _answered(channel, method, ExchangeDeleteOk())
    handlers.exchange_delete(channel.session_channel, operation, _or_missing(reply, None))


def exchange_bind(channel: AmqpChannel, method: ExchangeBind) -> None:
    """Bind an exchange to another."""
    operation = _exchange_ends(channel, method, topology.ExchangeBind)
    handlers.exchange_bind(
        channel.session_channel, operation, _answered(channel, method, ExchangeBindOk()), any_key=True
    )


def exchange_unbind(channel: AmqpChannel, method: ExchangeUnbind) -> None:
    """Unbind an exchange from another, if it is bound there."""
    operation = _exchange_ends(channel, method, topology.ExchangeUnbind)
    reply = _answered(channel, method, ExchangeUnbindOk())
    handlers.exchange_unbind(channel.session_channel, operation, _or_missing(reply, None))


def _exchange_ends(channel: AmqpChannel, method: ExchangeBind | ExchangeUnbind, operation: Any) -> Any:
    source, destination = _stripped(method.source), _stripped(method.destination)
    channel.client.permissions.check_write(destination, "exchange")
    _not_default(destination, method)
    _not_default(source, method)
    check_nesting(method.arguments)
    return operation(0, channel.number, destination, source, method.routing_key, method.arguments)


def queue_declare(channel: AmqpChannel, method: QueueDeclare) -> None:
    """Declare a queue, or count what is in it."""
    if direct_reply.is_reply_name(method.queue):
        direct_reply.declare(channel, method)
        return
    name = _stripped(method.queue)
    if not method.passive and name.startswith(RESERVED):
        text = f"queue name '{name}' contains reserved prefix 'amq.*'"
        raise AmqpError(ReplyCode.ACCESS_REFUSED, text, method.id)

    def shape(table: dict[str, Any]) -> QueueDeclareOk | None:
        channel.last_queue = table["queue"]
        return None if method.nowait else QueueDeclareOk(table["queue"], table["messages"], table["consumers"])

    operation = topology.QueueDeclare(
        0,
        channel.number,
        name,
        durable=method.durable and not method.exclusive,  # it would not outlive its connection
        arguments={} if method.passive else arguments.of_queue(name, method.arguments),
        passive=method.passive,
        exclusive=method.exclusive,
        auto_delete=method.auto_delete,
    )
    handlers.queue_declare(channel.session_channel, operation, about(channel, name, channel.reply(method, shape)))


def queue_bind(channel: AmqpChannel, method: QueueBind) -> None:
    """Bind a queue to an exchange."""
    operation = _queue_ends(channel, method, topology.QueueBind)
    handlers.queue_bind(channel.session_channel, operation, _answered(channel, method, QueueBindOk()), any_key=True)


def queue_unbind(channel: AmqpChannel, method: QueueUnbind) -> None:
    """Unbind a queue from an exchange, if it is bound there."""
    operation = _queue_ends(channel, method, topology.QueueUnbind)
    reply = _or_missing(channel.reply(method, lambda _: QueueUnbindOk()), None)
    try:
        handlers.queue_unbind(channel.session_channel, operation, reply)
    except NotFound:
        _at_once(channel, QueueUnbindOk())


def queue_purge(channel: AmqpChannel, method: QueuePurge) -> None:
    """Remove the ready messages of a queue."""
    name = queue_name(channel, method.queue, method)
    client = channel.client
    client.permissions.check_read(name, "queue")
    reply = channel.reply(method, lambda messages: None if method.nowait else QueuePurgeOk(messages))
    client.purge(name, about(channel, name, reply))


def queue_delete(channel: AmqpChannel, method: QueueDelete) -> None:
    """Delete a queue, if it exists."""
    if direct_reply.is_reply_name(method.queue):
        direct_reply.delete(channel, method)
        return
    name = queue_name(channel, _stripped(method.queue), method)

    def shape(table: dict[str, Any]) -> QueueDeleteOk | None:
        return None if method.nowait else QueueDeleteOk(table["messages"])

    reply = _or_missing(channel.reply(method, shape), {"messages": 0})
    operation = topology.QueueDelete(0, channel.number, name, method.if_unused, method.if_empty)
    client = channel.client
    client.permissions.check_configure(name, "queue")
    try:
        client.queue(name)
    except NotFound:
        _at_once(channel, None if method.nowait else QueueDeleteOk(0))
        return
    handlers.queue_delete(channel.session_channel, operation, reply)


def _queue_ends(channel: AmqpChannel, method: QueueBind | QueueUnbind, operation: Any) -> Any:
    queue, key = method.queue, method.routing_key
    if not queue:
        queue = queue_name(channel, queue, method)
        key = key or queue
    queue, exchange = _stripped(queue), _stripped(method.exchange)
    channel.client.permissions.check_write(queue, "queue")
    _not_default(exchange, method)
    check_nesting(method.arguments)
    return operation(0, channel.number, queue, exchange, key, method.arguments)


def queue_name(channel: AmqpChannel, name: str, method: Method) -> str:
    """The queue that is meant: "" is the one declared last on this channel.

    Raises:
        AmqpError: none was.
    """
    if not name and not channel.last_queue:
        raise AmqpError(ReplyCode.NOT_FOUND, "no previously declared queue", method.id)
    return name or channel.last_queue


def about(channel: AmqpChannel, queue: str, reply: Reply) -> Reply:
    """A reply that names a queue which is gone: its shard knows only its number."""

    def take(outcome: Outcome) -> None:
        if isinstance(outcome, NotFound):
            outcome = NotFound(f"no queue '{queue}' in vhost '{channel.client.vhost}'")
        reply(outcome)

    return take


def _answered(channel: AmqpChannel, method: Any, answer: Method) -> Reply:
    """The reply to a request without a result."""
    return channel.reply(method, lambda _: None if method.nowait else answer)


def _at_once(channel: AmqpChannel, answer: Method | None) -> None:
    """Answer a request that nobody needs to be asked about."""
    channel.is_waiting = False
    if answer is not None:
        channel.send(answer)


def _or_missing(reply: Reply, result: Any) -> Reply:
    """A reply that has a result also where something is not there."""

    def take(outcome: Outcome) -> None:
        reply(result if isinstance(outcome, NotFound) else outcome)

    return take


def _stripped(name: str) -> str:
    """A name without line breaks, which RabbitMQ removes."""
    return name.replace("\r", "").replace("\n", "")


def _not_default(exchange: str, method: Method) -> None:
    if exchange == DEFAULT_EXCHANGE:
        raise AmqpError(ReplyCode.ACCESS_REFUSED, "operation not permitted on the default exchange", method.id)


HANDLERS: Final[dict[type[Any], Any]] = {
    ExchangeDeclare: exchange_declare,
    ExchangeDelete: exchange_delete,
    ExchangeBind: exchange_bind,
    ExchangeUnbind: exchange_unbind,
    QueueDeclare: queue_declare,
    QueueBind: queue_bind,
    QueueUnbind: queue_unbind,
    QueuePurge: queue_purge,
    QueueDelete: queue_delete,
}
