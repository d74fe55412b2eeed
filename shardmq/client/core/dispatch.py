"""What the server says: each operation settles what it answers, or reaches whom it is for."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from shardmq.client.api.message import Delivery, Settler
from shardmq.client.api.returns import unroutable
from shardmq.client.core.channel import GONE_IS_DONE, Asked, ChannelCore, Published
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

_PASSING: Final = frozenset({ReplyCode.CONNECTION_FORCED, ReplyCode.RESOURCE_ERROR, ReplyCode.INTERNAL_ERROR})
"""A connection refused with one of these may be opened a moment later."""


class FrameDispatcher(ConnectionState):
    """The part of `core.Core` that takes in what was read."""

    def receive(self, data: bytes | memoryview) -> None:
        """Take in what was read, and settle all that it settles.

        Raises:
            ProtocolError: the server sent what is no answer; the connection is of no use any more.
            ConnectionFault: it closed the connection, and says why.
        """
        handlers = _HANDLERS
        for kind, payload in self._reader.feed(data):
            operation = decode(kind, payload, FROM_SERVER)
            handlers[type(operation)](self, operation)

    def _on_ok(self, answer: Ok) -> None:
        asked = self._answered(answer.request)
        if asked is None:
            return
        result = answer.result if asked.finish is None else asked.finish(answer.result)
        if asked.channel is not None:
            self._note(asked.channel, asked.operation, answer.result)
        if not asked.reply.done():
            asked.reply.set_result(result)

    def _on_refused(self, answer: Refused) -> None:
        asked = self._answered(answer.request)
        if asked is None:
            return
        error: ShardmqError = request_error(answer.code, answer.text)
        if asked.channel is None and isinstance(asked.operation, ConnectionOpen):
            error = AuthenticationFailed(answer.text, reply_code(answer.code))
        elif asked.is_repeated and error.code == ReplyCode.NOT_FOUND and type(asked.operation).__name__ in GONE_IS_DONE:
            self._note(asked.channel, asked.operation, None)
            if not asked.reply.done():
                asked.reply.set_result({"messages": 0})
            return
        elif type(asked.operation) is ChannelOpen and asked.channel is not None and self.is_up:
            self.free(asked.channel)
        if not asked.reply.done():
            asked.reply.set_exception(error)

    def _note(self, channel: ChannelCore | None, operation: Operation, result: Any) -> None:
        if type(operation) is BasicQos and channel is not None:
            consumer = channel.consumers.get(operation.consumer)
            if consumer is not None:
                channel.consumers[operation.consumer] = replace(consumer, prefetch=operation.prefetch)
        elif self._restoring is None:
            self.declared.note(operation, result)

    def _on_confirm(self, confirm: BasicConfirm) -> None:
        channel = self._channels.get(confirm.channel)
        if channel is None:
            return
        total = 0
        for confirms, operation in _taken(channel.unconfirmed, confirm.requests):
            confirms.settled(operation.count, None)
            total += operation.count
        self._observer.confirmed(channel.number, total)
        self._count("confirmed", total)

    def _on_publish_refused(self, refusal: BasicRefused) -> None:
        channel = self._channels.get(refusal.channel)
        if channel is not None:
            for confirms, operation in _taken(channel.unconfirmed, refusal.requests):
                error = publish_error(refusal.code, refusal.text)
                confirms.settled(operation.count, error, min(refusal.taken, operation.count))
                self._count("refused", operation.count - refusal.taken)

    def _on_return(self, frame: BasicReturn) -> None:
        channel = self._channels.get(frame.channel)
        published = channel.unconfirmed.get(frame.request) if channel is not None else None
        if published is not None:
            self._count("returned", frame.count)
            if published[0].returned(frame.count, unroutable(frame)):
                self._observer.returned(frame)

    def _on_deliver(self, frame: BasicDeliver) -> None:
        channel = self._channels.get(frame.channel)
        if channel is None or channel.fault is not None:
            return  # it crossed our ChannelClose; the broker takes it back
        self._shift(channel, frame)
        inbox = channel.inboxes.get(frame.consumer)
        if inbox is None:
            if frame.consumer not in channel.unheard:
                self._give_back(channel, frame)
            return
        settler: Settler = AUTO_ACKED
        if frame.consumer in channel.manual:
            channel.unacked.add(frame.tag, frame.tag + frame.count)
            settler = channel.settler
        self.undelivered += len(frame.records)
        if self._meter is not None:
            self._meter.count("consumed", frame.count)
            self._meter.count("redelivered", frame.count if frame.redelivered else 0)
        inbox.deliver(Delivery(frame, settler))

    def _on_cancelled(self, notice: BasicCancelled) -> None:
        channel = self._channels.get(notice.channel)
        if channel is not None:
            gone = NotFound(f"the queue of consumer '{notice.consumer}' was deleted")
            why = request_error(notice.code, notice.text) if notice.code else gone
            self.end_consumer(channel, notice.consumer, why)

    def _on_channel_close(self, notice: ChannelClose) -> None:
        channel = self._channels.get(notice.channel)
        if channel is None:
            return
        self.end_channel(
            channel, ChannelError(f"the broker closed channel {notice.channel}: {notice.text}", reply_code(notice.code))
        )
        self.free(channel)

    def _on_connection_close(self, notice: ConnectionClose) -> None:
        code = reply_code(notice.code)
        if not self.is_open:
            raise AuthenticationFailed(notice.text, code)
        text = f"the broker closed the connection: {notice.text}"
        if code == ReplyCode.CONNECTION_FORCED:
            raise ConnectionLost(text, code)
        if not self.is_up and self._restoring is None:  # it did not let us in again
            raise ConnectionLost(text, code) if code in _PASSING else AuthenticationFailed(notice.text, code)
        raise ConnectionFault(text, code)

    def _on_blocked(self, notice: ConnectionBlocked) -> None:
        self.blocked = notice.reason
        self._goes_straight = False
        self._observer.blocked(notice.reason)

    def _on_unblocked(self, _: ConnectionUnblocked) -> None:
        if self.blocked is not None:
            self.blocked = None
            self.pump()
            self._observer.unblocked()

    def _on_heartbeat(self, _: Heartbeat) -> None:
        """Whoever reads has noticed already."""

    def _answered(self, request: int) -> Asked | None:
        asked = self._replies.pop(request, None)
        if asked is None and not 0 < request <= self._request:
            raise ProtocolError(
                f"the server answered request {request}, which was never asked", ReplyCode.UNEXPECTED_FRAME
            )
        return asked  # None: its channel ended while the answer was on its way


_HANDLERS: Final[dict[type[Operation], Callable[[FrameDispatcher, Any], None]]] = {
    BasicConfirm: FrameDispatcher._on_confirm,
    BasicDeliver: FrameDispatcher._on_deliver,
    Ok: FrameDispatcher._on_ok,
    Refused: FrameDispatcher._on_refused,
    BasicRefused: FrameDispatcher._on_publish_refused,
    BasicReturn: FrameDispatcher._on_return,
    BasicCancelled: FrameDispatcher._on_cancelled,
    ChannelClose: FrameDispatcher._on_channel_close,
    ConnectionClose: FrameDispatcher._on_connection_close,
    ConnectionBlocked: FrameDispatcher._on_blocked,
    ConnectionUnblocked: FrameDispatcher._on_unblocked,
    Heartbeat: FrameDispatcher._on_heartbeat,
}


def publish_error(code: int, text: str) -> RequestError:
    """The exception for messages the broker did not take: its own class where it names a fault, else PublishRefused."""
    return PublishRefused(text) if code == ReplyCode.RESOURCE_ERROR else _named(request_error(code, text))


def _named(error: RequestError) -> RequestError:
    return PublishRefused(error.text, error.code) if type(error) is RequestError else error


def _taken(unconfirmed: dict[int, Published], requests: TagRanges) -> list[Published]:
    taken = []
    for first, last in requests:
        # A range is no longer than what is unconfirmed, unless the server made it up.
        numbers = range(first, last + 1)
        for number in numbers if len(numbers) <= 2 * len(unconfirmed) + 2 else [n for n in unconfirmed if n in numbers]:
            entry = unconfirmed.pop(number, None)
            if entry is not None:
                taken.append(entry)
    return taken
