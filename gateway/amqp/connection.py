"""One client connection speaking AMQP 0-9-1: bytes to session calls, and back.

    opening ──open-ok──► running ──connection.close from us──► parting ──close-ok, or no time left──► finished
                            └─────connection.close from the client──► leaving ──close-ok────────────────►┘

Who hangs up, and when: `close` tells the client why and waits for close-ok; `fail` ends one channel, or all where the
fault is that hard; `leave` answers a client that closes; `finish`, the socket's side, says no more. opening.py has all
that comes before.

Methods of one channel are carried out in order: while one waits for an answer, or a publish for an alarm to go off,
what follows on its channel is held.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from shardmq.errors import ReplyCode, RequestError, ShardmqError
from shardmq.gateway.amqp import consume as consuming
from shardmq.gateway.amqp import publish as publishing
from shardmq.gateway.amqp.channel import AmqpChannel, OnChannel
from shardmq.gateway.amqp.dispatch import HANDLERS
from shardmq.gateway.amqp.opening import Handshake
from shardmq.gateway.authentication.authenticator import Credentials
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.connection import HELD_OVERHEAD_BYTES, PARTING_SECONDS, ClientConnection
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.time_slices import Turn
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp.errors import AmqpError, as_amqp_error
from shardmq.protocol.amqp.events import (
    AcksReceived,
    Event,
    HeartbeatReceived,
    MethodReceived,
    PublishesReceived,
    PublishTooLarge,
)
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods.basic import BasicReturn
from shardmq.protocol.amqp.methods.connection import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpenOk,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.translation import to_amqp
from shardmq.runtime.tls import common_name

if TYPE_CHECKING:
    import asyncio

    from shardmq.gateway.server import Server


CHANNEL_NUMBERS: Final = 2**16 - 1
"""The highest number a channel may have; how many there may be is agreed on."""

SILENT_SECONDS: Final = 3.0
"""How long a stranger who made a mistake waits for nothing, as in RabbitMQ (`SILENT_CLOSE_DELAY`): nobody tries
passwords fast."""

_log = logging.getLogger(__name__)


class AmqpConnection(ClientConnection):
    """See the module. One for each accepted socket that speaks it.

    Attributes:
        capabilities: what the client is able to hear of, those of `handshake.ASKED_CAPABILITIES`.
    """

    protocol: ClassVar = "AMQP 0-9-1"
    __slots__ = (
        "_channel_max",
        "_desks",
        "_frame_max",
        "_is_deaf",
        "_is_leaving",
        "_is_told_blocked",
        "_opening",
        "_reader",
        "_words_due",
        "capabilities",
    )

    def __init__(self, server: "Server") -> None:
        super().__init__(server)
        self._opening: Handshake | None = None
        self._reader = FrameReader(0)  # nobody publishes before the connection is open
        self._frame_max = self._channel_max = 0
        self._desks: dict[int, AmqpChannel] = {}
        self._is_leaving = False
        self._is_deaf = False  # nothing that still comes is looked at
        self._words_due = False  # the last ones, once exclusive queues are gone
        self._is_told_blocked = False
        self.capabilities: frozenset[str] = frozenset()

    @property
    def message_bytes_max(self) -> int:
        """What a message's body may have."""
        return self._server.message_bytes_max

    def connection_made(self, transport: "asyncio.BaseTransport") -> None:
        super().connection_made(transport)
        self._opening = Handshake(self, self._server.logins, common_name(transport.get_extra_info("peercert")))

    # --- taking in ------------------------------------------------------------------------------------------------

    def take(self, data: memoryview) -> None:
        if self._is_deaf:
            return
        received = bytes(data)
        if self._opening is not None:
            received = self._opening.take_header(received)
        try:
            for event in self._reader.feed(received):
                self._take(event)
        except AmqpError as fault:  # nothing that comes behind it can be understood, not even close-ok
            if self._is_deaf:
                return
            self._is_deaf = True
            if self._is_closing:
                if not self._words_due:
                    self.finish()
            elif self._opening is None or self._opening.is_known:
                self._say_goodbye(fault, self.finish)
            else:
                self.close(fault)

    def _take(self, event: Event) -> None:
        desk = self._desks.get(event.channel)
        try:
            if desk is not None:
                assert not isinstance(event, HeartbeatReceived)
                if desk.is_waiting or desk.held or self._is_unread or self._is_blocked_by(event):
                    self._hold(desk, event)
                else:
                    self._take_on_channel(desk, event)
            elif self._is_closing:
                self._take_goodbye(event)
            elif isinstance(event, HeartbeatReceived):
                pass
            elif self._opening is not None:
                self._opening.take(event)
            elif isinstance(event, MethodReceived) and not event.channel:
                self._take_on_connection(event.method)
            else:
                self._take_off_channel(event)
        except AmqpError as fault:
            self.close(fault)

    def _take_on_connection(self, method: Method) -> None:
        match method:
            case ConnectionClose():
                self.leave()
            case ConnectionUpdateSecret():  # of no consequence: passwords are looked at once
                self.send(0, ConnectionUpdateSecretOk())
            case _:
                text = "unexpected method in connection state running"
                raise AmqpError(ReplyCode.CHANNEL_ERROR, text, method.id)

    def _take_off_channel(self, event: OnChannel) -> None:
        """What comes for a channel that is not open, or that we closed and the client may not have heard of."""
        number = event.channel
        method = event.method if isinstance(event, MethodReceived) else None
        if number in self._reader.ignored and not isinstance(event, PublishTooLarge):
            if isinstance(method, ChannelCloseOk):
                self._reader.ignored -= {number}
            elif isinstance(method, ChannelClose):  # at the same time
                self.send(number, ChannelCloseOk())
        elif isinstance(method, ChannelOpen):
            self._open_channel(number)
        else:
            raise AmqpError(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", event.method.id)

    def _open_channel(self, number: int) -> None:
        assert self.session is not None
        opened = len(self._desks) + len(self._reader.ignored)
        if opened >= self._channel_max:
            text = f"number of channels opened ({opened}) has reached the negotiated channel_max ({self._channel_max})"
            raise AmqpError(ReplyCode.NOT_ALLOWED, text)
        try:
            self._server.check_channels(self.session)
        except RequestError as error:
            raise AmqpError(error.code, error.text) from error
        self._desks[number] = AmqpChannel(self, self.session.open_channel(number, CHANNEL_NUMBERS))
        self.send(number, ChannelOpenOk())

    def _take_on_channel(self, desk: AmqpChannel, event: OnChannel) -> None:
        try:
            if type(event) is PublishesReceived:
                publishing.publish(desk, event)
            elif type(event) is AcksReceived:
                consuming.acked(desk, event.ranges)
            elif isinstance(event, PublishTooLarge):
                raise event.fault
            else:
                self._carry_out(desk, event.method)
        except ShardmqError as error:
            desk.is_waiting = False
            self.fail(desk, error, event.method.id)

    def _carry_out(self, desk: AmqpChannel, method: Method) -> None:
        handler = HANDLERS.get(type(method))
        if handler is not None:
            handler(desk, method)
        elif isinstance(method, ChannelClose):
            self._close_channel(desk)
        elif isinstance(method, ChannelOpen):
            raise AmqpError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", method.id)
        else:
            raise AmqpError(ReplyCode.COMMAND_INVALID, "unimplemented method", method.id)

    # --- what is held -----------------------------------------------------------------------------------------------

    def _hold(self, desk: AmqpChannel, event: OnChannel) -> None:
        size = HELD_OVERHEAD_BYTES
        if isinstance(event, PublishesReceived):
            size += event.size
        if desk.held is None:
            desk.held = deque()
        desk.held.append((event, size))
        self._hold_more(size)
        if self.is_blocked and isinstance(event, MethodReceived) and isinstance(event.method, ChannelClose):
            self._go_past_alarm(desk)

    def catch_up(self, desk: AmqpChannel) -> None:
        """Carry out what was held on a channel, as far as nothing holds it any more.

        Some of it is answered at once, which ends up here again: the loop goes on by itself.
        """
        if desk.is_catching_up:
            return
        desk.is_catching_up = True
        turn = Turn()
        while desk.held and not (desk.is_waiting or desk.is_resting or self._is_unread or self._is_closing):
            if turn.is_over:
                desk.is_resting = True
                self._hub.turns.wait(partial(self._go_on, desk))
                break
            event, size = desk.held[0]
            if self._is_blocked_by(event) and not desk.is_parting:
                break
            desk.held.popleft()
            self._hold_less(size)
            self._take_on_channel(desk, event)
        desk.is_catching_up = False
        if not desk.held:
            desk.held = None
        if self._is_leaving:
            self.leave()

    def _go_on(self, desk: AmqpChannel) -> None:
        """It is a channel's turn again."""
        desk.is_resting = False
        if self._desks.get(desk.number) is desk:
            self.catch_up(desk)

    def _go_past_alarm(self, desk: AmqpChannel) -> None:
        """A channel that publishes under an alarm can be closed at any time. What is held then is little, and has been
        taken from the client, who may ask for no confirms: it goes on.
        """
        desk.is_parting = True
        if not desk.is_waiting:
            self.catch_up(desk)

    def go_on(self) -> None:
        for desk in [desk for desk in self._desks.values() if desk.held]:
            self.catch_up(desk)

    # --- opening ------------------------------------------------------------------------------------------------------

    def begin_check(self) -> None:
        """It is being found out whether the client may come in. However long that takes is not the client's fault."""
        self._is_authenticating = True

    def end_check(self) -> bool:
        """It was found out. Returns whether the client is still there."""
        self._is_authenticating = False
        return not self._is_closing

    def refuse_login(self, fault: AmqpError) -> None:
        """The client is not who it says; clients without that capability take it for granted that they know."""
        if "authentication_failure_close" in self.capabilities:
            self._say_goodbye(fault)
        else:
            self._part_silently()

    def tuned(self, method: ConnectionTuneOk) -> None:
        """Limits are agreed on."""
        self._frame_max = self._reader.frame_max = method.frame_max
        self._channel_max = method.channel_max
        self._heartbeat = method.heartbeat

    def opened(self, login: Credentials) -> None:
        """The client is let in."""
        self._opening = None
        self._reader.message_max = self.message_bytes_max
        self.session = Session(self._hub, self, login.vhost, login.user)
        self._server.opened(self, self.session)
        self.send(0, ConnectionOpenOk())
        self._hub.alarms.join(self)

    # --- closing ------------------------------------------------------------------------------------------------------

    def fail(self, desk: AmqpChannel, error: ShardmqError, method: tuple[int, int]) -> None:
        """Something on a channel could not be done: the channel ends, or all does."""
        if self._is_closing:
            return
        fault = as_amqp_error(error, method)
        if fault.is_hard:
            self.close(fault)
            return
        is_closed_by_both = any(
            isinstance(event, MethodReceived) and isinstance(event.method, ChannelClose) for event, _ in desk.held or ()
        )
        self._drop_channel(desk)
        self._reader.ignore(desk.number)
        self.send(desk.number, ChannelClose(fault.code, str(fault), *fault.method))
        if is_closed_by_both:
            self.send(desk.number, ChannelCloseOk())
        if self._is_leaving:
            self.leave()

    def _close_channel(self, desk: AmqpChannel) -> None:
        """The client closes a channel."""
        self._drop_channel(desk)
        self.send(desk.number, ChannelCloseOk())

    def _drop_channel(self, desk: AmqpChannel) -> None:
        if desk.channel in self._confirming:  # that is told before the channel ends
            self._confirming.remove(desk.channel)
            self.send_frame(self.encode_confirms(desk.channel))
        del self._desks[desk.number]
        if desk.held is not None:
            held, desk.held = desk.held, None
            self._hold_less(sum([size for _, size in held]))
        desk.close()
        assert self.session is not None
        self.session.close_channel(desk.number)

    def leave(self) -> None:
        """The client closes the connection: once what it asked for before is done, that is answered."""
        if self._is_closing:
            return
        for desk in [desk for desk in self._desks.values() if desk.held and not desk.is_parting]:
            self._go_past_alarm(desk)
        if any(desk.is_waiting or desk.is_resting for desk in self._desks.values()):
            if not self._is_leaving:
                self._is_leaving = True
                self._hold_reading("leaving")
                self._deadline = time.monotonic() + PARTING_SECONDS
            if time.monotonic() < self._deadline:
                return
        self._part_with(ConnectionCloseOk(), self.finish)

    def close(self, fault: ShardmqError) -> None:
        if self._is_closing:
            return
        if self._opening is None or self._opening.is_known:
            self._say_goodbye(as_amqp_error(fault))
        elif fault.code is ReplyCode.CONNECTION_FORCED:
            self.finish()
        else:
            self._server.logins.complain(self.peer, self._opening.login.user, fault.text)
            self._part_silently()

    def give_up(self, fault: ShardmqError) -> None:
        if self._opening is not None:
            self._server.logins.complain(self.peer, self._opening.login.user, fault.text)
        else:
            _log.info("connection from %s is given up: %s", self.peer, fault.text)
        self.abort()

    def abort_if_silent(self, now: float) -> None:
        super().abort_if_silent(now)
        if self._is_leaving and not self._is_closing:
            self.leave()

    def forget(self) -> None:
        self._opening = None  # a circle
        for desk in self._desks.values():
            desk.close()
        self._desks.clear()

    def _say_goodbye(self, fault: AmqpError, then: Callable[[], None] | None = None) -> None:
        """Tell the client why; it answers with close-ok, and hangs up."""
        self._part_with(ConnectionClose(fault.code, str(fault), *fault.method), then)

    def _part_with(self, words: Method, then: Callable[[], None] | None) -> None:
        """Give back what the client has, and say so when its exclusive queues are gone: as with RabbitMQ, a client that
        has heard it may declare them anew at once, over another connection.
        """
        session = self.session

        def say() -> None:
            self._words_due = False
            self.send(0, words)
            if then is not None:
                then()
            elif self._is_deaf:
                self.finish()

        self.part()
        self._words_due = True
        if session is None:
            say()
        else:
            self._server.when_gone(session, say)

    def _part_silently(self) -> None:
        self.part()
        self._is_deaf = True
        self._transport.pause_reading()
        self._deadline = time.monotonic() + SILENT_SECONDS

    def _take_goodbye(self, event: Event) -> None:
        """We closed: only what belongs to that counts any more."""
        method = event.method if isinstance(event, MethodReceived) and not event.channel else None
        if isinstance(method, ConnectionCloseOk):
            self.finish()
        elif isinstance(method, ConnectionClose):  # at the same time; close-ok comes next
            self.send(0, ConnectionCloseOk())

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, channel: int, method: Method) -> None:
        """Queue a method for the end of the pass."""
        self.send_frame(sending.method_frame(channel, method))

    def send_heartbeat(self) -> None:
        self.send_frame(sending.BEAT)

    def send_return_of(self, channel: int, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """A mandatory message that no queue took comes back."""
        self.send(channel, BasicReturn(312, "NO_ROUTE", exchange, key))
        self.send_content(channel, properties, body)

    def send_content(self, channel: int, properties: bytes, body: bytes) -> None:
        """A message, behind the method that it belongs to."""
        self.send_frame(sending.content_frames(channel, properties, body, self._frame_max))

    def send_delivery(
        self, channel: int, consumer: str, tag: int, redelivered: bool, run: RecordBatch, deliveries: int
    ) -> None:
        lists, bodies = to_amqp(run, deliveries)
        envelope = sending.envelope(channel, consumer, redelivered, run.exchange, run.routing_key)
        self.send_frame(sending.deliveries(envelope, tag, lists, bodies, self._frame_max))

    def delivery_bytes(self, consumer: str) -> int:
        return sending.DELIVERY_BYTES + len(consumer)

    def encode_confirms(self, channel: Channel) -> bytes:
        desk = self._desks.get(channel.number)
        ranges = channel.take_confirms()
        if desk is None or not desk.is_confirming:
            return b""
        return desk.told.acks(channel.number, desk.as_counted(ranges))

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002
        desk = self._desks.get(channel)
        if desk is not None and desk.is_confirming:
            self.send_frame(desk.told.nacks(channel, desk.as_counted([(first, last)])))

    def send_return(self, *_: object) -> None:
        raise AssertionError("messages that came by AMQP return by send_return_of")

    def send_cancelled(self, channel: int, consumer: str, _fault: RequestError | None) -> None:
        desk = self._desks.get(channel)
        if desk is not None and "consumer_cancel_notify" in self.capabilities:
            desk.cancel(consumer)

    # --- alarms -----------------------------------------------------------------------------------------------------

    def block(self, reason: str) -> None:  # noqa: ARG002  (told when it publishes)
        self.is_blocked = True

    def unblock(self) -> None:
        self.is_blocked = False
        if self._is_told_blocked:
            self._is_told_blocked = False
            self.send(0, ConnectionUnblocked())
        self.go_on()

    def modes(self, channel: int) -> tuple[bool, bool]:
        desk = self._desks[channel]
        return desk.is_confirming, desk.transaction is not None

    def _is_blocked_by(self, event: Event) -> bool:
        """Whether an alarm holds what came. The client is told once it publishes, as in RabbitMQ."""
        if not self.is_blocked or type(event) is not PublishesReceived:
            return False
        if not self._is_told_blocked and "connection.blocked" in self.capabilities:
            self._is_told_blocked = True
            self.send(0, ConnectionBlocked(self._hub.alarms.reason))
        return True
