"""Which call carries out each operation, and what its answer looks like."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.inquiry import Inquiry
from shardmq.bus.messages.reads import Peek, SeenBatch
from shardmq.errors import ChannelError, ConnectionFault, NotAllowed, ReplyCode, RequestError
from shardmq.gateway.handlers import administration, lists, policies, reads, topology, transactions
from shardmq.gateway.handlers.replies import delivery_tables, shaped
from shardmq.gateway.handlers.statistics import requests as statistics
from shardmq.gateway.handlers.topics import groups, pulls, topics
from shardmq.gateway.native.channel import NativeChannel
from shardmq.gateway.native.consume import basic_cancel, basic_consume, basic_get, basic_qos, basic_recover
from shardmq.gateway.native.publish import publish
from shardmq.gateway.session import large_messages
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.state.passes import TimeSlice
from shardmq.limits import PULLS_MAX
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicPutBack,
    BasicQos,
    BasicRecover,
    BasicRenew,
)
from shardmq.protocol.native.operations.connection import ChannelClose, ChannelOpen, Ok, Refused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.groups import GroupReleased
from shardmq.protocol.native.operations.offsets import TopicPull
from shardmq.protocol.native.operations.topology import QueuePeek, QueuePurge
from shardmq.topology.entities import check_nesting


def carry_out(channel: NativeChannel, operation: Operation) -> None:
    """Carry out what came on a channel.

    Raises:
        ConnectionFault: it makes no sense on a channel that is open.
    """
    try:
        if type(operation) is BasicPublish:
            publish(channel, operation)
        elif type(operation) is BasicAck:
            for first, last in operation.tags:
                channel.session_channel.ack(first, last)
        elif (settle := _SETTLEMENTS.get(type(operation))) is not None:
            settle(channel.session_channel, operation)
        elif type(operation) is ChannelClose:
            channel.owner.close_channel(channel)
            channel.outbox.send(Ok(operation.request, channel.number))
        elif type(operation) is ChannelOpen:
            raise ConnectionFault(f"channel {channel.number} is open already", ReplyCode.CHANNEL_ERROR)
        elif type(operation) is TopicPull:
            _pull(channel, operation)
        else:
            _request(channel, operation)
    except ChannelError as error:
        channel.owner.fail_channel(channel, error)


def _nack(channel: Channel, operation: BasicNack) -> None:
    for first, last in operation.tags:
        channel.nack(first, last, operation.requeue, operation.delay_ms)


def _put_back(channel: Channel, operation: BasicPutBack) -> None:
    for first, last in operation.tags:
        channel.put_back(first, last)


def _renew(channel: Channel, operation: BasicRenew) -> None:
    for first, last in operation.tags:
        channel.renew(first, last)


def _released(channel: Channel, operation: GroupReleased) -> None:
    if channel.consumers.groups is not None:
        channel.consumers.groups.released(operation.consumer, operation.partitions)


_SETTLEMENTS: Final[Mapping[type[Operation], Callable[[Channel, Any], None]]] = MappingProxyType(
    {BasicNack: _nack, BasicPutBack: _put_back, BasicRenew: _renew, GroupReleased: _released}
)
"""What is not answered."""


def catch_up(channel: NativeChannel) -> None:
    """Carry out what was held on a channel, as far as nothing holds it any more."""
    outbox = channel.outbox
    time_slice = TimeSlice()
    while channel.held and not (channel.is_waiting or outbox.is_unread or outbox.is_closing):
        if time_slice.is_over:
            channel.is_waiting = True
            outbox.state.time_slices.wait(partial(_go_on, channel))
            break
        operation, size = channel.held.popleft()
        outbox.hold_less(size)
        try:
            carry_out(channel, operation)
        except ConnectionFault as fault:
            outbox.close(fault)
    if not channel.held:
        channel.held = None


def _go_on(channel: NativeChannel) -> None:
    """Go on with what is held: it is the channel's turn again."""
    channel.is_waiting = False
    if channel.is_open:
        catch_up(channel)


def _request(channel: NativeChannel, operation: Any) -> None:
    """Carry out a request; until it is answered, what follows on its channel is held."""
    outbox = channel.outbox
    answered = False

    def say(outcome: Outcome) -> None:
        if not (outbox.is_closing or not channel.is_open):
            _answer(channel, operation, outcome)

    def go_on() -> None:
        nonlocal answered
        answered = True
        if channel.is_waiting and not (outbox.is_closing or not channel.is_open):
            channel.is_waiting = False
            catch_up(channel)

    def reply(outcome: Outcome) -> None:
        say(outcome)
        go_on()

    perform = _REQUESTS[type(operation)]
    try:
        for name in _TABLES[type(operation)]:
            check_nesting(getattr(operation, name))
        if operation.only_reads:
            inquiry = Inquiry(type(operation).__name__, say, go_on)
            inquiry.run(perform, channel.session_channel, operation, inquiry.reply)
        else:
            perform(channel.session_channel, operation, reply)
    except RequestError as error:
        reply(error)
    channel.is_waiting = not answered


def _answer(channel: NativeChannel, operation: Any, outcome: Outcome) -> None:
    if isinstance(outcome, RequestError):
        channel.outbox.send(Refused(operation.request, operation.channel, outcome.code, outcome.text))
    else:
        channel.outbox.send(Ok(operation.request, operation.channel, outcome))


def _pull(channel: NativeChannel, operation: TopicPull) -> None:
    """Carry out a pull, which may wait for messages: what follows on its channel does not wait for it."""
    outbox = channel.outbox

    def reply(outcome: Outcome) -> None:
        channel.pulls -= 1
        if not (outbox.is_closing or not channel.is_open):
            _answer(channel, operation, outcome)

    channel.pulls += 1
    try:
        if channel.pulls > PULLS_MAX:
            raise NotAllowed(f"{PULLS_MAX} pulls of channel {channel.number} wait already; have fewer at a time")
        pulls.topic_pull(channel.session_channel, operation, reply)
    except RequestError as error:
        reply(error)


def _queue_purge(channel: Channel, operation: QueuePurge, reply: Reply) -> None:
    channel.client.permissions.check_read(operation.queue, "queue")
    channel.client.purge(operation.queue, shaped(reply, lambda messages: {"messages": messages}))


def _queue_peek(channel: Channel, operation: QueuePeek, reply: Reply) -> None:
    client = channel.client
    client.permissions.check_read(operation.queue, "queue")
    queue = client.queue(operation.queue)

    def shape(seen: Sequence[SeenBatch]) -> list[dict[str, Any]]:
        return delivery_tables(seen, reads_keys=client.reads_keys)

    link = client.state.links[queue.shard]
    question = Peek(queue.id, operation.offset, operation.count)
    large_messages.look(channel, partial(link.ask, question), shaped(reply, shape))


_REQUESTS: Final[Mapping[type[Operation], Callable[[Channel, Any, Reply], None]]] = MappingProxyType(
    {
        **topology.REQUESTS,
        **topics.REQUESTS,
        **lists.REQUESTS,
        **statistics.REQUESTS,
        **administration.REQUESTS,
        **policies.REQUESTS,
        **transactions.REQUESTS,
        **reads.REQUESTS,
        **groups.REQUESTS,
        QueuePurge: _queue_purge,
        QueuePeek: _queue_peek,
        BasicConsume: basic_consume,
        BasicCancel: basic_cancel,
        BasicQos: basic_qos,
        BasicRecover: basic_recover,
        BasicGet: basic_get,
    }
)

_TABLES: Final[Mapping[type[Operation], tuple[str, ...]]] = MappingProxyType(
    {
        kind: tuple(
            [
                name
                for name in kind.__struct_fields__
                if name in ("arguments", "definition", "findings", "rows", "value")
            ]
        )
        for kind in _REQUESTS
    }
)
"""Fields in which a client may nest what it likes: all of it travels on, from a stack that is deeper than here."""
