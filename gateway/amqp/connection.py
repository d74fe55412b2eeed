"""One client connection speaking AMQP 0-9-1: bytes to session calls, and back.

handshake.py has all that comes before it is open, closing.py all that comes after.

Methods of one channel are carried out in order: while one waits for an answer, or a publish for an alarm to go off,
what follows on its channel is held.
"""

import logging
import time
from typing import ClassVar, Final

from shardmq.errors import ReplyCode, RequestError, ShardmqError
from shardmq.gateway.amqp.channel import AmqpChannel, OnChannel
from shardmq.gateway.amqp.closing import Closing
from shardmq.gateway.amqp.dispatch import carry_out, catch_up
from shardmq.gateway.amqp.handshake import Handshake
from shardmq.gateway.amqp.outbox import Outbox
from shardmq.gateway.authentication.authenticator import Authenticator, Credentials
from shardmq.gateway.session.client import Client, packed_properties
from shardmq.gateway.session.connection import CLOSING_SECONDS, ConnectionHost
from shardmq.gateway.session.front import ConfirmingChannel
from shardmq.gateway.session.session import Session
from shardmq.protocol.amqp.errors import AmqpError, as_amqp_error
from shardmq.protocol.amqp.events import Event, HeartbeatReceived, MethodReceived, PublishTooLarge
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods.connection import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpenOk,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.tables import Table

CHANNEL_NUMBERS: Final = 2**16 - 1
"""The highest number a channel may have; how many there may be is agreed on."""

_log = logging.getLogger(__name__)


class AmqpConnection(Outbox):
    """The connection of one client that speaks AMQP 0-9-1.

    Args:
        host: the server that has accepted it.
        authenticator: who may come in.
    """

    protocol: ClassVar = "AMQP 0-9-1"
    __slots__ = ("_channel_max", "_channels", "_closing", "_handshake", "_is_leaving", "_reader")

    def __init__(self, host: ConnectionHost, authenticator: Authenticator) -> None:
        super().__init__(host)
        self._handshake: Handshake | None = Handshake(self, authenticator)
        self._reader = FrameReader(0)  # nobody publishes before the connection is open
        self._channel_max = 0
        self._channels: dict[int, AmqpChannel] = {}
        self._is_leaving = False
        self._closing: Closing | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the client had: its socket is gone."""
        super().connection_lost(exc)
        self._closing = None  # a reference cycle

    def take(self, data: memoryview) -> None:
        """Carry out what has come, event by event."""
        if self._closing is not None and self._closing.is_deaf:
            return
        received = bytes(data)
        if self._handshake is not None:
            received = self._handshake.take_header(received)
        try:
            for event in self._reader.feed(received):
                self._take(event)
        except AmqpError as fault:  # nothing that comes behind it can be understood, not even close-ok
            self._go_deaf(fault)

    def _go_deaf(self, fault: AmqpError) -> None:
        closing = self._begin_closing()
        if closing.is_deaf:
            return
        closing.is_deaf = True
        if self.is_closing:
            if not closing.is_goodbye_due:
                self.finish()
        elif self._handshake is None or self._handshake.is_known:
            closing.say_goodbye(fault, self.finish)
        else:
            self.close(fault)

    def _take(self, event: Event) -> None:
        channel = self._channels.get(event.channel)
        try:
            if channel is not None:
                assert not isinstance(event, HeartbeatReceived)
                if channel.is_waiting or channel.held or self.is_unread or self.is_blocked_by_alarm(event):
                    self._hold(channel, event)
                else:
                    carry_out(channel, event)
            elif self.is_closing:
                self._begin_closing().take(event)
            elif isinstance(event, HeartbeatReceived):
                pass
            elif self._handshake is not None:
                self._handshake.take(event)
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
        """Take what comes for a channel that is not open, or that we closed and the client may not have heard of."""
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
        opened = len(self._channels) + len(self._reader.ignored)
        if opened >= self._channel_max:
            text = f"number of channels opened ({opened}) has reached the negotiated channel_max ({self._channel_max})"
            raise AmqpError(ReplyCode.NOT_ALLOWED, text)
        try:
            self.host.check_channels(self.session.client)
        except RequestError as error:
            raise AmqpError(error.code, error.text) from error
        self._channels[number] = AmqpChannel(self, self, self.session.open_channel(number, CHANNEL_NUMBERS))
        self.send(number, ChannelOpenOk())

    def _hold(self, channel: AmqpChannel, event: OnChannel) -> None:
        channel.hold(event)
        if isinstance(event, MethodReceived) and isinstance(event.method, ChannelClose):
            self._go_past_alarm(channel)

    def _go_past_alarm(self, channel: AmqpChannel) -> None:
        """Let a channel that publishes under an alarm be closed at any time, also where the alarm comes later.

        What is held then is little, and has been taken from the client, who may ask for no confirms: it goes on.
        """
        channel.is_closing = True
        if not channel.is_waiting:
            self.catch_up(channel)

    def catch_up(self, channel: AmqpChannel) -> None:
        """Carry out what was held on a channel, as far as nothing holds it any more."""
        catch_up(channel)
        if self._is_leaving and not channel.is_catching_up:
            self.leave()

    def resume(self) -> None:
        """Carry out what was held, as far as nothing holds it any more."""
        for channel in [channel for channel in self._channels.values() if channel.held]:
            self.catch_up(channel)

    def introduced(self, properties: Table, capabilities: frozenset[str]) -> None:
        """Note what the client says of itself."""
        self.properties = packed_properties(properties)
        self.capabilities = capabilities

    def refuse_login(self, fault: AmqpError) -> None:
        """End a connection whose client is not who it says.

        Clients without the capability to hear of it take it for granted that they know.
        """
        if "authentication_failure_close" in self.capabilities:
            self._begin_closing().say_goodbye(fault)
        else:
            self._begin_closing().end_silently()

    def tuned(self, method: ConnectionTuneOk) -> None:
        """Note the limits that were agreed on."""
        self._frame_max = self._reader.frame_max = method.frame_max
        self._channel_max = method.channel_max
        self._heartbeat = method.heartbeat

    @property
    def limits(self) -> dict[str, int]:
        """What was agreed on with the client, by RabbitMQ's names."""
        return {"channel_max": self._channel_max, "frame_max": self._frame_max, "timeout": self._heartbeat}

    def opened(self, credentials: Credentials) -> None:
        """Let the client in."""
        self._handshake = None
        self._reader.message_max = self.message_bytes_max
        client = Client(self.state, self, credentials.vhost, credentials.user)
        self.session = Session(client)
        self.host.opened(self, client)
        self.send(0, ConnectionOpenOk())
        self.state.alarms.join(self)

    def fail(self, channel: AmqpChannel, error: ShardmqError, method: tuple[int, int]) -> None:
        """Close a channel on which something could not be done; or the connection, where the fault is that hard."""
        if self.is_closing:
            return
        fault = as_amqp_error(error, method)
        if fault.is_hard:
            self.close(fault)
            return
        is_closed_by_both = any(
            isinstance(event, MethodReceived) and isinstance(event.method, ChannelClose)
            for event, _ in channel.held or ()
        )
        self._drop_channel(channel)
        self._reader.ignore(channel.number)
        self.send(channel.number, ChannelClose(fault.code, str(fault), *fault.method))
        if is_closed_by_both:
            self.send(channel.number, ChannelCloseOk())
        if self._is_leaving:
            self.leave()

    def close_channel(self, channel: AmqpChannel) -> None:
        """Close a channel: the client has asked for it."""
        self._drop_channel(channel)
        self.send(channel.number, ChannelCloseOk())

    def _drop_channel(self, channel: AmqpChannel) -> None:
        self.send_confirms(channel.session_channel.publisher)
        self.count_channel(channel.number)
        del self._channels[channel.number]
        channel.drop_held()
        channel.close()
        assert self.session is not None
        self.session.close_channel(channel.number)

    def drop_channels(self) -> None:
        """Drop what the channels hold: the connection is over."""
        self._handshake = None  # a reference cycle
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def leave(self) -> None:
        """Answer a client that closes the connection, once what it asked for before is done.

        What is held as the client has much to read goes on when it has read that, which clients that close do.
        """
        if self.is_closing:
            return
        for channel in [channel for channel in self._channels.values() if channel.held and not channel.is_closing]:
            self._go_past_alarm(channel)
        if any(channel.is_waiting or channel.is_resting or channel.held for channel in self._channels.values()):
            if not self._is_leaving:
                self._is_leaving = True
                self._hold_reading("leaving")
                self._deadline = time.monotonic() + CLOSING_SECONDS
            if time.monotonic() < self._deadline:
                return
        self._begin_closing().say_last(ConnectionCloseOk(), self.finish)

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, and close the connection; a stranger is told nothing."""
        if self.is_closing:
            return
        if self._handshake is None or self._handshake.is_known:
            self._begin_closing().say_goodbye(as_amqp_error(fault))
        elif fault.code is ReplyCode.CONNECTION_FORCED:
            self.finish()
        else:
            self._handshake.complain(fault.text)
            self._begin_closing().end_silently()

    def give_up(self, fault: ShardmqError) -> None:
        """Hang up on a client that has not done in time what it should have."""
        if self._handshake is not None:
            self._handshake.complain(fault.text)
        else:
            _log.info("connection from %s is given up: %s", self.peer, fault.text)
        self.abort()

    def abort_if_silent(self, now: float) -> None:
        """Enforce times, also that of a client that leaves."""
        super().abort_if_silent(now)
        if self._is_leaving and not self.is_closing:
            self.leave()

    def _begin_closing(self) -> Closing:
        if self._closing is None:
            self._closing = Closing(self)
        return self._closing

    def encode_confirms(self, channel: ConfirmingChannel) -> bytes:
        """A channel's confirms, as frames; none where the client has not asked for any."""
        ranges = channel.take_confirms()
        amqp_channel = self._channels.get(channel.number)
        return b"" if amqp_channel is None else amqp_channel.confirm_frames(ranges)

    def send_refusal(self, channel: int, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002
        """Refuse publishes `first` to `last`; AMQP has no words for why."""
        amqp_channel = self._channels.get(channel)
        if amqp_channel is not None and amqp_channel.is_confirming:
            self.send_frame(amqp_channel.refusal_frames(first, last))

    def send_cancelled(self, channel: int, consumer: str, fault: RequestError | None) -> None:  # noqa: ARG002
        """Say that a consumer gets nothing more, to clients that are able to hear of it."""
        amqp_channel = self._channels.get(channel)
        if amqp_channel is not None and "consumer_cancel_notify" in self.capabilities:
            amqp_channel.cancel(consumer)

    def published(self, channel: int) -> int:
        """How many messages were published on a channel."""
        return self._channels[channel].published

    def modes(self, channel: int) -> tuple[bool, bool]:
        """Whether a channel confirms what is published there, and whether it is transactional."""
        amqp_channel = self._channels[channel]
        return amqp_channel.is_confirming, amqp_channel.transaction is not None
