"""Operations from the server: each settles what it answers, or goes to the inbox or hook that it is for."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from shardmq.client.api.message import Delivery, Settler
from shardmq.client.api.returns import unroutable
from shardmq.client.core.channel import ChannelCore, PendingRequest, Published
from shardmq.client.core.groups.membership import Membership
from shardmq.client.core.groups.plain import PlainInbox, PlainMember
from shardmq.client.core.interfaces import Inbox
from shardmq.client.core.restore import reading_on
from shardmq.client.core.state import AUTO_ACKED, ConnectionState
from shardmq.errors import (
    AuthenticationFailed,
    ChannelError,
    ConnectionFault,
    ConnectionLost,
    NotFound,
    ProtocolError,
    PublishRefused,
    ReplyCode,
    RequestError,
    ShardmqError,
    from_broker,
    reply_code,
    request_error,
)
from shardmq.protocol.native.operations.basic import (
    BasicCancelled,
    BasicConfirm,
    BasicDeliver,
    BasicQos,
    BasicRefused,
    BasicReturn,
)
from shardmq.protocol.native.operations.codec import FROM_SERVER, decode
from shardmq.protocol.native.operations.connection import (
    ChannelClose,
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionOpen,
    ConnectionUnblocked,
    Heartbeat,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.fields import Operation, TagRanges
from shardmq.protocol.native.operations.groups import GroupAssigned, GroupReleased, GroupRevoked
from shardmq.protocol.native.operations.topics import TopicsGrown

_PASSING: Final = frozenset({ReplyCode.CONNECTION_FORCED, ReplyCode.RESOURCE_ERROR, ReplyCode.INTERNAL_ERROR})
"""A connection refused with one of these may be opened a moment later."""


class FrameDispatcher:
    """Takes in what was read of one connection, and settles the requests and publishes that it answers.

    Args:
        state: the connection's.
    """

    __slots__ = ("_handlers", "_state")

    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._handlers: dict[type[Operation], Callable[[Any], None]] = {
            BasicConfirm: self._on_confirm,
            BasicDeliver: self._on_deliver,
            Ok: self._on_ok,
            Refused: self._on_refused,
            BasicRefused: self._on_publish_refused,
            BasicReturn: self._on_return,
            BasicCancelled: self._on_cancelled,
            GroupAssigned: self._on_assigned,
            GroupRevoked: self._on_revoked,
            TopicsGrown: self._on_grown,
            ChannelClose: self._on_channel_close,
            ConnectionClose: self._on_connection_close,
            ConnectionBlocked: self._on_blocked,
            ConnectionUnblocked: self._on_unblocked,
            Heartbeat: self._on_heartbeat,
        }

    def receive(self, data: bytes | memoryview) -> None:
        """Take in what was read.

        Raises:
            ProtocolError: the server sent what is no answer; the connection is of no use any more.
            ConnectionFault: it closed the connection, and says why.
        """
        handlers = self._handlers
        for kind, payload in self._state.reader.feed(data):
            operation = decode(kind, payload, FROM_SERVER)
            handlers[type(operation)](operation)

    def _on_ok(self, answer: Ok) -> None:
        pending = self._answered(answer.request)
        if pending is None:
            return
        if pending.channel is not None:
            self._note(pending.channel, pending.operation, answer.result)
        pending.carried_out(answer.result)

    def _on_refused(self, answer: Refused) -> None:
        pending = self._answered(answer.request)
        if pending is None:
            return
        error: ShardmqError = request_error(answer.code, answer.text)
        operation, channel = pending.operation, pending.channel
        if isinstance(operation, ConnectionOpen):
            error = from_broker(AuthenticationFailed(answer.text, reply_code(answer.code)))
        elif pending.is_repeated and error.code == ReplyCode.NOT_FOUND and operation.is_done_where_missing:
            self._note(channel, operation, None)
            pending.carried_out({"messages": 0})
            return
        elif channel is not None and type(operation) is ChannelOpen:
            channel.is_asked_for = False
            if self._state.is_up:
                self._state.free(channel)
        pending.failed(error)

    def _note(self, channel: ChannelCore | None, operation: Operation, result: object) -> None:
        if type(operation) is BasicQos and channel is not None:
            consumer = channel.consumers.get(operation.consumer)
            if consumer is not None:
                channel.consumers[operation.consumer] = replace(consumer, prefetch=operation.prefetch)
        elif self._state.restore is None:
            self._state.declarations.note(operation, result)

    def _on_confirm(self, confirm: BasicConfirm) -> None:
        state = self._state
        channel = state.by_number.get(confirm.channel)
        if channel is None:
            return
        total = 0
        for confirms, operation in _taken(channel.unconfirmed, confirm.requests):
            confirms.settled(operation.count, None)
            total += operation.count
        state.observer.confirmed(channel.number, total)
        if state.meter is not None:
            state.meter.count("confirmed", total)

    def _on_publish_refused(self, refusal: BasicRefused) -> None:
        channel = self._state.by_number.get(refusal.channel)
        if channel is not None:
            for confirms, operation in _taken(channel.unconfirmed, refusal.requests):
                error = publish_error(refusal.code, refusal.text)
                confirms.settled(operation.count, error, min(refusal.taken, operation.count))
                self._state.count("refused", operation.count - refusal.taken)

    def _on_return(self, frame: BasicReturn) -> None:
        channel = self._state.by_number.get(frame.channel)
        published = channel.unconfirmed.get(frame.request) if channel is not None else None
        if published is not None:
            self._state.count("returned", frame.count)
            if published[0].returned(frame.count, unroutable(frame)):
                self._state.observer.returned(frame)

    def _on_deliver(self, frame: BasicDeliver) -> None:
        state = self._state
        channel = state.by_number.get(frame.channel)
        if channel is None or channel.fault is not None:
            return  # it crossed our ChannelClose; the broker takes it back
        state.shift(channel, frame)
        inbox = channel.inboxes.get(frame.consumer)
        if inbox is None:
            if frame.consumer not in channel.unheard:
                state.requeue(channel, frame)
            return
        if frame.offset is not None and frame.partition is None:  # a group goes on where it is, by itself
            channel.consumers[frame.consumer] = reading_on(
                channel.consumers[frame.consumer], frame.offset + frame.count
            )
        settler: Settler = AUTO_ACKED
        if frame.consumer in channel.manual:
            channel.unacked.add(frame.tag, frame.tag + frame.count)
            settler = channel.settler
        size = len(frame.records)
        channel.undelivered += size
        state.undelivered += size
        if state.meter is not None:
            state.meter.count("consumed", frame.count)
            state.meter.count("redelivered", frame.count if frame.redelivered else 0)
        inbox.deliver(Delivery(frame, settler, channel.consumers[frame.consumer].queue))

    def _on_cancelled(self, notice: BasicCancelled) -> None:
        channel = self._state.by_number.get(notice.channel)
        if channel is not None:
            gone = from_broker(NotFound(f"the queue of consumer '{notice.consumer}' was deleted"))
            why = request_error(notice.code, notice.text) if notice.code else gone
            self._state.end_consumer(channel, notice.consumer, why)

    def _on_assigned(self, notice: GroupAssigned) -> None:
        inbox = self._inbox(notice)
        if isinstance(inbox, Membership):
            inbox.assigned(notice.partitions)
        elif (member := _member(inbox)) is not None:
            last_tag = self._state.by_number[notice.channel].last_tag
            member.assigned([number for number, _ in notice.partitions], last_tag)

    def _on_revoked(self, notice: GroupRevoked) -> None:
        inbox = self._inbox(notice)
        if isinstance(inbox, Membership):
            inbox.revoked(notice.partitions, notice.is_lost)
        elif (member := _member(inbox)) is not None:
            member.revoked(notice.consumer, notice.partitions, notice.is_lost)
        elif not notice.is_lost and self._is_open(notice.channel):  # nobody has to be asked
            self._state.send(GroupReleased(notice.channel, notice.consumer, notice.partitions))

    def _is_open(self, number: int) -> bool:
        """Whether a channel is open, and was not closed here: nothing more is said on it then."""
        channel = self._state.by_number.get(number)
        return channel is not None and channel.is_open and channel.fault is None

    def _inbox(self, notice: GroupAssigned | GroupRevoked) -> Inbox | None:
        channel = self._state.by_number.get(notice.channel)
        return None if channel is None else channel.inboxes.get(notice.consumer)

    def _on_channel_close(self, notice: ChannelClose) -> None:
        state = self._state
        channel = state.by_number.get(notice.channel)
        if channel is None:
            return
        text = f"the broker closed channel {notice.channel}: {notice.text}"
        error = from_broker(ChannelError(text, reply_code(notice.code)))
        if channel.fault is not None:  # it crossed our ChannelClose: who has sent that hears what was wrong before it
            for number, pending in list(state.pending.items()):
                if isinstance(pending.operation, ChannelClose) and pending.operation.channel == notice.channel:
                    state.pending.pop(number).failed(error)
        state.end_channel(channel, error)
        state.free(channel)

    def _on_connection_close(self, notice: ConnectionClose) -> None:
        code = reply_code(notice.code)
        if not self._state.is_open:
            raise from_broker(AuthenticationFailed(notice.text, code))
        text = f"the broker closed the connection: {notice.text}"
        if code == ReplyCode.CONNECTION_FORCED:
            raise from_broker(ConnectionLost(text, code))
        if not self._state.is_up and self._state.restore is None:  # it did not let us in again
            is_passing = code in _PASSING
            raise from_broker(ConnectionLost(text, code) if is_passing else AuthenticationFailed(notice.text, code))
        raise from_broker(ConnectionFault(text, code))

    def _on_blocked(self, notice: ConnectionBlocked) -> None:
        self._state.blocked = notice.reason
        self._state.goes_straight = False
        self._state.observer.blocked(notice.reason)

    def _on_unblocked(self, _: ConnectionUnblocked) -> None:
        if self._state.blocked is not None:
            self._state.blocked = None
            self._state.pump()
            self._state.observer.unblocked()

    def _on_grown(self, notice: TopicsGrown) -> None:
        self._state.growth = notice.growth

    def _on_heartbeat(self, _: Heartbeat) -> None:
        """The transport has noticed that something was read."""

    def _answered(self, request: int) -> PendingRequest[Any] | None:
        pending = self._state.pending.pop(request, None)
        if pending is None and not 0 < request <= self._state.last_request:
            raise ProtocolError(
                f"the server answered request {request}, which was never asked", ReplyCode.UNEXPECTED_FRAME
            )
        return pending  # None: its channel ended while the answer was on its way


def _member(inbox: Inbox | None) -> PlainMember | None:
    return inbox.member if isinstance(inbox, PlainInbox) else None


def publish_error(code: int, text: str) -> RequestError:
    """The exception for messages the broker did not take: its own class where it names a fault, else PublishRefused."""
    error = request_error(code, text)
    if code == ReplyCode.RESOURCE_ERROR or type(error) is RequestError:
        return from_broker(PublishRefused(text, error.code))
    return error


def _taken(unconfirmed: dict[int, Published], requests: TagRanges) -> list[Published]:
    if len(requests) == 1 and (only := requests[0])[0] == only[1]:
        entry = unconfirmed.pop(only[0], None)
        return [] if entry is None else [entry]
    taken = []
    for first, last in requests:
        # A range is no longer than what is unconfirmed, unless the server made it up.
        numbers = range(first, last + 1)
        for number in numbers if len(numbers) <= 2 * len(unconfirmed) + 2 else [n for n in unconfirmed if n in numbers]:
            entry = unconfirmed.pop(number, None)
            if entry is not None:
                taken.append(entry)
    return taken
