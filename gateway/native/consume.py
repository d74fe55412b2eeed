"""Consuming, getting, qos."""

from typing import Any

from shardmq.bus.coordinator_link import Reply
from shardmq.gateway.handlers.replies import delivery_table, done, shaped
from shardmq.gateway.session.channel import Channel
from shardmq.protocol.native.operations.basic import BasicCancel, BasicConsume, BasicGet, BasicQos, BasicRecover
from shardmq.topology.arguments import CONSUMER_ARGUMENTS, check_arguments


def _basic_consume(channel: Channel, operation: BasicConsume, reply: Reply) -> None:
    session, arguments = channel.session, operation.arguments
    if arguments:
        check_arguments(
            f"a consumer of queue '{operation.queue}' in vhost '{session.vhost}'", arguments, CONSUMER_ARGUMENTS
        )
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
