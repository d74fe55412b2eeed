"""One client connection speaking the native protocol: bytes to session calls, and back.

    accepted ──ConnectionOpen──► authenticating ──Ok──► open ──ConnectionClose──► closed
        └─────── anything else, or 10 s ─────► ConnectionClose ──────────────────────┘

Requests of one channel are carried out in order: while one waits for an answer, what follows on its channel is held.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from shardmq.bus.coordinator_link import Outcome
from shardmq.errors import (
    ChannelError,
    ConnectionFault,
    ProtocolError,
    ReplyCode,
    RequestError,
    ShardmqError,
)
from shardmq.gateway.authentication.authenticator import Credentials
from shardmq.gateway.native.channel import NativeChannel
from shardmq.gateway.native.dispatch import carry_out
from shardmq.gateway.native.publish_check import SLICE_BYTES, SlicedCheck
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client_properties import short
from shardmq.gateway.session.connection import HELD_OVERHEAD_BYTES, ClientConnection
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.time_slices import Turn
from shardmq.limits import (
    CHANNELS_MAX,
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    REQUEST_BYTES_MAX,
    SETTLEMENT_BYTES_MAX,
    frame_bytes_max,
)
from shardmq.message.record import Record, check, check_plain
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.administration import DefinitionsImport
from shardmq.protocol.native.operations.basic import (
    BasicAck,
    BasicCancelled,
    BasicConfirm,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicRefused,
    BasicRenew,
    BasicReturn,
)
from shardmq.protocol.native.operations.codec import FROM_CLIENT, TYPES, decode, encode
from shardmq.protocol.native.operations.connection import (
    PROTOCOL_VERSION,
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
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.reads import ReservationEnd
from shardmq.protocol.native.operations.transaction import TransactionCommit
from shardmq.protocol.translation import to_native
from shardmq.runtime.tls import common_name
from shardmq.version import VERSION

if TYPE_CHECKING:
    from shardmq.gateway.server import Server

NO_ROUTE: Final = "NO_ROUTE"
"""The text of a return; RabbitMQ's."""

_LARGER: Final = dict.fromkeys(
    (TYPES[kind] for kind in (BasicAck, BasicNack, BasicRenew, TransactionCommit, ReservationEnd)),
    SETTLEMENT_BYTES_MAX,
)
"""Frames that may be larger than requests are, beside those that carry messages."""

_HEARTBEAT: Final = encode(Heartbeat())


class NativeConnection(ClientConnection):
    """See the module. One for each accepted socket that speaks it."""

    protocol: ClassVar = "shardmq"
    __slots__ = ("_desks", "_reader", "_server_closed")

    def __init__(self, server: "Server") -> None:
        super().__init__(server)
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._desks: dict[int, NativeChannel] = {}
        self._server_closed: frozenset[int] = frozenset()  # channels; what clients sent before they heard is ignored

    # --- taking in ------------------------------------------------------------------------------------------------

    def take(self, data: memoryview) -> None:
        try:
            for kind, payload in self._reader.feed(data):
                if self._is_closing:
                    return
                self._take(decode(kind, payload, FROM_CLIENT), len(payload))
        except ConnectionFault as fault:
            self.close(fault)

    def _take(self, operation: Operation, size: int) -> None:
        desk = self._desks.get(getattr(operation, "channel", 0))
        if desk is not None:
            if desk.is_waiting or desk.held or self._is_unread:
                size += HELD_OVERHEAD_BYTES
                if desk.held is None:
                    desk.held = deque()
                desk.held.append((operation, size))
                self._hold_more(size)
            else:
                self._take_on_channel(desk, operation)
            return
        kind = type(operation)
        if kind is Heartbeat:
            return
        if kind is ConnectionOpen:
            self._open(operation)  # type: ignore[arg-type]
        elif kind is ConnectionClose:
            self.finish()
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
        self._desks[operation.channel] = NativeChannel(channel)
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

    def _take_on_channel(self, desk: NativeChannel, operation: Operation) -> None:
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

    def _publish(self, desk: NativeChannel, operation: BasicPublish) -> None:
        if self.is_blocked:
            self._hold_publish(desk, operation)
            return
        channel = desk.channel
        try:
            bytes_max = self._server.message_bytes_max
            if operation.count == 1 or len(operation.records) <= SLICE_BYTES:
                records = check(operation.records, operation.count, bytes_max)
            elif check_plain(operation.records, operation.count, bytes_max):
                records = None
            else:
                slices = SlicedCheck(operation.records, operation.count, bytes_max)
                self._check_in_slices(desk, operation, slices)
                return
        except RequestError as error:
            channel.refuse(operation.request, operation.request, error.code, error.text)
            return
        self._send_on(channel, operation, records)

    def _check_in_slices(self, desk: NativeChannel, operation: BasicPublish, slices: SlicedCheck) -> None:
        """Go on with the check of a publish; what follows on its channel waits until it is through."""
        channel = desk.channel
        if self._is_closing or not channel.is_open:
            return
        turn = Turn()
        try:
            while not slices.is_done:
                if turn.is_over:
                    desk.is_waiting = True
                    self._hub.turns.wait(partial(self._check_in_slices, desk, operation, slices))
                    return
                slices.step()
            self._send_on(channel, operation, slices.records)
        except RequestError as error:
            channel.refuse(operation.request, operation.request, error.code, error.text)
        if desk.is_waiting:
            self._go_on(desk)

    def _send_on(self, channel: Channel, operation: BasicPublish, records: list[Record] | None) -> None:
        channel.publish(
            operation.request,
            operation.exchange,
            operation.routing_key,
            operation.flags,
            operation.count,
            operation.records,
            records,
            operation.delay_ms,
            operation.producer,
            operation.sequence,
            operation.transaction,
        )

    def _hold_publish(self, desk: NativeChannel, operation: BasicPublish) -> None:
        size = len(operation.records) + HELD_OVERHEAD_BYTES
        desk.blocked.append((operation, size))
        self._hold_more(size)

    def _request(self, desk: NativeChannel, operation: Any) -> None:
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

    def _go_on(self, desk: NativeChannel) -> None:
        """It is a channel's turn again."""
        desk.is_waiting = False
        if self._desks.get(desk.channel.number) is desk:
            self._catch_up(desk)

    def _catch_up(self, desk: NativeChannel) -> None:
        turn = Turn()
        while desk.held and not (desk.is_waiting or self._is_unread or self._is_closing):
            if turn.is_over:
                desk.is_waiting = True
                self._hub.turns.wait(partial(self._go_on, desk))
                break
            operation, size = desk.held.popleft()
            self._held_bytes -= size
            try:
                self._take_on_channel(desk, operation)
            except ConnectionFault as fault:
                self.close(fault)
        if not desk.held:
            desk.held = None
        self._hold_less()

    def go_on(self) -> None:
        for desk in [desk for desk in self._desks.values() if desk.held]:
            self._catch_up(desk)

    def forget(self) -> None:
        self._desks.clear()

    def _drop_channel(self, number: int) -> None:
        desk = self._desks.pop(number)
        if desk.channel in self._confirming:  # that is told before the channel ends: its number may be used again
            self._confirming.remove(desk.channel)
            self.send_frame(self.encode_confirms(desk.channel))
        held_bytes = sum(size for _, size in (*(desk.held or ()), *desk.blocked))
        desk.held = None
        for operation, _ in desk.blocked:
            text = "the channel was closed while publishing was blocked; not stored"
            self.send_refusal(number, operation.request, operation.request, ReplyCode.RESOURCE_ERROR, text)
        self._hold_less(held_bytes)
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
        login = Credentials(operation.user, operation.password, operation.vhost)
        if not operation.user and not operation.password:  # who its certificate says; "" is nobody's name
            name = common_name(self._transport.get_extra_info("peercert"))
            login = Credentials(name or "", None, operation.vhost)
        self._server.logins.let_in(self.peer, login, lambda fault: self._opened(operation, login.user, fault))

    def _opened(self, operation: ConnectionOpen, user: str, fault: ConnectionFault | None) -> None:
        """Authentication is over."""
        self._is_authenticating = False
        if self._is_closing:
            return
        if fault is not None:
            self.close(fault)
            return
        self.session = Session(self._hub, self, operation.vhost, user)
        self.client = short(operation.client)
        self._server.opened(self, self.session)
        self._allow_frames(self.session.is_administrator)
        self._heartbeat = operation.heartbeat
        properties = {
            "product": "shardmq",
            "version": VERSION,
            "protocol": PROTOCOL_VERSION,
            "heartbeat": operation.heartbeat,
            "frame_max": frame_bytes_max(self._server.message_bytes_max),
            "channel_max": CHANNELS_MAX,
            "message_max": self._server.message_bytes_max,
        }
        self.send(Ok(operation.request, 0, properties))
        self._hub.alarms.join(self)

    def _allow_frames(self, is_administrator: bool) -> None:
        """How large frames may be from now on."""
        larger = {**_LARGER, TYPES[BasicPublish]: frame_bytes_max(self._server.message_bytes_max)}
        if is_administrator:
            larger[TYPES[DefinitionsImport]] = FRAME_BYTES_MAX
        self._reader.allow(REQUEST_BYTES_MAX, larger)

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, send what is waiting, and hang up."""
        if self._is_closing:
            return
        self.send(ConnectionClose(fault.code, fault.text))
        self.finish()

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, operation: Operation) -> None:
        """Queue an operation for the end of the pass."""
        self.send_frame(encode(operation))

    def send_heartbeat(self) -> None:
        self.send_frame(_HEARTBEAT)

    def encode_confirms(self, channel: Channel) -> bytes:
        return encode(BasicConfirm(channel.number, channel.take_confirms()))

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, run: RecordBatch, deliveries: int
    ) -> None:
        run = to_native(run)
        self.send(
            BasicDeliver(
                channel,
                consumer,
                tag,
                redelivered,
                run.exchange,
                run.routing_key,
                run.flags,
                run.timestamp_ms,
                run.origin,
                run.serial,
                run.count,
                run.records,
                deliveries,
            )
        )

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        self.send(BasicRefused(channel, [(first, last)], code, text, taken))

    def send_return(
        self, channel: int, request: int, exchange: str, key: str, flags: int, count: int, records: bytes
    ) -> None:
        self.send(BasicReturn(channel, request, ReplyCode.NO_ROUTE, NO_ROUTE, exchange, key, flags, count, records))

    def send_cancelled(self, channel: int, consumer: str, fault: RequestError | None) -> None:
        if fault is None:
            self.send(BasicCancelled(channel, consumer))
        else:
            self.send(BasicCancelled(channel, consumer, fault.code, fault.text))

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
                self._hold_less(size)
                self._publish(desk, operation)
