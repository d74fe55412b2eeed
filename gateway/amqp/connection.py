"""One client connection speaking AMQP 0-9-1: bytes to session calls, and back.

    header ──start──► starting ──tune──► tuning ──► opening ──open-ok──► running ──close──► closing ──close-ok──► gone

Methods of one channel are carried out in order: while one waits for an answer, what follows on its channel is held.
"""

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final

from shardmq.errors import ConnectionFault, ReplyCode, ShardmqError
from shardmq.gateway.amqp import consuming, declarations, handshake, publishing, sending, transactions
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.crossing import to_amqp
from shardmq.gateway.amqp.faults import NO_METHOD, AmqpFault, as_fault
from shardmq.gateway.amqp.frames import Beat, Came, Event, FrameReader, Published
from shardmq.gateway.amqp.methods import (
    BasicCancel,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUnblocked,
    Method,
)
from shardmq.gateway.channel import Channel
from shardmq.gateway.clients import short
from shardmq.gateway.connection import HELD_OVERHEAD_BYTES, ClientConnection
from shardmq.gateway.logins import Login
from shardmq.gateway.session import Session
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.records import Run

if TYPE_CHECKING:
    from shardmq.gateway.server import Server

HANDLERS: Final[dict[type[Any], Any]] = {**declarations.HANDLERS, **consuming.HANDLERS, **transactions.HANDLERS}
"""What carries out each method on an open channel."""

MECHANISMS: Final = {"PLAIN": handshake.plain, "AMQPLAIN": handshake.amqplain}


class State(Enum):
    """Of a connection; what is expected of the client."""

    HEADER = auto()
    START_OK = auto()
    TUNE_OK = auto()
    OPEN = auto()
    RUNNING = auto()
    CLOSE_OK = auto()


class AmqpConnection(ClientConnection):
    """See the module. One for each accepted socket that speaks it."""

    protocol: ClassVar = "AMQP 0-9-1"
    __slots__ = ("_capabilities", "_desks", "_frame_max", "_header", "_login", "_reader", "_state")

    def __init__(self, server: "Server") -> None:
        super().__init__(server)
        self._state = State.HEADER
        self._header = b""
        self._reader = FrameReader(MESSAGE_BYTES_MAX)
        self._frame_max = 0
        self._login = Login("", None)
        self._capabilities: dict[str, Any] = {}
        self._desks: dict[int, AmqpChannel] = {}

    # --- taking in ------------------------------------------------------------------------------------------------

    def take(self, data: memoryview) -> None:
        received = bytes(data)
        if self._state is State.HEADER:
            received = self._take_header(received)
            if not received:
                return
        try:
            for event in self._reader.feed(received):
                self._take(event)
        except AmqpFault as fault:
            self.close(fault)

    def _take_header(self, received: bytes) -> bytes:
        """Compare the protocol header; returns what came behind it."""
        self._header += received
        wanted = handshake.PROTOCOL_HEADER
        if not wanted.startswith(self._header[: len(wanted)]):
            self.send_frame(wanted)
            self.finish()
            return b""
        if len(self._header) < len(wanted):
            return b""
        rest, self._header = self._header[len(wanted) :], b""
        self._state = State.START_OK
        self.send(0, handshake.start(" ".join(MECHANISMS).encode()))
        return rest

    def _take(self, event: Event) -> None:
        if type(event) is Beat:
            return
        if self._state is State.CLOSE_OK:
            if isinstance(event, Came) and isinstance(event.method, ConnectionClose | ConnectionCloseOk):
                if isinstance(event.method, ConnectionClose):
                    self.send(0, ConnectionCloseOk())
                self.finish()
            return
        if event.channel == 0:
            assert isinstance(event, Came)
            self._take_on_connection(event.method)
            return
        if self._state is not State.RUNNING:
            raise AmqpFault(ReplyCode.CHANNEL_ERROR, f"a frame on channel {event.channel} before connection.open-ok")
        desk = self._desks.get(event.channel)
        if desk is None:
            self._take_off_channel(event)
        elif desk.is_waiting or desk.held or self._is_unread:
            self._hold(desk, event)
        else:
            self._take_on_channel(desk, event)

    def _hold(self, desk: AmqpChannel, event: Event) -> None:
        size = HELD_OVERHEAD_BYTES
        if isinstance(event, Published):
            size += sum([len(body) + len(properties) for properties, body in event.contents])
        if desk.held is None:
            desk.held = deque()
        desk.held.append((event, size))
        self._hold_more(size)

    def _take_on_connection(self, method: Method) -> None:
        match method:
            case ConnectionStartOk() if self._state is State.START_OK and not self._is_authenticating:
                self._authenticate(method)
            case ConnectionTuneOk() if self._state is State.TUNE_OK:
                handshake.check_tuned(method)
                self._frame_max = self._reader.frame_max = method.frame_max
                self._heartbeat = method.heartbeat
                self._state = State.OPEN
            case ConnectionOpen() if self._state is State.OPEN and not self._is_authenticating:
                self._open(method)
            case ConnectionClose():
                self.send(0, ConnectionCloseOk())
                self.finish()
            case _:
                raise AmqpFault(ReplyCode.COMMAND_INVALID, f"{method.name} is not expected now", method.id)

    def _take_off_channel(self, event: Event) -> None:
        if isinstance(event, Came) and isinstance(event.method, ChannelOpen):
            assert self.session is not None
            self._desks[event.channel] = AmqpChannel(self, self.session.open_channel(event.channel))
            self.send(event.channel, ChannelOpenOk())
        elif isinstance(event, Came) and isinstance(event.method, ChannelCloseOk):
            self._reader.ignored -= {event.channel}
        elif isinstance(event, Came) and isinstance(event.method, ChannelClose):
            self.send(event.channel, ChannelCloseOk())
        else:
            method = event.method if isinstance(event, Came | Published) else None
            raise AmqpFault(
                ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", NO_METHOD if method is None else method.id
            )

    def _take_on_channel(self, desk: AmqpChannel, event: Event) -> None:
        assert isinstance(event, Came | Published)
        try:
            if type(event) is Published:
                publishing.publish(desk, event)
            elif isinstance(event, Came):
                self._carry_out(desk, event.method)
        except ShardmqError as error:
            desk.is_waiting = False
            self.fail(desk, error, event.method.id)

    def _carry_out(self, desk: AmqpChannel, method: Method) -> None:
        if isinstance(method, ChannelClose):
            self._drop_channel(desk)
            self.send(desk.number, ChannelCloseOk())
            return
        handler = HANDLERS.get(type(method))
        if handler is None:
            raise AmqpFault(ReplyCode.COMMAND_INVALID, f"{method.name} is not expected here", method.id)
        handler(desk, method)

    def catch_up(self, desk: AmqpChannel) -> None:
        """Carry out what was held on a channel."""
        while desk.held and not (desk.is_waiting or self._is_unread or self._is_closing):
            event, size = desk.held.popleft()
            self._hold_less(size)
            self._take_on_channel(desk, event)
        if not desk.held:
            desk.held = None

    def go_on(self) -> None:
        for desk in [desk for desk in self._desks.values() if desk.held]:
            self.catch_up(desk)

    # --- opening and closing ----------------------------------------------------------------------------------------

    def _authenticate(self, method: ConnectionStartOk) -> None:
        read = MECHANISMS.get(method.mechanism)
        if read is None:
            raise AmqpFault(
                ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'", method.id
            )
        self.client_properties = short(method.client_properties)
        capabilities = method.client_properties.get("capabilities")
        self._capabilities = capabilities if isinstance(capabilities, dict) else {}
        self._login = read(method)
        self._is_authenticating = True
        self._server.logins.authenticate(self.peer, self._login, self._authenticated)

    def _authenticated(self, fault: ConnectionFault | None) -> None:
        self._is_authenticating = False
        if self._is_closing:
            return
        if fault is not None:
            self.close(fault)
            return
        self._state = State.TUNE_OK
        self.send(0, handshake.tune())

    def _open(self, method: ConnectionOpen) -> None:
        self._login = self._login._replace(vhost=method.virtual_host)
        self._is_authenticating = True
        self._server.logins.admit(self.peer, self._login, self._opened)

    def _opened(self, fault: ConnectionFault | None) -> None:
        self._is_authenticating = False
        if self._is_closing:
            return
        if fault is not None:
            self.close(fault)
            return
        self.session = Session(self._hub, self, self._login.vhost, self._login.user)
        self._server.opened(self, self.session)
        self._state = State.RUNNING
        self.send(0, ConnectionOpenOk())
        self._hub.alarms.join(self)

    def fail(self, desk: AmqpChannel, error: ShardmqError, method: tuple[int, int]) -> None:
        """Something on a channel could not be done: the channel ends, or all does."""
        fault = as_fault(error, method)
        if fault.is_hard:
            self.close(fault)
            return
        self._drop_channel(desk)
        self._reader.ignore(desk.number)
        self.send(desk.number, ChannelClose(fault.code, str(fault), *fault.method))

    def _drop_channel(self, desk: AmqpChannel) -> None:
        del self._desks[desk.number]
        if desk.held is not None:
            self._hold_less(sum([size for _, size in desk.held]))
            desk.held = None
        desk.close()
        assert self.session is not None
        self.session.close_channel(desk.number)

    def close(self, fault: ShardmqError) -> None:
        if self._is_closing or self._state is State.CLOSE_OK:
            return
        method = fault.method if isinstance(fault, AmqpFault) else NO_METHOD
        self.send(0, ConnectionClose(fault.code, str(fault), *method))
        self._state = State.CLOSE_OK
        self.forget()

    def forget(self) -> None:
        for desk in self._desks.values():
            desk.close()
        self._desks.clear()

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, channel: int, method: Method) -> None:
        """Queue a method for the end of the pass."""
        self.send_frame(sending.method_frame(channel, method))

    def send_heartbeat(self) -> None:
        self.send_frame(sending.BEAT)

    def send_content_return(self, desk: AmqpChannel, method: BasicPublish, properties: bytes, body: bytes) -> None:
        """A mandatory message that no queue took comes back."""
        self.send(desk.number, BasicReturn(312, "NO_ROUTE", method.exchange, method.routing_key))
        self.send_content(desk.number, properties, body)

    def send_content(self, channel: int, properties: bytes, body: bytes) -> None:
        """A message, behind the method that it belongs to."""
        self.send_frame(sending.content_frames(channel, properties, body, self._frame_max))

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, run: Run, deliveries: int
    ) -> None:
        contents = to_amqp(run, deliveries)
        self.send_frame(
            sending.deliveries(
                channel, consumer, tag, redelivered, run.exchange, run.routing_key, contents, self._frame_max
            )
        )

    def encode_confirms(self, channel: Channel) -> bytes:
        desk = self._desks.get(channel.number)
        ranges = channel.take_confirms()
        if desk is None or not desk.is_confirming:
            return b""
        return sending.acks(channel.number, desk.as_counted(ranges))

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002
        desk = self._desks.get(channel)
        if desk is not None and desk.is_confirming:
            for counted in desk.as_counted([(first, last)]):
                self.send_frame(sending.nacks(channel, *counted))

    def send_return(
        self, channel: int, request: int, exchange: str, key: str, flags: int, count: int, records: bytes  # noqa: ARG002
    ) -> None:
        raise AssertionError("messages that came by AMQP return by send_content_return")

    def send_cancelled(self, channel: int, consumer: str) -> None:
        if self._capabilities.get("consumer_cancel_notify"):
            self.send(channel, BasicCancel(consumer, nowait=True))

    # --- alarms -----------------------------------------------------------------------------------------------------

    def block(self, reason: str) -> None:
        self.is_blocked = True
        if self._capabilities.get("connection.blocked"):
            self.send(0, ConnectionBlocked(reason[:255]))

    def unblock(self) -> None:
        self.is_blocked = False
        if self._capabilities.get("connection.blocked"):
            self.send(0, ConnectionUnblocked())
