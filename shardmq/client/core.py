"""A client's side of one connection, without any I/O: bytes in, answers out to whoever waits; requests in, bytes out.

The threaded and the asyncio connection drive the same core. It calls nobody's code but the small things handed in with
a request: a `Reply` to settle, `Confirms` to count down, an `Inbox` for deliveries. It is not safe from several
threads at once; its owner sees to that. Once it is lost, everything waiting has been told and every request raises.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from shardmq.client.deliveries import AutoAcked, Delivery, Settler
from shardmq.client.ports import Confirms, Inbox, Reply
from shardmq.client.results import result_of
from shardmq.client.settlements import Settlements
from shardmq.client.url import Address
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
    ResourceLocked,
    ShardmqError,
    reply_code,
    request_error,
)
from shardmq.limits import CHANNELS_MAX
from shardmq.ranges import RangeSet
from shardmq.wire.frames import FrameReader
from shardmq.wire.operations import (
    FROM_SERVER,
    PROTOCOL_VERSION,
    BasicCancel,
    BasicCancelled,
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicRefused,
    ChannelClose,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Heartbeat,
    Ok,
    Operation,
    Ranges,
    Refused,
    decode,
    encode,
)


class ServerProperties(msgspec.Struct, frozen=True):
    """What the server said of itself when the connection opened."""

    product: str = ""
    version: str = ""
    protocol: int = PROTOCOL_VERSION
    heartbeat: int = 0
    frame_max: int = 0
    channel_max: int = CHANNELS_MAX


class _Consumer(msgspec.Struct, frozen=True):
    consumer: str


Finish = Callable[[Any], Any]
"""Makes of an Ok's result what its Reply gets."""

_CONNECTION: Final = 0


class ChannelCore:
    """What the core keeps of an open channel.

    Attributes:
        number: of the channel.
        settler: passes on the acks of its messages.
        inboxes: its consumers' by their tag.
        manual: tags of those consumers whose messages are acked.
        unconfirmed: its publishes by request number: who counts, and how many messages.
        unacked: delivery tags that came and are not settled with the broker.
        settlements: acks and nacks the broker was not told yet.
        fault: why it is closed, if it is.
    """

    __slots__ = ("fault", "inboxes", "manual", "number", "settlements", "settler", "unacked", "unconfirmed")

    def __init__(self, number: int, settler: Settler) -> None:
        self.number = number
        self.settler = settler
        self.inboxes: dict[str, Inbox] = {}
        self.manual: set[str] = set()
        self.unconfirmed: dict[int, tuple[Confirms, int]] = {}
        self.unacked = RangeSet()
        self.settlements = Settlements()
        self.fault: ShardmqError | None = None

    def unacked_up_to(self, delivery_tag: int) -> Ranges:
        """What acking a tag with `multiple` means: all that is unacked up to it (0: all there is), else itself."""
        end = delivery_tag + 1 if delivery_tag else 2**63
        return [(first, stop - 1) for first, stop in self.unacked.within(1, end)] or [(delivery_tag, delivery_tag)]


def again(error: ShardmqError) -> ShardmqError:
    """A fresh exception that says the same: each thread that meets a fault raises its own."""
    fresh = type(error)(error.text, error.code)
    fresh.__cause__ = error
    return fresh


class Core:
    """The connection: numbers requests, matches answers, hands out deliveries.

    Args:
        address: whom to be, where.
        heartbeat: seconds to propose, 0 for none.
    """

    def __init__(self, address: Address, heartbeat: int) -> None:
        self.fault: ShardmqError | None = None
        self.is_open = False
        self.server = ServerProperties()
        self.undelivered = 0
        """Bytes that came for consumers and were not taken yet. Who takes them counts it down."""
        self.outgoing: list[bytes] = []
        """Frames to be sent, for the owner to take."""
        self._address = address
        self._heartbeat = heartbeat
        self._reader = FrameReader()
        self._request = 0
        self._replies: dict[int, tuple[int, Reply, Finish | None]] = {}
        self._channels: dict[int, ChannelCore] = {}
        self._free_numbers: list[int] = []
        self._handlers: dict[type[Operation], Callable[[Any], None]] = {
            BasicConfirm: self._on_confirm,
            BasicDeliver: self._on_deliver,
            Ok: self._on_ok,
            Refused: self._on_refused,
            BasicRefused: self._on_publish_refused,
            BasicCancelled: self._on_cancelled,
            ChannelClose: self._on_channel_close,
            ConnectionClose: self._on_connection_close,
            Heartbeat: lambda _: None,
        }

    # --- requests: each leaves its frame in `outgoing` ------------------------------------------------------------

    def open(self, client: dict[str, Any], reply: Reply) -> None:
        """Say who we are; the first request.

        Raises:
            ConnectionFault: the server hung up before that.
        """
        self.check()
        address = self._address

        def finish(result: Any) -> ServerProperties:
            self.server = result_of(ServerProperties, result)
            self.is_open = True
            return self.server

        number = self._expect(_CONNECTION, reply, finish)
        self._send(ConnectionOpen(number, PROTOCOL_VERSION, address.user, address.password, address.vhost,
                                  self._heartbeat, client))  # fmt: skip

    def open_channel(self, settler: Settler, reply: Reply) -> ChannelCore:
        """Open the next free channel.

        Raises:
            ResourceLocked: the connection has as many as it may.
            ConnectionFault: it is closed.
        """
        self.check()
        number = self._free_numbers.pop() if self._free_numbers else len(self._channels) + 1
        if number > min(CHANNELS_MAX, self.server.channel_max):
            raise ResourceLocked(f"{number - 1} channels are open; close one, or open another connection")
        channel = self._channels[number] = ChannelCore(number, settler)
        self._send(ChannelOpen(self._expect(number, reply), number))
        return channel

    def close_channel(self, channel: ChannelCore, error: ChannelError, reply: Reply) -> None:
        """Close it; what is still waited for on it fails with `error`, but for this request's own answer."""
        self.check(channel)
        self._end_channel(channel, error)

        def finish(_: Any) -> None:
            self._free(channel)

        self._send(ChannelClose(self._expect(_CONNECTION, reply, finish), channel.number))

    def request(self, kind: Callable[..., Operation], channel: ChannelCore, reply: Reply, *fields: Any) -> None:
        """Ask for anything that is answered by an Ok.

        Args:
            kind: the operation; its first two fields are the request number and the channel.
            channel: on which.
            reply: gets the Ok's result.
            fields: the operation's other fields.

        Raises:
            ShardmqError: channel or connection are closed.
        """
        self.check(channel)
        self._send(kind(self._request + 1, channel.number, *fields))
        self._expect(channel.number, reply)

    def consume(
        self, channel: ChannelCore, queue: str, tag: str, auto_ack: bool, prefetch: int, inbox: Inbox, reply: Reply
    ) -> None:
        """Start a consumer; the reply gets its tag, the inbox every delivery behind it."""
        self.check(channel)

        def finish(result: Any) -> str:
            consumer = result_of(_Consumer, result).consumer
            if reply.done():
                self._send(BasicCancel(self._expect(channel.number, reply), channel.number, consumer))
            else:
                channel.inboxes[consumer] = inbox
                if not auto_ack:
                    channel.manual.add(consumer)
            return consumer

        self._send(BasicConsume(self._request + 1, channel.number, queue, tag, auto_ack, prefetch))
        self._expect(channel.number, reply, finish)

    def cancel(self, channel: ChannelCore, tag: str, reply: Reply) -> None:
        """End a consumer; its inbox is told when the last delivery has come."""
        self.check(channel)

        def finish(_: Any) -> None:
            inbox = channel.inboxes.pop(tag, None)
            channel.manual.discard(tag)
            if inbox is not None:
                inbox.end(None)

        self._send(BasicCancel(self._request + 1, channel.number, tag))
        self._expect(channel.number, reply, finish)

    def get(self, channel: ChannelCore, queue: str, auto_ack: bool, reply: Reply) -> None:
        """One message; the reply gets a Delivery or None."""
        self.check(channel)

        def finish(result: Any) -> Delivery | None:
            if result is None:
                return None
            frame = _got(result)
            if auto_ack:
                return Delivery(frame, _AUTO_ACKED)
            channel.unacked.add(frame.tag, frame.tag + frame.count)
            if reply.done():
                self._give_back(channel, frame)
            return Delivery(frame, channel.settler)

        self._send(BasicGet(self._request + 1, channel.number, queue, auto_ack))
        self._expect(channel.number, reply, finish)

    def publish(self, channel: ChannelCore, exchange: str, routing_key: str, flags: int, count: int, records: bytes,
                confirms: Confirms) -> None:  # fmt: skip
        """Publish a run; `confirms` hears of its `count` messages once."""
        self.check(channel)
        number = self._request + 1
        self._send(BasicPublish(number, channel.number, exchange, routing_key, flags, count, records))
        self._request = number
        channel.unconfirmed[number] = (confirms, count)

    def flush_settlements(self, channel: ChannelCore) -> None:
        """Tell the broker what was acked and nacked."""
        if channel.fault is not None or not channel.settlements.count:
            return
        frames, ranges = channel.settlements.take(channel.number)
        self.outgoing += frames
        for first, last in ranges:
            channel.unacked.remove(first, last + 1)

    def heartbeat(self) -> None:
        """A sign of life."""
        self.outgoing.append(_HEARTBEAT)

    def close(self, error: ConnectionLost) -> None:
        """Say goodbye; everything waiting fails with `error`. The server closes the socket when all was sent."""
        if self.fault is None:
            self._send(ConnectionClose(0, "closed by the client"))
            self.lose(error)

    def accuse(self, fault: ProtocolError) -> None:
        """Tell the server what was wrong with what it sent; the last thing said."""
        self._send(ConnectionClose(int(fault.code), fault.text))

    def check(self, channel: ChannelCore | None = None) -> None:
        """Raise what closed the connection or the channel, if something did."""
        if self.fault is not None:
            raise again(self.fault)
        if channel is not None and channel.fault is not None:
            raise again(channel.fault)

    # --- what comes ------------------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview) -> None:
        """Take in what was read, and settle all that it settles.

        Raises:
            ProtocolError: the server sent what is no answer; the connection is of no use any more.
            ConnectionFault: it closed the connection, and says why.
        """
        handlers = self._handlers
        for kind, payload in self._reader.feed(data):
            operation = decode(kind, payload, FROM_SERVER)
            handlers[type(operation)](operation)

    def lose(self, error: ShardmqError) -> None:
        """The connection is gone: everybody waiting is told, once."""
        if self.fault is not None:
            return
        self.fault = error
        replies, self._replies = self._replies, {}
        for _, reply, _ in replies.values():
            if not reply.done():
                reply.set_exception(again(error))
        for channel in list(self._channels.values()):
            self._end_channel(channel, error)
        self._channels.clear()

    def _on_ok(self, answer: Ok) -> None:
        _, reply, finish = self._answered(answer.request)
        result = answer.result if finish is None else finish(answer.result)
        if not reply.done():
            reply.set_result(result)

    def _on_refused(self, answer: Refused) -> None:
        _, reply, _ = self._answered(answer.request)
        error: ShardmqError
        if self.is_open:
            error = request_error(answer.code, answer.text)
        else:
            error = AuthenticationFailed(answer.text, reply_code(answer.code))
        if not reply.done():
            reply.set_exception(error)

    def _on_confirm(self, confirm: BasicConfirm) -> None:
        channel = self._channels.get(confirm.channel)
        if channel is not None:
            for confirms, count in _taken(channel.unconfirmed, confirm.requests):
                confirms.settled(count, None)

    def _on_publish_refused(self, refusal: BasicRefused) -> None:
        channel = self._channels.get(refusal.channel)
        if channel is not None:
            for confirms, count in _taken(channel.unconfirmed, refusal.requests):
                confirms.settled(count, publish_error(refusal.code, refusal.text))

    def _on_deliver(self, frame: BasicDeliver) -> None:
        channel = self._channels.get(frame.channel)
        if channel is None or channel.fault is not None:
            return  # it crossed our ChannelClose; the broker takes it back
        inbox = channel.inboxes.get(frame.consumer)
        if inbox is None:
            self._give_back(channel, frame)
            return
        settler: Settler = _AUTO_ACKED
        if frame.consumer in channel.manual:
            channel.unacked.add(frame.tag, frame.tag + frame.count)
            settler = channel.settler
        self.undelivered += len(frame.records)
        inbox.deliver(Delivery(frame, settler))

    def _on_cancelled(self, notice: BasicCancelled) -> None:
        channel = self._channels.get(notice.channel)
        inbox = channel.inboxes.pop(notice.consumer, None) if channel is not None else None
        if inbox is not None:
            inbox.end(NotFound(f"the queue of consumer '{notice.consumer}' was deleted"))

    def _on_channel_close(self, notice: ChannelClose) -> None:
        channel = self._channels.get(notice.channel)
        if channel is None:
            return
        self._end_channel(channel, ChannelError(f"the broker closed channel {notice.channel}: {notice.text}",
                                                reply_code(notice.code)))  # fmt: skip
        self._free(channel)

    def _on_connection_close(self, notice: ConnectionClose) -> None:
        code = reply_code(notice.code)
        if not self.is_open:
            raise AuthenticationFailed(notice.text, code)
        text = f"the broker closed the connection: {notice.text}"
        raise ConnectionLost(text, code) if code == ReplyCode.CONNECTION_FORCED else ConnectionFault(text, code)

    def _end_channel(self, channel: ChannelCore, error: ShardmqError) -> None:
        channel.fault = error
        for request in [number for number, (owner, _, _) in self._replies.items() if owner == channel.number]:
            _, reply, _ = self._replies.pop(request)
            if not reply.done():
                reply.set_exception(again(error))
        unconfirmed, channel.unconfirmed = channel.unconfirmed, {}
        for confirms, count in unconfirmed.values():
            confirms.settled(count, again(error))
        inboxes, channel.inboxes = channel.inboxes, {}
        for inbox in inboxes.values():
            inbox.end(again(error))

    def _free(self, channel: ChannelCore) -> None:
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]
            self._free_numbers.append(channel.number)

    def _give_back(self, channel: ChannelCore, frame: BasicDeliver) -> None:
        tags = [(frame.tag, frame.tag + frame.count - 1)]
        channel.unacked.remove(frame.tag, frame.tag + frame.count)
        self._send(BasicNack(channel.number, tags, True))

    def _answered(self, request: int) -> tuple[int, Reply, Finish | None]:
        entry = self._replies.pop(request, None)
        if entry is not None:
            return entry
        if 0 < request <= self._request:
            return _CONNECTION, _NOBODY, None  # its channel ended while the answer was on its way
        raise ProtocolError(f"the server answered request {request}, which was never asked", ReplyCode.UNEXPECTED_FRAME)

    def _expect(self, channel: int, reply: Reply, finish: Finish | None = None) -> int:
        self._request += 1
        self._replies[self._request] = (channel, reply, finish)
        return self._request

    def _send(self, operation: Operation) -> None:
        self.outgoing.append(encode(operation))


class _Nobody:
    def done(self) -> bool:
        return True

    def set_result(self, _result: Any, /) -> None:
        raise AssertionError("nobody waits")

    def set_exception(self, _error: Any, /) -> None:
        raise AssertionError("nobody waits")


_NOBODY: Final = _Nobody()
_AUTO_ACKED: Final = AutoAcked()
_HEARTBEAT: Final = encode(Heartbeat())


def publish_error(code: int, text: str) -> RequestError:
    """The exception for messages the broker did not take: its own class where it names a fault, else PublishRefused."""
    return PublishRefused(text) if code == ReplyCode.RESOURCE_ERROR else _named(request_error(code, text))


def _named(error: RequestError) -> RequestError:
    return PublishRefused(error.text, error.code) if type(error) is RequestError else error


def _taken(unconfirmed: dict[int, tuple[Confirms, int]], requests: Ranges) -> list[tuple[Confirms, int]]:
    taken = []
    for first, last in requests:
        # A range is no longer than what is unconfirmed, unless the server made it up.
        numbers = range(first, last + 1)
        for number in numbers if len(numbers) <= 2 * len(unconfirmed) + 2 else [n for n in unconfirmed if n in numbers]:
            entry = unconfirmed.pop(number, None)
            if entry is not None:
                taken.append(entry)
    return taken


def _got(result: Any) -> BasicDeliver:
    table = result if isinstance(result, dict) else {}
    try:
        return msgspec.convert([table.get(name) for name in BasicDeliver.__struct_fields__], BasicDeliver)
    except msgspec.ValidationError as fault:
        raise ProtocolError(f"the server's answer to BasicGet: {fault}", ReplyCode.SYNTAX_ERROR) from fault
