"""Methods about consumers, deliveries, acknowledgements; and what a channel may be told beside: flow, confirms."""

from collections.abc import Sequence
from typing import Any, Final

from shardmq.errors import ChannelError, PreconditionFailed, ReplyCode
from shardmq.gateway.amqp import arguments
from shardmq.gateway.amqp import direct_reply as replies
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.topology import about, queue_name
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)
from shardmq.protocol.amqp.methods.connection import AccessRequest, AccessRequestOk, ChannelFlow, ChannelFlowOk
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.protocol.amqp.property_facts import DIRECT_REPLY
from shardmq.protocol.translation import to_amqp
from shardmq.topology.arguments import CONSUMER_ARGUMENTS, check_arguments

NOT_IMPLEMENTED: Final = ReplyCode.NOT_IMPLEMENTED

# --- consumers --------------------------------------------------------------------------------------------------------


def basic_qos(desk: AmqpChannel, method: BasicQos) -> None:
    """How much consumers may hold: each one of this channel, those that run included (in RabbitMQ new ones only); or
    all of them together, beside what each may (global). Saying it for each lifts the limit for all, as there.

    Consumers without acknowledgements hold nothing. What each may hold is nothing to them; but they get nothing either
    while others have used up what all of the channel may hold, as in RabbitMQ.
    """
    if method.prefetch_size:
        raise AmqpError(NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})", method.id)
    desk.send(BasicQosOk())  # before what it makes room for
    if method.is_global:
        desk.channel.share(method.prefetch_count)
    else:
        desk.prefetch = method.prefetch_count
        desk.channel.share(0)
        desk.channel.qos_of_all(method.prefetch_count)


def basic_consume(desk: AmqpChannel, method: BasicConsume) -> None:
    """Start a consumer."""
    if method.queue == DIRECT_REPLY:
        replies.consume(desk, method)
        return
    queue = queue_name(desk, method.queue, method)
    session = desk.channel.session
    if method.consumer_tag in desk.channel.consumers:
        text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
        raise AmqpError(ReplyCode.NOT_ALLOWED, text, method.id)
    session.rights.check_read(queue, "queue")
    meant = arguments.of_consumer(queue, method.arguments)
    check_arguments(f"queue '{queue}' in vhost '{session.vhost}'", meant, CONSUMER_ARGUMENTS)
    reply = desk.reply(method, lambda tag: None if method.nowait else BasicConsumeOk(tag))
    desk.channel.consume(
        queue,
        method.consumer_tag,
        method.no_ack,
        desk.prefetch,
        about(desk, queue, reply),
        priority=meant.get("x-priority", 0),
        exclusive=method.exclusive,
        timeout_ms=meant.get("x-consumer-timeout", 0),
    )


def basic_cancel(desk: AmqpChannel, method: BasicCancel) -> None:
    """Stop a consumer, if there is one of that tag. What it was given it keeps."""
    answer = None if method.nowait else BasicCancelOk(method.consumer_tag)
    if method.consumer_tag in desk.channel.consumers:
        desk.channel.cancel(method.consumer_tag, desk.reply(method, lambda _: answer))
    elif answer is not None:
        desk.send(answer)


def basic_get(desk: AmqpChannel, method: BasicGet) -> None:
    """One message."""
    queue = queue_name(desk, method.queue, method)
    desk.channel.session.rights.check_read(queue, "queue")

    def shape(outcome: Any) -> Method | None:
        if outcome is None:
            return BasicGetEmpty()
        tag, got = outcome
        run = got.run
        (properties,), (body,) = to_amqp(run, got.deliveries)
        desk.send(BasicGetOk(tag, got.redelivered, run.exchange, run.routing_key, got.ready))
        desk.connection.send_content(desk.number, properties, body)
        return None

    desk.channel.get(queue, method.no_ack, about(desk, queue, desk.reply(method, shape)))


# --- acknowledgements -------------------------------------------------------------------------------------------------


def basic_ack(desk: AmqpChannel, method: BasicAck) -> None:
    """Deliveries are done with."""
    if method.multiple:
        for first, last in desk.channel.ledger.through(method.delivery_tag):
            desk.outlet.ack(first, last)
    else:
        desk.outlet.ack(method.delivery_tag, method.delivery_tag)


def acked(desk: AmqpChannel, ranges: Sequence[tuple[int, int]]) -> None:
    """Deliveries are done with, of which each was acknowledged by itself, in rising order.

    Raises:
        ChannelError: one of them is not outstanding; those before it are done with.
    """
    for first, last in ranges:
        try:
            desk.outlet.ack(first, last)
        except ChannelError:
            for tag in range(first, last + 1):
                desk.outlet.ack(tag, tag)


def basic_nack(desk: AmqpChannel, method: BasicNack) -> None:
    """Deliveries were not taken."""
    if method.multiple:
        for first, last in desk.channel.ledger.through(method.delivery_tag):
            desk.outlet.nack(first, last, method.requeue)
    else:
        desk.outlet.nack(method.delivery_tag, method.delivery_tag, method.requeue)


def basic_reject(desk: AmqpChannel, method: BasicReject) -> None:
    """A delivery was not taken."""
    desk.outlet.nack(method.delivery_tag, method.delivery_tag, method.requeue)


def basic_recover(desk: AmqpChannel, method: BasicRecover | BasicRecoverAsync) -> None:
    """Everything unacked returns to its place, to be delivered again, to anybody."""
    if not method.requeue:
        raise AmqpError(NOT_IMPLEMENTED, "requeue=false", method.id)
    if isinstance(method, BasicRecover):
        desk.send(BasicRecoverOk())  # before what there is room for then
    desk.channel.recover()


# --- modes ------------------------------------------------------------------------------------------------------------


def channel_flow(desk: AmqpChannel, method: ChannelFlow) -> None:
    """Deliveries are never stopped by that: prefetch limits them."""
    if not method.active:
        raise AmqpError(NOT_IMPLEMENTED, "active=false", method.id)
    desk.send(ChannelFlowOk(active=True))


def access_request(desk: AmqpChannel, _method: AccessRequest) -> None:
    """A ticket, for clients of old; nobody looks at it."""
    desk.send(AccessRequestOk(ticket=1))


def confirm_select(desk: AmqpChannel, method: ConfirmSelect) -> None:
    """Publishes are confirmed from now on.

    Raises:
        PreconditionFailed: it is transactional.
    """
    if desk.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    if not desk.is_confirming:
        desk.is_confirming = True
        desk.unconfirmed = desk.published
    if not method.nowait:
        desk.send(ConfirmSelectOk())


HANDLERS: Final[dict[type[Any], Any]] = {
    BasicQos: basic_qos,
    BasicConsume: basic_consume,
    BasicCancel: basic_cancel,
    BasicGet: basic_get,
    BasicAck: basic_ack,
    BasicNack: basic_nack,
    BasicReject: basic_reject,
    BasicRecover: basic_recover,
    BasicRecoverAsync: basic_recover,
    ChannelFlow: channel_flow,
    AccessRequest: access_request,
    ConfirmSelect: confirm_select,
}
