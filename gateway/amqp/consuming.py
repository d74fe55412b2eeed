"""Methods about consumers, deliveries, acknowledgements."""

from typing import Any, Final

from shardmq.errors import PreconditionFailed
from shardmq.gateway.amqp import replies
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
)
from shardmq.gateway.amqp.properties import DIRECT_REPLY


def basic_qos(desk: AmqpChannel, method: BasicQos) -> None:
    """How much new consumers of this channel may hold."""
    desk.prefetch = method.prefetch_count
    desk.send(BasicQosOk())


def basic_consume(desk: AmqpChannel, method: BasicConsume) -> None:
    """Start a consumer."""
    if method.queue == DIRECT_REPLY:
        replies.consume(desk, method)
        return
    queue = method.queue or desk.last_queue
    desk.channel.session.rights.check_read(queue, "queue")
    desk.channel.consume(
        queue, method.consumer_tag, method.no_ack, desk.prefetch,
        desk.reply(method, lambda tag: None if method.nowait else BasicConsumeOk(tag)),
        exclusive=method.exclusive,
    )  # fmt: skip


def basic_ack(desk: AmqpChannel, method: BasicAck) -> None:
    """Deliveries are done with."""
    tag = method.delivery_tag
    desk.outlet.ack(tag, tag)


def confirm_select(desk: AmqpChannel, method: ConfirmSelect) -> None:
    """Publishes are confirmed from now on.

    Raises:
        PreconditionFailed: it is transactional.
    """
    if desk.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    desk.is_confirming = True
    desk.published = 0
    if not method.nowait:
        desk.send(ConfirmSelectOk())


HANDLERS: Final[dict[type[Any], Any]] = {
    BasicQos: basic_qos,
    BasicConsume: basic_consume,
    BasicAck: basic_ack,
    ConfirmSelect: confirm_select,
}
