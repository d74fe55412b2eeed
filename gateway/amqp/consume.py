"""Consuming, getting, qos, acknowledgements, flow; and confirm.select."""

from collections.abc import Sequence
from typing import Any, Final

from shardmq.errors import ChannelError, PreconditionFailed, ReplyCode
from shardmq.gateway.amqp import arguments, direct_reply
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.topology import about, queue_name
from shardmq.gateway.handlers.streams import reading_of
from shardmq.gateway.handlers.topics.subscriptions import AskedConsumer, is_member, subscription_of
from shardmq.message.keyed_records import unkeyed
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
from shardmq.topology.arguments import CONSUMER_ARGUMENTS, check_arguments, is_stream

NOT_IMPLEMENTED: Final = ReplyCode.NOT_IMPLEMENTED


def basic_qos(channel: AmqpChannel, method: BasicQos) -> None:
    """Limit how much consumers may hold.

    Each one of this channel, those that run included (in RabbitMQ new ones only); or all of them together, beside what
    each may (global). A limit for each lifts the one for all, as in RabbitMQ.

    Consumers without acknowledgements hold nothing. What each may hold is nothing to them; but they get nothing either
    while others have used up what all of the channel may hold, as in RabbitMQ.

    Raises:
        AmqpError: a limit for all together, on a channel with members of groups, or one of bytes.
    """
    if method.prefetch_size:
        raise AmqpError(NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})", method.id)
    members = channel.session_channel.consumers.groups
    if method.is_global and method.prefetch_count and members is not None and members.by_tag:
        raise _no_global_qos(channel, next(iter(members.by_tag.values())).subscription.topic, method)
    channel.send(BasicQosOk())  # before what it makes room for
    if method.is_global:
        channel.session_channel.consumers.share(method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
        channel.session_channel.consumers.share(0)
        channel.session_channel.consumers.qos_of_all(method.prefetch_count)


def basic_consume(channel: AmqpChannel, method: BasicConsume) -> None:
    """Start a consumer."""
    if method.queue == DIRECT_REPLY:
        direct_reply.consume(channel, method)
        return
    queue = queue_name(channel, method.queue, method)
    client = channel.client
    if channel.session_channel.consumers.has_tag(method.consumer_tag):
        text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
        raise AmqpError(ReplyCode.NOT_ALLOWED, text, method.id)
    if is_member(method.arguments):
        _consume_group(channel, queue, method)
        return
    client.permissions.check_read(queue, "queue")
    meant = arguments.of_consumer(queue, method.arguments)
    check_arguments(f"queue '{queue}' in vhost '{client.vhost}'", meant, CONSUMER_ARGUMENTS)
    reply = channel.reply(method, lambda tag: None if method.nowait else BasicConsumeOk(tag))
    declared = client.queue(queue)
    reading = None
    if is_stream(declared.arguments):
        _check_reader(channel, queue, method)
        reading = reading_of(method.arguments, client.state.pass_time())
    channel.session_channel.consumers.consume(
        declared,
        method.consumer_tag,
        method.no_ack,
        channel.prefetch,
        about(channel, queue, reply),
        priority=meant.get("x-priority", 0),
        exclusive=method.exclusive,
        timeout_ms=meant.get("x-consumer-timeout", 0),
        reading=reading,
        given=method.arguments,
    )


def _consume_group(channel: AmqpChannel, topic: str, method: BasicConsume) -> None:
    """Start a consumer that is a member of a group.

    Raises:
        AmqpError: its channel has a prefetch for all consumers together.
    """
    if channel.session_channel.consumers.shared_prefetch:
        raise _no_global_qos(channel, topic, method)
    asked = AskedConsumer(topic, method.consumer_tag, method.no_ack, channel.prefetch, method.exclusive)
    subscription = subscription_of(channel.client, asked, arguments.of_member(topic, method.arguments))
    reply = channel.reply(method, lambda tag: None if method.nowait else BasicConsumeOk(tag))
    channel.session_channel.consumers.consume_group(subscription, about(channel, topic, reply))


def _no_global_qos(channel: AmqpChannel, topic: str, method: BasicConsume | BasicQos) -> AmqpError:
    text = f"topic '{topic}' in vhost '{channel.client.vhost}' does not support global qos"
    return AmqpError(ReplyCode.NOT_IMPLEMENTED, text, method.id)


def _check_reader(channel: AmqpChannel, queue: str, method: BasicConsume) -> None:
    """Make sure that a consumer is one that a stream may have, by RabbitMQ's rules and in its words.

    Raises:
        PreconditionFailed: no prefetch is set, or it has a priority.
        AmqpError: it acknowledges nothing, or its channel has a prefetch for all consumers together.
    """
    stream = f"queue '{queue}' in vhost '{channel.client.vhost}'"
    if channel.session_channel.consumers.shared_prefetch:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"{stream} does not support global qos", method.id)
    if not channel.prefetch:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {stream}")
    if method.no_ack:
        text = f"automatic acknowledgement not supported by stream {stream}"
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, text, method.id)
    if "x-priority" in method.arguments:
        raise PreconditionFailed(f"invalid arg 'x-priority' for {stream} of queue type rabbit_stream_queue")


def basic_cancel(channel: AmqpChannel, method: BasicCancel) -> None:
    """Stop a consumer, if there is one of that tag; what it holds stays unacked."""
    answer = None if method.nowait else BasicCancelOk(method.consumer_tag)
    if channel.session_channel.consumers.has_tag(method.consumer_tag):
        channel.session_channel.consumers.cancel(method.consumer_tag, channel.reply(method, lambda _: answer))
    elif answer is not None:
        channel.send(answer)


def basic_get(channel: AmqpChannel, method: BasicGet) -> None:
    """Take one message, or say that the queue is empty."""
    queue = queue_name(channel, method.queue, method)
    channel.client.permissions.check_read(queue, "queue")

    def shape(outcome: Any) -> Method | None:
        if outcome is None:
            return BasicGetEmpty()
        tag, got = outcome
        batch = unkeyed(got.batch)
        (properties,), (body,) = to_amqp(batch, got.deliveries)
        channel.send(BasicGetOk(tag, got.redelivered, batch.exchange, batch.routing_key, got.ready))
        channel.outbox.send_content(channel.number, properties, body)
        return None

    channel.session_channel.consumers.get(queue, method.no_ack, about(channel, queue, channel.reply(method, shape)))


def basic_ack(channel: AmqpChannel, method: BasicAck) -> None:
    """Acknowledge a delivery, or all up to it."""
    if method.multiple:
        for first, last in channel.session_channel.tags.through(method.delivery_tag):
            channel.settler.ack(first, last)
    else:
        channel.settler.ack(method.delivery_tag, method.delivery_tag)


def acked(channel: AmqpChannel, ranges: Sequence[tuple[int, int]]) -> None:
    """Acknowledge deliveries, of which each was acknowledged by itself, in rising order.

    Raises:
        ChannelError: one of them is not outstanding; those before it are settled.
    """
    for first, last in ranges:
        try:
            channel.settler.ack(first, last)
        except ChannelError:
            for tag in range(first, last + 1):
                channel.settler.ack(tag, tag)


def basic_nack(channel: AmqpChannel, method: BasicNack) -> None:
    """Reject a delivery, or all up to it."""
    if method.multiple:
        for first, last in channel.session_channel.tags.through(method.delivery_tag):
            channel.settler.nack(first, last, method.requeue)
    else:
        channel.settler.nack(method.delivery_tag, method.delivery_tag, method.requeue)


def basic_reject(channel: AmqpChannel, method: BasicReject) -> None:
    """Reject a delivery."""
    channel.settler.nack(method.delivery_tag, method.delivery_tag, method.requeue)


def basic_recover(channel: AmqpChannel, method: BasicRecover | BasicRecoverAsync) -> None:
    """Requeue everything unacked, to be delivered again, to anybody."""
    if not method.requeue:
        raise AmqpError(NOT_IMPLEMENTED, "requeue=false", method.id)
    if isinstance(method, BasicRecover):
        channel.send(BasicRecoverOk())  # before what there is room for then
    channel.session_channel.recover()


def channel_flow(channel: AmqpChannel, method: ChannelFlow) -> None:
    """Accept that deliveries go on; they are never stopped so, as prefetch limits them."""
    if not method.active:
        raise AmqpError(NOT_IMPLEMENTED, "active=false", method.id)
    channel.send(ChannelFlowOk(active=True))


def access_request(channel: AmqpChannel, _method: AccessRequest) -> None:
    """Give a ticket to clients of old; nobody looks at it."""
    channel.send(AccessRequestOk(ticket=1))


def confirm_select(channel: AmqpChannel, method: ConfirmSelect) -> None:
    """Confirm publishes from now on.

    Raises:
        PreconditionFailed: it is transactional.
    """
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    if not channel.is_confirming:
        channel.is_confirming = channel.session_channel.publisher.is_confirming = True
        channel.unconfirmed = channel.session_channel.publisher.before_confirms = channel.published
    if not method.nowait:
        channel.send(ConfirmSelectOk())


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
