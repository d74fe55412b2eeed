"""One client connection speaking the native protocol: bytes to session calls, and back.

    accepted ──ConnectionOpen──► authenticating ──Ok──► open ──ConnectionClose──► closed
        └─────── anything else, or 10 s ─────► ConnectionClose ──────────────────────┘

Requests of one channel are carried out in order: while one waits for an answer, what follows on its channel is held.
"""

import asyncio
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from shardmq.errors import (
    ChannelError,
    ConnectionFault,
    ConnectionLost,
    ProtocolError,
    ReplyCode,
    RequestError,
    ShardmqError,
)
from shardmq.gateway.channel import Channel
from shardmq.gateway.clients import short
from shardmq.gateway.requests import carry_out
from shardmq.gateway.session import Session
from shardmq.gateway.shardlink import Outcome, ShardLink
from shardmq.limits import (
    CHANNELS_MAX,
    FRAME_BYTES_MAX,
    HANDSHAKE_SECONDS,
    HELLO_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SETTLEMENT_BYTES_MAX,
)
from shardmq.records import Run, check
from shardmq.version import VERSION
from shardmq.wire.administration import DefinitionsImport
from shardmq.wire.frames import FrameReader
from shardmq.wire.operations import (
    FROM_CLIENT,
    PROTOCOL_VERSION,
    TYPES,
    BasicAck,
    BasicCancelled,
    BasicConfirm,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicRefused,
    BasicRenew,
    BasicReturn,
    ChannelClose,
    ChannelOpen,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionOpen,
    ConnectionUnblocked,
    Heartbeat,
    Ok,
    Operation,
    Refused,
    decode,
    encode,
)
from shardmq.wire.snapshots import ReservationEnd
from shardmq.wire.transactions import TransactionCommit

if TYPE_CHECKING:
    from shardmq.gateway.server import Server

HELD_BYTES_MAX: Final = 4 << 20
"""Operations held behind requests that wait; past it the socket is not read."""

HELD_OVERHEAD_BYTES: Final = 500
"""What an operation takes at least while it is held."""

UNREAD_BYTES_MAX: Final = 16 << 20
"""A client that does not read what it is sent is not read from either, nor is anything more carried out for it, once
this much is waiting for it: some requests are small and have large answers."""

WRITE_HIGH_WATER_BYTES: Final = 1 << 20
"""A client with more than this unread is given no more credit; small beside a delivery window."""

NO_ROUTE: Final = "NO_ROUTE"
"""The text of a return; RabbitMQ's."""

_READ_BUFFER: Final = memoryview(bytearray(256 << 10))
"""One for all connections: what is read into it is taken out before the loop reads again. A new one for each read costs
page faults (0.1 µs a message in bulk), one for each connection memory."""

_LARGER: Final = {
    TYPES[BasicPublish]: FRAME_BYTES_MAX,
    **dict.fromkeys(
        (TYPES[kind] for kind in (BasicAck, BasicNack, BasicRenew, TransactionCommit, ReservationEnd)),
        SETTLEMENT_BYTES_MAX,
    ),
}
"""Frames that may be larger than requests are."""

_LARGER_OF_ALL: Final = {**_LARGER, TYPES[DefinitionsImport]: FRAME_BYTES_MAX}
"""The same, for administrators."""

_HEARTBEAT: Final = encode(Heartbeat())


def set_socket_options(transport: asyncio.BaseTransport) -> None:
    """Small frames go at once, as a pass already gathers what belongs together; dead peers are probed for."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class _ChannelDesk:
    """A channel's place in the connection.

    Attributes:
        is_waiting: for the answer to a request.
        held: what came behind that request, with the bytes each takes; None where nothing did, as an empty deque takes
            half a kilobyte.
        blocked: publishes held while an alarm is on.
    """

    __slots__ = ("blocked", "channel", "held", "is_waiting")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.is_waiting = False
        self.held: deque[tuple[Operation, int]] | None = None
        self.blocked: list[tuple[BasicPublish, int]] = []


class NativeConnection(asyncio.BufferedProtocol):
    """See the module. One for each accepted socket.

    There may be many thousands that do nothing, hence slots and shared empty sets: of 5,000 with a channel, each takes
    4.6 KB of resident memory, its transport included.
    """

    __slots__ = ("_accepted_at", "_confirming", "_desks", "_heard_at", "_heartbeat", "_held_bytes", "_hub",
                 "_is_authenticating", "_is_closing", "_is_unread", "_out", "_out_bytes", "_reader",
                 "_reading_held_by", "_sent_at", "_server", "_server_closed", "_transport", "client_properties",
                 "connected_at_ms", "is_blocked", "is_tls", "is_writable", "peer", "peer_port", "session")  # fmt: skip

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._hub = server.hub
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self.session: Session | None = None
        self._desks: dict[int, _ChannelDesk] = {}
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._held_bytes = 0
        self._is_unread = False
        self._confirming: list[Channel] = []
        self._server_closed: frozenset[int] = frozenset()  # channels; what clients sent before they heard is ignored
        self._heard_at = self._sent_at = self._accepted_at = time.monotonic()
        self._heartbeat = 0
        self._is_authenticating = False
        self._is_closing = False
        self._reading_held_by: frozenset[str] = frozenset()
        self._transport: asyncio.Transport
        self.is_writable = True
        self.peer = ""
        self.peer_port = 0
        self.is_tls = False
        self.is_blocked = False
        self.connected_at_ms = 0
        self.client_properties: dict[str, Any] = {}

    # --- asyncio.BufferedProtocol ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        set_socket_options(transport)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer, self.peer_port = str(address[0]), address[1]
        self.is_tls = transport.get_extra_info("ssl_object") is not None
        self.connected_at_ms = time.time_ns() // 1_000_000
        self._server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        self._is_closing = True
        self._hub.alarms.leave(self)
        self._server.remove(self)
        if self.session is not None:
            self.session.close()
            self.session = None  # a circle, which would lie around until the collector comes by
        self._desks.clear()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        return _READ_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = time.monotonic()
        try:
            for kind, payload in self._reader.feed(_READ_BUFFER[:nbytes]):
                if self._is_closing:
                    return
                self._take(decode(kind, payload, FROM_CLIENT), len(payload))
        except ConnectionFault as fault:
            self.close(fault)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self._was_read()
        if self.session is not None:
            self.session.socket_has_room()

    # --- taking in ------------------------------------------------------------------------------------------------

    def _take(self, operation: Operation, size: int) -> None:
        desk = self._desks.get(getattr(operation, "channel", 0))
        if desk is not None:
            if desk.is_waiting or desk.held or self._is_unread:
                size += HELD_OVERHEAD_BYTES
                if desk.held is None:
                    desk.held = deque()
                desk.held.append((operation, size))
                self._held_bytes += size
                if self._held_bytes > HELD_BYTES_MAX:
                    self._hold_reading("held")
            else:
                self._take_on_channel(desk, operation)
            return
        kind = type(operation)
        if kind is Heartbeat:
            return
        if kind is ConnectionOpen:
            self._open(operation)  # type: ignore[arg-type]
        elif kind is ConnectionClose:
            self._finish()
        elif self.session is None:
            raise ProtocolError(f"{kind.__name__} before ConnectionOpen was answered", ReplyCode.CHANNEL_ERROR)
        elif isinstance(operation, ChannelOpen):
            self._open_channel(self.session, operation)
        else:
            self._refuse_off_channel(operation)

    def _open_channel(self, session: Session, operation: ChannelOpen) -> None:
        try:
            self._server.check_channels(session)
            channel = session.open_channel(operation.channel)
        except ChannelError as error:
            raise ConnectionFault(error.text, error.code) from error
        except RequestError as error:
            self.send(Refused(operation.request, operation.channel, error.code, error.text))
            return
        self._server_closed -= {operation.channel}
        self._desks[operation.channel] = _ChannelDesk(channel)
        self.send(Ok(operation.request, operation.channel))

    def _refuse_off_channel(self, operation: Operation) -> None:
        """What comes for a channel that is not open: late news for one that the server closed is no fault."""
        number: int = getattr(operation, "channel", 0)
        if number in self._server_closed:
            if isinstance(operation, ChannelClose):
                self._server_closed -= {number}
            if isinstance(operation, BasicPublish):
                self.send_refusal(
                    number, operation.request, operation.request, ReplyCode.CHANNEL_ERROR, "the channel is closed"
                )
            elif hasattr(operation, "request"):
                self.send(Refused(operation.request, number, ReplyCode.CHANNEL_ERROR, f"channel {number} is closed"))
            return
        raise ConnectionFault(
            f"{type(operation).__name__} on channel {number}, which is not open", ReplyCode.CHANNEL_ERROR
        )

    def _take_on_channel(self, desk: _ChannelDesk, operation: Operation) -> None:
        channel = desk.channel
        try:
            if type(operation) is BasicPublish:
                self._publish(desk, operation)
            elif type(operation) is BasicAck:
                for first, last in operation.tags:
                    channel.ack(first, last)
            elif type(operation) is BasicNack:
                for first, last in operation.tags:
                    channel.nack(first, last, operation.requeue, operation.delay_ms)
            elif type(operation) is BasicRenew:
                for first, last in operation.tags:
                    channel.renew(first, last)
            elif type(operation) is ChannelClose:
                self._drop_channel(channel.number)
                self.send(Ok(operation.request, channel.number))
            elif type(operation) is ChannelOpen:
                raise ConnectionFault(f"channel {channel.number} is open already", ReplyCode.CHANNEL_ERROR)
            else:
                self._request(desk, operation)
        except ChannelError as error:
            self._drop_channel(channel.number)
            self._server_closed |= {channel.number}
            self.send(ChannelClose(0, channel.number, error.code, error.text))

    def _publish(self, desk: _ChannelDesk, operation: BasicPublish) -> None:
        if self.is_blocked:
            self._hold_publish(desk, operation)
            return
        channel = desk.channel
        try:
            records = check(operation.records, operation.count)
        except RequestError as error:
            channel.refuse(operation.request, operation.request, error.code, error.text)
            return
        channel.publish(operation.request, operation.exchange, operation.routing_key, operation.flags, operation.count,
                        operation.records, records, operation.delay_ms, operation.producer, operation.sequence,
                        operation.transaction)  # fmt: skip

    def _hold_publish(self, desk: _ChannelDesk, operation: BasicPublish) -> None:
        size = len(operation.records) + HELD_OVERHEAD_BYTES
        desk.blocked.append((operation, size))
        self._held_bytes += size
        if self._held_bytes > HELD_BYTES_MAX:
            self._hold_reading("held")

    def _request(self, desk: _ChannelDesk, operation: Any) -> None:
        answered = False

        def reply(outcome: Outcome) -> None:
            nonlocal answered
            answered = True
            if self._is_closing or not desk.channel.is_open:
                return
            if isinstance(outcome, RequestError):
                self.send(Refused(operation.request, operation.channel, outcome.code, outcome.text))
            else:
                self.send(Ok(operation.request, operation.channel, outcome))
            if desk.is_waiting:
                desk.is_waiting = False
                self._catch_up(desk)

        try:
            carry_out(desk.channel, operation, reply)
        except RequestError as error:
            reply(error)
        desk.is_waiting = not answered

    def _catch_up(self, desk: _ChannelDesk) -> None:
        while desk.held and not (desk.is_waiting or self._is_unread or self._is_closing):
            operation, size = desk.held.popleft()
            self._held_bytes -= size
            try:
                self._take_on_channel(desk, operation)
            except ConnectionFault as fault:
                self.close(fault)
        if not desk.held:
            desk.held = None
        self._hold_less()

    def _hold_less(self) -> None:
        if self._held_bytes <= HELD_BYTES_MAX:
            self._resume_reading("held")

    def _drop_channel(self, number: int) -> None:
        desk = self._desks.pop(number)
        self._held_bytes -= sum(size for _, size in (*(desk.held or ()), *desk.blocked))
        desk.held = None
        for operation, _ in desk.blocked:
            text = "the channel was closed while publishing was blocked; not stored"
            self.send_refusal(number, operation.request, operation.request, ReplyCode.RESOURCE_ERROR, text)
        self._hold_less()
        assert self.session is not None
        self.session.close_channel(number)

    # --- opening and closing ----------------------------------------------------------------------------------------

    def _open(self, operation: ConnectionOpen) -> None:
        if self.session is not None or self._is_authenticating:
            raise ProtocolError("the connection is open already", ReplyCode.COMMAND_INVALID)
        if operation.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"protocol version {operation.version}; this broker speaks {PROTOCOL_VERSION}",
                ReplyCode.NOT_IMPLEMENTED,
            )
        self._is_authenticating = True
        self._server.authenticate(self, operation)

    def opened(self, operation: ConnectionOpen, fault: ConnectionFault | None) -> None:
        """Authentication is over."""
        self._is_authenticating = False
        if self._is_closing:
            return
        if fault is not None:
            self.close(fault)
            return
        self.session = Session(self._hub, self, operation.vhost, operation.user)
        self.client_properties = short(operation.client)
        self._server.opened(self, self.session)
        self._reader.allow(REQUEST_BYTES_MAX, _LARGER_OF_ALL if self.session.is_administrator else _LARGER)
        self._heartbeat = operation.heartbeat
        properties = {
            "product": "shardmq",
            "version": VERSION,
            "protocol": PROTOCOL_VERSION,
            "heartbeat": operation.heartbeat,
            "frame_max": FRAME_BYTES_MAX,
            "channel_max": CHANNELS_MAX,
        }
        self.send(Ok(operation.request, 0, properties))
        self._hub.alarms.join(self)

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, send what is waiting, and hang up."""
        if self._is_closing:
            return
        self.send(ConnectionClose(fault.code, fault.text))
        self._finish()

    def _finish(self) -> None:
        self._is_closing = True  # before the flush, which would go on with what is held
        self.flush()
        if self.session is not None:
            self.session.close()
            self.session.channels.clear()
        self._desks.clear()
        self._transport.close()

    def stop_reading(self) -> None:
        """The process is about to stop: what is under way will be answered, nothing more is begun."""
        self._hold_reading("stopping")

    def abort_if_silent(self, now: float) -> None:
        """Called about once a second: enforces the handshake's time and the heartbeat, and sends ours."""
        if self._is_closing:
            if not self.is_writable and now - self._sent_at > HANDSHAKE_SECONDS:
                self._transport.abort()
        elif self.session is None:
            if now - self._accepted_at > HANDSHAKE_SECONDS and not self._is_authenticating:
                self.close(ConnectionLost(f"no ConnectionOpen within {HANDSHAKE_SECONDS:.0f} s"))
        elif self._heartbeat:
            if now - self._sent_at >= self._heartbeat / 2:
                self._out.append(_HEARTBEAT)
                self.flush()
            if now - self._heard_at > 2 * self._heartbeat and not self._reading_held_by:
                self.close(
                    ConnectionLost(f"nothing heard for {2 * self._heartbeat} s; the heartbeat is {self._heartbeat} s")
                )

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, operation: Operation) -> None:
        """Queue an operation for the end of the pass."""
        self.send_frame(encode(operation))

    def send_frame(self, frame: bytes) -> None:
        """Queue a frame for the end of the pass."""
        if not self._out:
            self._hub.write_due(self)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > UNREAD_BYTES_MAX:
            self._is_unread = True

    def flush(self) -> None:
        """Write what is queued, as one piece."""
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            for channel in confirming:
                self._out.append(encode(BasicConfirm(channel.number, channel.take_confirms())))
        if not self._out or self._transport.is_closing():
            return
        out, self._out, self._out_bytes = self._out, [], 0
        self._sent_at = time.monotonic()
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        if not self.is_writable and self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._is_unread = True
            self._hold_reading("unread")
        elif self._is_unread:
            self._was_read()

    def _was_read(self) -> None:
        """There is room for more answers: go on with what was held for the lack of it."""
        self._is_unread = False
        self._resume_reading("unread")
        for desk in [desk for desk in self._desks.values() if desk.held]:
            self._catch_up(desk)

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, run: Run, deliveries: int
    ) -> None:
        self.send(
            BasicDeliver(channel, consumer, tag, redelivered, run.exchange, run.routing_key, run.flags,
                         run.timestamp_ms, run.origin, run.serial, run.count, run.records, deliveries)
        )  # fmt: skip

    def confirms_due(self, channel: Channel) -> None:
        if not self._confirming:
            self._hub.write_due(self)
        self._confirming.append(channel)

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        self.send(BasicRefused(channel, [(first, last)], code, text, taken))

    def send_return(
        self, channel: int, request: int, exchange: str, key: str, flags: int, count: int, records: bytes
    ) -> None:
        self.send(BasicReturn(channel, request, ReplyCode.NO_ROUTE, NO_ROUTE, exchange, key, flags, count, records))

    def send_cancelled(self, channel: int, consumer: str) -> None:
        self.send(BasicCancelled(channel, consumer))

    # --- alarms -----------------------------------------------------------------------------------------------------

    def block(self, reason: str) -> None:
        self.is_blocked = True
        if not self._is_closing:
            self.send(ConnectionBlocked(reason))

    def unblock(self) -> None:
        self.is_blocked = False
        if self._is_closing:
            return
        self.send(ConnectionUnblocked())
        for desk in list(self._desks.values()):
            blocked, desk.blocked = desk.blocked, []
            for operation, size in blocked:
                self._held_bytes -= size
                self._publish(desk, operation)
        self._hold_less()

    # --- back-pressure ----------------------------------------------------------------------------------------------

    def hold_publishing(self, link: ShardLink) -> None:
        reason = f"publishing to {link.name}"
        if reason not in self._reading_held_by:
            self._hold_reading(reason)
            link.confirms.relieved.append(lambda: self._resume_reading(reason))

    def _hold_reading(self, reason: str) -> None:
        if not self._reading_held_by and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reading_held_by |= {reason}

    def _resume_reading(self, reason: str) -> None:
        if reason in self._reading_held_by:
            self._reading_held_by -= {reason}
            if not self._reading_held_by and not self._transport.is_closing():
                self._heard_at = time.monotonic()
                self._transport.resume_reading()
