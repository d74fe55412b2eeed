"""One client's connection, as far as its protocol does not matter: from its first byte to the end of its socket.

A front's connection (native/connection.py, amqp/connection.py) takes in bytes and says what to send; the rest is here.

    opening ──session──► open ──close, begin_close──► closing ──finish──► finished ──hung up, or late──► lost
       └─────────────────────────────────────────────────┘

`begin_close` gives back at once what the client had here (`release`); its socket lives on until our last words are
read.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol, cast

import msgspec

from shardmq.errors import ConnectionLost, ShardmqError
from shardmq.gateway.session.client import NO_PROPERTIES, Client
from shardmq.gateway.session.client_socket import UNREAD, ClientSocket
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.message_loans import STALLED_SECONDS
from shardmq.limits import HANDSHAKE_SECONDS
from shardmq.runtime.tls import common_name

SILENCE_CHECK_SECONDS: Final = 1.0
"""Time between two checks of heartbeats: those to be sent, and those that have not come."""

_log = logging.getLogger(__name__)

CLOSING_SECONDS: Final = 10.0
"""Time that a client has to read our last message and hang up."""


class ConnectionHost(Protocol):
    """The server, as its connections know it."""

    @property
    def state(self) -> GatewayState:
        """The gateway's."""

    @property
    def message_bytes_max(self) -> int:
        """What a message's body may have."""

    @property
    def next_high_water(self) -> int:
        """What may wait for one more client before it is taken for one that is behind."""

    def add(self, connection: "ClientConnection") -> None:
        """Count a client that has connected."""

    def remove(self, connection: "ClientConnection") -> None:
        """Forget a client that is gone."""

    def opened(self, connection: "ClientConnection", client: Client) -> None:
        """Note that a client was let in."""

    def left(self, client: Client) -> None:
        """Note that a client has nothing here any more, though its socket may live on for a while."""

    def when_gone(self, client: Client, then: Callable[[], None]) -> None:
        """Call back when the exclusive queues of a client that has left are gone."""

    def check_channels(self, client: Client) -> None:
        """Make sure that a client's user may open one more channel.

        Raises:
            NotAllowed: the user's limit is reached.
        """


class ClientConnection(ClientSocket):
    """The connection of one client. The rest of `Front`, and what its bytes mean, is its protocol's.

    Args:
        host: the server that has accepted it.

    Attributes:
        protocol: its name, for lists.
        host: the server that has accepted it.
        message_bytes_max: what a message's body may have.
        session: what the client has from when it is let in until one of us closes.
        is_blocked: whether an alarm holds its publishes.
        properties: what the client says of itself, as msgpack.
        auth_mechanism: how it has logged in, by SASL's names.
    """

    protocol: ClassVar[str]
    __slots__ = (
        "_deadline",
        "_heartbeat",
        "_is_authenticating",
        "auth_mechanism",
        "connected_at_ms",
        "host",
        "is_blocked",
        "is_tls",
        "message_bytes_max",
        "peer",
        "peer_port",
        "properties",
        "session",
    )

    def __init__(self, host: ConnectionHost) -> None:
        super().__init__(host.state)
        self.host = host
        self.message_bytes_max = host.message_bytes_max
        self.session: Session | None = None
        self._deadline = self._heard_at + HANDSHAKE_SECONDS
        self._heartbeat = 0
        self._is_authenticating = False
        self.auth_mechanism = ""
        self.peer = ""
        self.peer_port = 0
        self.is_tls = False
        self.is_blocked = False
        self.connected_at_ms = 0
        self.properties = NO_PROPERTIES

    @property
    def client_properties(self) -> dict[str, Any]:
        """What the client says of itself."""
        return msgspec.msgpack.decode(self.properties, type=dict[str, Any])

    @property
    def address(self) -> tuple[str, int]:
        """Where the client has found this gateway: host and port."""
        name = self._transport.get_extra_info("sockname") or ("", 0)
        return str(name[0]), name[1]

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The encryption; None where there is none."""
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return tls

    @property
    def limits(self) -> dict[str, int]:
        """What was agreed on with the client, by RabbitMQ's names: channels, bytes of a frame, seconds of silence."""
        raise NotImplementedError

    def close(self, fault: ShardmqError) -> None:
        """Tell the client why, and close the connection."""
        raise NotImplementedError

    def drop_channels(self) -> None:
        """Drop what the front's channels hold: the connection is over."""
        raise NotImplementedError

    def modes(self, channel: int) -> tuple[bool, bool]:  # noqa: ARG002  (some protocols' channels differ)
        """Whether a channel confirms what is published there, and whether it is transactional."""
        return True, False

    def published(self, channel: int) -> int:
        """How many messages were published on a channel."""
        assert self.session is not None
        return self.session.channels[channel].publisher.published

    def count_channel(self, channel: int) -> None:
        """Keep what was done on a channel that is about to be closed."""
        assert self.session is not None
        counts = self.session.channels[channel].counts(self.published(channel))
        self.state.traffic.leave(self.protocol, self.session.client.vhost, counts)

    def give_up(self, fault: ShardmqError) -> None:
        """Close the connection of a client that has not done in time what it should have."""
        self.close(fault)

    def send_heartbeat(self) -> None:
        """Give a sign of life."""
        raise NotImplementedError

    def block(self, reason: str) -> None:
        """Hold publishes from now on: an alarm is on."""
        raise NotImplementedError

    def unblock(self) -> None:
        """Take publishes again: no alarm is on any more."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note who has connected, and when."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        self._transport.set_write_buffer_limits(high=self.host.next_high_water)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer, self.peer_port = str(address[0]), address[1]
        self.is_tls = transport.get_extra_info("ssl_object") is not None
        self.connected_at_ms = time.time_ns() // 1_000_000
        self.host.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        """Give back what the client had: its socket is gone."""
        self.is_closing = self._is_finished = True
        self._out.clear()
        self.state.traffic.bytes_in += self.bytes_in
        self.state.traffic.bytes_out += self.bytes_out
        self._forget_unread()
        self.release()
        self.host.remove(self)

    def drop_stranger(self, fault: Exception) -> bool:
        """Drop a client that was not let in yet: it has touched nothing, whatever went wrong.

        Of one that was, half of what has come may be carried out.
        """
        if self.session is not None or self.is_closing:
            return False
        _log.error("%s says what cannot be dealt with, and is dropped before it is let in", self.peer, exc_info=fault)
        self.begin_close()
        self.abort()
        return True

    def socket_has_room(self) -> None:
        """Give the client's consumers credit: its socket takes more again."""
        if self.session is not None:
            self.session.socket_has_room()

    def repay(self, size: int) -> None:
        """Repay `size` bytes that were lent to the client."""
        if self.session is not None:
            self.session.client.account.repay(size)

    def delivery_bytes(self, consumer: str) -> int:  # noqa: ARG002  (some protocols name it in each delivery)
        """What each message for a consumer takes beside its record and names, where those are written for each."""
        return 0

    @property
    def certificate_name(self) -> str | None:
        """The name in the client's certificate; None where it has shown none."""
        return common_name(self._transport.get_extra_info("peercert"))

    def begin_check(self) -> None:
        """Wait for the authenticator; however long that takes is not the client's fault."""
        self._is_authenticating = True

    def end_check(self) -> bool:
        """The authenticator has answered. Returns whether the client is still there."""
        self._is_authenticating = False
        return not self.is_closing

    def begin_close(self, seconds: float = CLOSING_SECONDS) -> None:
        """Carry out nothing more for the client, and give back what it has here; it may still be told why, and answer.

        Confirms and what else was said in this pass go out before. A client that we do not read would never hear of
        it, hence it is read again, whatever held that.

        Args:
            seconds: what the client has to hang up.
        """
        if self.is_closing:
            return
        self.is_closing = True  # before the flush, which would go on with what is held
        self.flush()
        self.release()
        self._deadline = time.monotonic() + seconds
        if self._reading_held_by and not self._transport.is_closing():
            self._reading_held_by = frozenset()
            self._transport.resume_reading()

    def finish(self) -> None:
        """Hang up: what was said is sent, and then nothing more.

        What the client still says is dropped until it hangs up, too. A socket that is closed with something unread is
        reset, and a client that is reset may lose what it has not read: our last words.
        """
        self.begin_close()
        if self._is_finished:
            return
        self.flush()
        self._is_finished = True
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()  # TLS, which closes in a similar way by itself

    def abort(self) -> None:
        """Hang up at once, whatever the client has not read."""
        self._transport.abort()

    def release(self) -> None:
        """Give back what the client has here: consumers, what is unacked, exclusive queues."""
        self.state.alarms.leave(self)
        self.state.growth.leave(self)
        if self.session is not None:
            self.host.left(self.session.client)
            for channel in self.session.channels:
                self.count_channel(channel)
            self.session.close()
            self.state.events.connection_closed(self, self.session.client)
            self.session = None  # a reference cycle, which would wait for the garbage collector
        self.drop_channels()

    def stop_reading(self) -> None:
        """Read no more: the process is about to stop, and answers only what is under way."""
        self._hold_reading("stopping")

    def abort_if_silent(self, now: float) -> None:
        """Enforce the handshake's time and the heartbeat, and send ours; called every SILENCE_CHECK_SECONDS."""
        if self.is_closing:
            if now >= self._deadline:
                self.abort()
        elif self.session is None:
            if now >= self._deadline and not self._is_authenticating:
                self.give_up(ConnectionLost(f"not opened within {HANDSHAKE_SECONDS:.0f} s"))
        elif self._lent_bytes and self._keeps_others_waiting(now):
            text = f"nothing read for {STALLED_SECONDS:.0f} s of large messages while others wait for theirs; read on"
            self.give_up(ConnectionLost(text))
        elif self._heartbeat:
            if now + SILENCE_CHECK_SECONDS - self._sent_at > self._heartbeat / 2:  # the next look would be late
                self.send_heartbeat()
            if self._reading_held_by == UNREAD:
                self._sense(now)
            elif self._reading_held_by:
                return
            if now - self._heard_at > 2 * self._heartbeat:
                self.give_up(
                    ConnectionLost(f"nothing heard for {2 * self._heartbeat} s; the heartbeat is {self._heartbeat} s")
                )

    def may_end_by(self, at: float) -> bool:
        """Whether it is given up by then, if nothing is heard of it until then."""
        return self._heartbeat > 0 and at - self._heard_at > 2 * self._heartbeat

    def _keeps_others_waiting(self, now: float) -> bool:
        """Whether it reads nothing of what was lent to it, while that is all there is."""
        self._repay_read()
        return now - self._progress_at > STALLED_SECONDS and self.state.lender.is_short
