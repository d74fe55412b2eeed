"""One client connection speaking the native protocol: bytes to session calls, and back.

    accepted ──ConnectionOpen──► authenticating ──Ok──► open ──ConnectionClose──► closed
        └─────── anything else, or 10 s ─────► ConnectionClose ──────────────────────┘

Requests of one channel are carried out in order: while one waits for an answer, what follows on its channel is held.
"""

from typing import ClassVar

from shardmq.errors import ChannelError, ConnectionFault, ProtocolError, ReplyCode, RequestError, ShardmqError
from shardmq.gateway.authentication.authenticator import Authenticator
from shardmq.gateway.native.channel import NativeChannel
from shardmq.gateway.native.dispatch import carry_out, catch_up
from shardmq.gateway.native.handshake import (
    Handshake,
    answers_lost,
    growth_of,
    larger_frames,
    reads_keys,
    server_properties,
    serves_http,
)
from shardmq.gateway.native.outbox import Outbox
from shardmq.gateway.session.client import Client, packed_properties
from shardmq.gateway.session.connection import ConnectionHost
from shardmq.gateway.session.session import Session
from shardmq.limits import CHANNELS_MAX, HELLO_BYTES_MAX, REQUEST_BYTES_MAX, frame_bytes_max
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import FROM_CLIENT, decode
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
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topics import TopicsGrown


class NativeConnection(Outbox):
    """The connection of one client that speaks the native protocol.

    Args:
        host: the server that has accepted it.
        authenticator: who may come in.
    """

    protocol: ClassVar = "shardmq"
    __slots__ = ("_channels", "_closed_by_us", "_handshake", "_reader")

    def __init__(self, host: ConnectionHost, authenticator: Authenticator) -> None:
        super().__init__(host)
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._handshake: Handshake | None = Handshake(self, authenticator)
        self._channels: dict[int, NativeChannel] = {}
        self._closed_by_us: frozenset[int] = frozenset()  # channels; what clients sent before they heard is ignored

    def take(self, data: memoryview) -> None:
        """Carry out what has come, frame by frame."""
        try:
            for kind, payload in self._reader.feed(data):
                if self.is_closing:
                    return
                self._take(decode(kind, payload, FROM_CLIENT), len(payload))
        except ConnectionFault as fault:
            self.close(fault)

    def _take(self, operation: Operation, size: int) -> None:
        channel = self._channels.get(getattr(operation, "channel", 0))
        if channel is not None:
            if channel.is_waiting or channel.held or self.is_unread:
                channel.hold(operation, size)
            else:
                carry_out(channel, operation)
            return
        kind = type(operation)
        if kind is Heartbeat:
            if self._handshake is not None and self._handshake.is_asked_for_a_sign():
                self.send_heartbeat()
            return
        if isinstance(operation, ConnectionOpen):
            if self._handshake is None:
                raise ProtocolError("the connection is open already", ReplyCode.COMMAND_INVALID)
            self._handshake.take(operation)
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
            self.host.check_channels(session.client)
            session_channel = session.open_channel(operation.channel)
        except ChannelError as error:
            raise ConnectionFault(error.text, error.code) from error
        except RequestError as error:
            self.send(Refused(operation.request, operation.channel, error.code, error.text))
            return
        self._closed_by_us -= {operation.channel}
        self._channels[operation.channel] = NativeChannel(self, self, session_channel)
        self.send(Ok(operation.request, operation.channel))

    def _refuse_off_channel(self, operation: Operation) -> None:
        """Refuse what comes for a channel that is not open; what was sent before the client heard so is no fault."""
        number: int = getattr(operation, "channel", 0)
        if number in self._closed_by_us:
            if isinstance(operation, ChannelClose):
                self._closed_by_us -= {number}
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

    def resume(self) -> None:
        """Carry out what was held, as far as nothing holds it any more."""
        for channel in [channel for channel in self._channels.values() if channel.held]:
            catch_up(channel)

    def resume_channel(self, channel: NativeChannel) -> None:
        """Carry out what was held on a channel, as far as nothing holds it any more."""
        if channel.is_open:
            catch_up(channel)

    def close_channel(self, channel: NativeChannel) -> None:
        """Close a channel; its confirms are sent before, as its number may be used again."""
        del self._channels[channel.number]
        self.send_confirms(channel.publisher)
        channel.drop_held()
        self.count_channel(channel.number)
        assert self.session is not None
        self.session.close_channel(channel.number)

    def fail_channel(self, channel: NativeChannel, error: ChannelError) -> None:
        """Close a channel, and tell the client why."""
        self.close_channel(channel)
        self._closed_by_us |= {channel.number}
        self.send(ChannelClose(0, channel.number, error.code, error.text))

    def drop_channels(self) -> None:
        """Drop what the channels hold: the connection is over."""
        self._handshake = None  # a reference cycle
        self._channels.clear()

    @property
    def limits(self) -> dict[str, int]:
        """What the client was told, by RabbitMQ's names."""
        frame_max = frame_bytes_max(self.message_bytes_max)
        return {"channel_max": CHANNELS_MAX, "frame_max": frame_max, "timeout": self._heartbeat}

    def opened(self, operation: ConnectionOpen, user: str) -> None:
        """Let the client in, as that user."""
        self._handshake = None
        client = Client(self.state, self, operation.vhost, user)
        client.serves_http = serves_http(operation.client)
        client.reads_keys = self.reads_keys = reads_keys(operation.client)
        client.answers_lost = answers_lost(operation.client)
        self.session = Session(client)
        self.properties = packed_properties(operation.client)
        self._heartbeat = operation.heartbeat
        self.host.opened(self, client)
        self._reader.allow(REQUEST_BYTES_MAX, larger_frames(self.message_bytes_max, client.is_administrator))
        growth, broker = self.state.topology.grown_to, self.state.broker
        properties = server_properties(operation.heartbeat, self.message_bytes_max, growth, broker)
        if self.state.primaries is not None:
            properties["host"] = self.state.name.rpartition(".")[0]
        if client.is_administrative:
            properties["tags"] = list(client.tags)
        self.send(Ok(operation.request, 0, properties))
        self.state.alarms.join(self)
        if growth_of(operation.client) is not None:
            self.state.growth.join(self)

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, send what is waiting, and hang up."""
        if self.is_closing:
            return
        self.send(ConnectionClose(fault.code, fault.text))
        self.finish()

    def topics_grown(self, growth: int) -> None:
        """Tell the client, which publishes by the new partitions from then on."""
        if not self.is_closing:
            self.send(TopicsGrown(growth))

    def block(self, reason: str) -> None:
        """Hold publishes from now on: an alarm is on."""
        self.is_blocked = True
        if not self.is_closing:
            self.send(ConnectionBlocked(reason))

    def unblock(self) -> None:
        """Take publishes again: no alarm is on any more."""
        self.is_blocked = False
        if self.is_closing:
            return
        self.send(ConnectionUnblocked())
        for channel in list(self._channels.values()):
            channel.end_block()
            catch_up(channel)
