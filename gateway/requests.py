"""The native protocol's requests as a table: which call each operation is, and what its answer looks like."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from shardmq.bus.messages import Peek
from shardmq.gateway import administration, borrowing, declarations, listing, snapshots, transactions
from shardmq.gateway.answers import delivery_table, done, shaped
from shardmq.gateway.channel import Channel
from shardmq.gateway.shardlink import Reply
from shardmq.model import check_nesting
from shardmq.records import Run
from shardmq.terms import CONSUMER_ARGUMENTS, check_arguments
from shardmq.wire.operations import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicQos,
    BasicRecover,
    Operation,
    QueuePeek,
    QueuePurge,
)


def carry_out(channel: Channel, operation: Any, reply: Reply) -> None:
    """Carry out a request.

    Raises:
        RequestError: it is refused at once; `reply` is not called.
    """
    check_nesting(getattr(operation, "arguments", None))
    _REQUESTS[type(operation)](channel, operation, reply)


def _queue_purge(channel: Channel, operation: QueuePurge, reply: Reply) -> None:
    channel.session.rights.check_read(operation.queue, "queue")
    channel.session.purge(operation.queue, shaped(reply, lambda messages: {"messages": messages}))


def _queue_peek(channel: Channel, operation: QueuePeek, reply: Reply) -> None:
    session = channel.session
    session.rights.check_read(operation.queue, "queue")
    queue = session.queue(operation.queue)

    def shape(peeked: list[Any]) -> list[dict[str, Any]]:
        seen = msgspec.convert(peeked, list[tuple[int, bool, int, Run]])
        return [delivery_table(0, 0, redelivered, run, deliveries) for _, redelivered, deliveries, run in seen]

    link = session.hub.links[queue.shard]
    question = Peek(0, queue.id, operation.offset, operation.count)
    borrowing.look(channel, partial(link.ask, question), shaped(reply, shape))


def _basic_consume(channel: Channel, operation: BasicConsume, reply: Reply) -> None:
    session, arguments = channel.session, operation.arguments
    if arguments:
        check_arguments(f"a consumer of queue '{operation.queue}' in vhost '{session.vhost}'", arguments,
                        CONSUMER_ARGUMENTS)  # fmt: skip
    session.rights.check_read(operation.queue, "queue")
    channel.consume(
        operation.queue,
        operation.consumer,
        operation.auto_ack,
        operation.prefetch,
        shaped(reply, lambda tag: {"consumer": tag}),
        priority=arguments.get("x-priority", 0),
        exclusive=operation.exclusive,
        timeout_ms=arguments.get("x-consumer-timeout", 0),
    )


def _basic_cancel(channel: Channel, operation: BasicCancel, reply: Reply) -> None:
    channel.cancel(operation.consumer, done(reply))


def _basic_qos(channel: Channel, operation: BasicQos, reply: Reply) -> None:
    channel.qos(operation.consumer, operation.prefetch, done(reply))


def _basic_recover(channel: Channel, _operation: BasicRecover, reply: Reply) -> None:
    channel.recover()
    reply(None)


def _basic_get(channel: Channel, operation: BasicGet, reply: Reply) -> None:
    def shape(outcome: Any) -> dict[str, Any] | None:
        if outcome is None:
            return None
        tag, got = outcome
        return {**delivery_table(channel.number, tag, got.redelivered, got.run, got.deliveries), "messages": got.ready}

    channel.session.rights.check_read(operation.queue, "queue")
    channel.get(operation.queue, operation.auto_ack, shaped(reply, shape))


_REQUESTS: Final[Mapping[type[Operation], Callable[[Channel, Any, Reply], None]]] = MappingProxyType(
    {
        **declarations.REQUESTS,
        **listing.REQUESTS,
        **administration.REQUESTS,
        **transactions.REQUESTS,
        **snapshots.REQUESTS,
        QueuePurge: _queue_purge,
        QueuePeek: _queue_peek,
        BasicConsume: _basic_consume,
        BasicCancel: _basic_cancel,
        BasicQos: _basic_qos,
        BasicRecover: _basic_recover,
        BasicGet: _basic_get,
    }
)
