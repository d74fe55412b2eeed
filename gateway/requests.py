"""The native protocol's requests as a table: which session call each operation is, and what its answer looks like."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from shardmq.commands import Bind, DeclareExchange, DeclareQueue, DeleteExchange, DeleteQueue, Unbind
from shardmq.errors import InvalidRequest, RequestError
from shardmq.gateway.session import Channel
from shardmq.gateway.shardlink import Outcome, Reply
from shardmq.gateway.status import gather
from shardmq.model import DEFAULT_EXCHANGE, Binding, Exchange, Queue, check_nesting
from shardmq.wire.operations import (
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicQos,
    ExchangeDeclare,
    ExchangeDelete,
    Operation,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    StatusGet,
    TopologyList,
)


def _shaped(reply: Reply, shape: Callable[[Any], Any]) -> Reply:
    """A reply that gives results a shape and lets errors through."""

    def shaped(outcome: Outcome) -> None:
        reply(outcome if isinstance(outcome, RequestError) else shape(outcome))

    return shaped


def _exchange_declare(channel: Channel, operation: ExchangeDeclare, reply: Reply) -> None:
    vhost = channel.session.vhost
    command = DeclareExchange(vhost, operation.exchange, operation.type, operation.durable, operation.arguments)
    channel.session.perform(command, _shaped(reply, lambda _: None))


def _exchange_delete(channel: Channel, operation: ExchangeDelete, reply: Reply) -> None:
    channel.session.perform(DeleteExchange(channel.session.vhost, operation.exchange), _shaped(reply, lambda _: None))


def _queue_declare(channel: Channel, operation: QueueDeclare, reply: Reply) -> None:
    command = DeclareQueue(channel.session.vhost, operation.queue, operation.durable, operation.arguments)
    shape = _shaped(reply, lambda counts: {"queue": operation.queue, "messages": counts[0], "consumers": counts[1]})
    channel.session.declare_queue(command, shape)


def _queue_delete(channel: Channel, operation: QueueDelete, reply: Reply) -> None:
    command = DeleteQueue(channel.session.vhost, operation.queue)
    channel.session.perform(command, _shaped(reply, lambda messages: {"messages": messages}))


def _queue_bind(channel: Channel, operation: QueueBind, reply: Reply) -> None:
    session = channel.session
    if operation.exchange != DEFAULT_EXCHANGE:
        session.hub.topology.check_binding_key(session.vhost, operation.exchange, operation.routing_key)
    command = Bind(session.vhost, operation.exchange, operation.queue, operation.routing_key, operation.arguments)
    session.perform(command, _shaped(reply, lambda _: None))


def _queue_unbind(channel: Channel, operation: QueueUnbind, reply: Reply) -> None:
    vhost = channel.session.vhost
    command = Unbind(vhost, operation.exchange, operation.queue, operation.routing_key, operation.arguments)
    channel.session.perform(command, _shaped(reply, lambda _: None))


def _queue_purge(channel: Channel, operation: QueuePurge, reply: Reply) -> None:
    channel.session.purge(operation.queue, _shaped(reply, lambda messages: {"messages": messages}))


def _basic_consume(channel: Channel, operation: BasicConsume, reply: Reply) -> None:
    if operation.arguments:
        raise InvalidRequest(
            f"consumer argument '{next(iter(operation.arguments))}' is not known; this version knows none"
        )
    shape = _shaped(reply, lambda tag: {"consumer": tag})
    channel.consume(operation.queue, operation.consumer, operation.auto_ack, operation.prefetch, shape)


def _basic_cancel(channel: Channel, operation: BasicCancel, reply: Reply) -> None:
    channel.cancel(operation.consumer, _shaped(reply, lambda _: None))


def _basic_qos(channel: Channel, operation: BasicQos, reply: Reply) -> None:
    channel.qos(operation.consumer, operation.prefetch, _shaped(reply, lambda _: None))


def _basic_get(channel: Channel, operation: BasicGet, reply: Reply) -> None:
    def shape(outcome: Any) -> dict[str, Any] | None:
        if outcome is None:
            return None
        tag, got = outcome
        run = got.run
        delivery = BasicDeliver(channel.number, "", tag, got.redelivered, run.exchange, run.routing_key, run.flags,
                                run.timestamp_ms, run.origin, run.serial, run.count, run.records)  # fmt: skip
        fields = {name: getattr(delivery, name) for name in delivery.__struct_fields__}
        return {**fields, "messages": got.ready}

    channel.get(operation.queue, operation.auto_ack, _shaped(reply, shape))


def _exchange_table(exchange: Exchange) -> dict[str, Any]:
    return {
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "arguments": exchange.arguments,
    }


def _queue_table(queue: Queue) -> dict[str, Any]:
    return {"name": queue.name, "shard": queue.shard, "durable": queue.durable, "arguments": queue.arguments}


def _binding_table(binding: Binding) -> dict[str, Any]:
    return {
        "exchange": binding.exchange,
        "queue": binding.destination,
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }


def _topology_list(channel: Channel, operation: TopologyList, reply: Reply) -> None:
    topology, vhost = channel.session.hub.topology, channel.session.vhost
    match operation.noun:
        case "exchanges":
            reply([_exchange_table(exchange) for exchange in topology.exchanges.values() if exchange.vhost == vhost])
        case "queues":
            reply([_queue_table(queue) for queue in topology.queues.values() if queue.vhost == vhost])
        case "bindings":
            reply([_binding_table(binding) for binding in topology.bindings.values() if binding.vhost == vhost])
        case noun:
            raise InvalidRequest(f"there is no list of '{noun}'; ask for exchanges, queues or bindings")


def carry_out(channel: Channel, operation: Any, reply: Reply) -> None:
    """Carry out a request.

    Raises:
        RequestError: it is refused at once; `reply` is not called.
    """
    check_nesting(getattr(operation, "arguments", None))
    _REQUESTS[type(operation)](channel, operation, reply)


def _status_get(channel: Channel, _operation: StatusGet, reply: Reply) -> None:
    gather(channel.session.hub, reply)


_REQUESTS: Final[Mapping[type[Operation], Callable[[Channel, Any, Reply], None]]] = MappingProxyType(
    {
        ExchangeDeclare: _exchange_declare,
        ExchangeDelete: _exchange_delete,
        QueueDeclare: _queue_declare,
        QueueDelete: _queue_delete,
        QueueBind: _queue_bind,
        QueueUnbind: _queue_unbind,
        QueuePurge: _queue_purge,
        BasicConsume: _basic_consume,
        BasicCancel: _basic_cancel,
        BasicQos: _basic_qos,
        BasicGet: _basic_get,
        TopologyList: _topology_list,
        StatusGet: _status_get,
    }
)
