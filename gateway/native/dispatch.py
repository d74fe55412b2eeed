"""The native protocol's requests as a table: which call each operation is, and what its answer looks like."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.shard import Peek
from shardmq.gateway.handlers import (
    administration,
    transactions,
)
from shardmq.gateway.handlers import (
    lists as listing,
)
from shardmq.gateway.handlers import (
    reads as snapshots,
)
from shardmq.gateway.handlers import (
    topology as declarations,
)
from shardmq.gateway.handlers.replies import delivery_table, shaped
from shardmq.gateway.native.consume import _basic_cancel, _basic_consume, _basic_get, _basic_qos, _basic_recover
from shardmq.gateway.session import large_messages as borrowing
from shardmq.gateway.session.channel import Channel
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.operations.basic import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicQos,
    BasicRecover,
)
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import QueuePeek, QueuePurge
from shardmq.topology.entities import check_nesting


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
        seen = msgspec.convert(peeked, list[tuple[int, bool, int, RecordBatch]])
        return [delivery_table(0, 0, redelivered, run, deliveries) for _, redelivered, deliveries, run in seen]

    link = session.hub.links[queue.shard]
    question = Peek(0, queue.id, operation.offset, operation.count)
    borrowing.look(channel, partial(link.ask, question), shaped(reply, shape))


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
