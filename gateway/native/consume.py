"""Consuming, getting, qos."""

from typing import Any

from shardmq.bus.coordinator_link import Reply
from shardmq.errors import PreconditionFailed
from shardmq.gateway.handlers.replies import delivery_table, done, shaped
from shardmq.gateway.handlers.streams import PARTITION, READER_ARGUMENTS, reading_of
from shardmq.gateway.handlers.topics.pulls import partition_of
from shardmq.gateway.handlers.topics.subscriptions import AskedConsumer, is_member, subscription_of
from shardmq.gateway.native import direct_reply
from shardmq.gateway.session.channel import Channel
from shardmq.message.keyed_records import unkeyed
from shardmq.protocol.native.operations.basic import BasicCancel, BasicConsume, BasicGet, BasicQos, BasicRecover
from shardmq.topology.arguments import CONSUMER_ARGUMENTS, check_arguments, is_stream
from shardmq.topology.entities import Queue


def basic_consume(channel: Channel, operation: BasicConsume, reply: Reply) -> None:
    """Start a consumer.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: the queue is exclusive to another connection.
        NotAllowed: the channel has a consumer of that tag.
        PreconditionFailed: an argument has no meaning.
    """
    client, arguments = channel.client, operation.arguments
    if direct_reply.is_reply_name(operation.queue):
        direct_reply.consume(channel, operation, reply)
        return
    if is_member(arguments):
        asked = AskedConsumer(
            operation.queue, operation.consumer, operation.auto_ack, operation.prefetch, operation.exclusive
        )
        subscription = subscription_of(client, asked, arguments)
        channel.consumers.consume_group(subscription, shaped(reply, lambda tag: {"consumer": tag}))
        return
    if arguments:
        meant = {name: value for name, value in arguments.items() if name not in READER_ARGUMENTS}
        check_arguments(f"a consumer of queue '{operation.queue}' in vhost '{client.vhost}'", meant, CONSUMER_ARGUMENTS)
    queue = _consumed(channel, operation)
    reading = reading_of(arguments, client.state.pass_time()) if is_stream(queue.arguments) else None

    def shape(tag: str) -> dict[str, Any]:
        consumer = channel.consumers.by_tag.get(tag)
        if consumer is None or consumer.reading is None:
            return {"consumer": tag}
        return {"consumer": tag, "offset": consumer.reading.number}

    channel.consumers.consume(
        queue,
        operation.consumer,
        operation.auto_ack,
        operation.prefetch,
        shaped(reply, shape),
        priority=arguments.get("x-priority", 0),
        exclusive=operation.exclusive,
        timeout_ms=arguments.get("x-consumer-timeout", 0),
        reading=reading,
        given=arguments,
    )


def _consumed(channel: Channel, operation: BasicConsume) -> Queue:
    """The queue that a consumer asks for, by its name, or by its place in a topic."""
    client, number = channel.client, operation.arguments.get(PARTITION)
    if number is None:
        client.permissions.check_read(operation.queue, "queue")
        return client.queue(operation.queue)
    if type(number) is not int or number < 0:
        raise PreconditionFailed(f"invalid arg '{PARTITION}': {number!r}; expected is a partition's number, from 0")
    return partition_of(client, operation.queue, number)


def basic_cancel(channel: Channel, operation: BasicCancel, reply: Reply) -> None:
    """Stop a consumer; what it holds stays unacked."""
    channel.consumers.cancel(operation.consumer, done(reply))


def basic_qos(channel: Channel, operation: BasicQos, reply: Reply) -> None:
    """Change a running consumer's prefetch.

    Raises:
        NotFound: the channel has no consumer of that tag.
    """
    channel.consumers.qos(operation.consumer, operation.prefetch, done(reply))


def basic_recover(channel: Channel, _operation: BasicRecover, reply: Reply) -> None:
    """Requeue everything unacked."""
    channel.recover()
    reply(None)


def basic_get(channel: Channel, operation: BasicGet, reply: Reply) -> None:
    """Take one message; the result is None where there is none.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: the queue is exclusive to another connection.
    """

    def shape(outcome: Any) -> dict[str, Any] | None:
        if outcome is None:
            return None
        tag, got = outcome
        return {
            **delivery_table(channel.number, tag, got.redelivered, unkeyed(got.batch), got.deliveries),
            "messages": got.ready,
        }

    channel.client.permissions.check_read(operation.queue, "queue")
    channel.consumers.get(operation.queue, operation.auto_ack, shaped(reply, shape))
