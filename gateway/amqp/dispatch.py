"""Which call carries out each method; and what was held on a channel, once nothing holds it any more."""

from functools import partial
from typing import Any, Final

from shardmq.errors import ReplyCode, ShardmqError
from shardmq.gateway.amqp import consume, topology, transactions
from shardmq.gateway.amqp.channel import AmqpChannel, OnChannel
from shardmq.gateway.amqp.publish import publish
from shardmq.gateway.state.passes import TimeSlice
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import AcksReceived, PublishesReceived, PublishTooLarge
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelOpen
from shardmq.protocol.amqp.methods.fields import Method


def carry_out(channel: AmqpChannel, event: OnChannel) -> None:
    """Carry out what came on a channel.

    Raises:
        AmqpError: what the channel's owner raises where the fault is hard.
    """
    try:
        if type(event) is PublishesReceived:
            publish(channel, event)
        elif type(event) is AcksReceived:
            consume.acked(channel, event.ranges)
        elif isinstance(event, PublishTooLarge):
            raise event.error
        else:
            method = event.method
            HANDLERS.get(type(method), _unimplemented)(channel, method)
    except ShardmqError as error:
        channel.is_waiting = False
        channel.owner.fail(channel, error, event.method.id)


def catch_up(channel: AmqpChannel) -> None:
    """Carry out what was held on a channel, as far as nothing holds it any more.

    Some of it is answered at once, which ends up here again: the loop goes on by itself.
    """
    if channel.is_catching_up:
        return
    channel.is_catching_up = True
    outbox = channel.outbox
    time_slice = TimeSlice()
    while channel.held and not (channel.is_waiting or channel.is_resting or outbox.is_unread or outbox.is_closing):
        if time_slice.is_over:
            channel.is_resting = True
            outbox.state.time_slices.wait(partial(_go_on, channel))
            break
        event, size = channel.held[0]
        if outbox.is_blocked_by_alarm(event) and not channel.is_closing:
            break
        channel.held.popleft()
        outbox.hold_less(size)
        carry_out(channel, event)
    channel.is_catching_up = False
    if not channel.held:
        channel.held = None


def _go_on(channel: AmqpChannel) -> None:
    """Go on with what is held: it is the channel's turn again."""
    channel.is_resting = False
    if channel.is_open:
        channel.owner.catch_up(channel)


def _channel_close(channel: AmqpChannel, _method: ChannelClose) -> None:
    channel.owner.close_channel(channel)


def _channel_open(_channel: AmqpChannel, method: ChannelOpen) -> None:
    raise AmqpError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", method.id)


def _unimplemented(_channel: AmqpChannel, method: Method) -> None:
    raise AmqpError(ReplyCode.COMMAND_INVALID, "unimplemented method", method.id)


HANDLERS: Final[dict[type[Any], Any]] = {
    **topology.HANDLERS,
    **consume.HANDLERS,
    **transactions.HANDLERS,
    ChannelClose: _channel_close,
    ChannelOpen: _channel_open,
}
"""What carries out each method on an open channel."""
