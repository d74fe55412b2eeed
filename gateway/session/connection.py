"""One client's connection, as far as its protocol does not matter: the socket, what waits to be sent, when not to read.

A front's connection (native/connection.py, amqp/connection.py) takes in bytes and says what to send; the rest is here.

    coming ──session──► open ──close, part──► parting ──finish──► finished ──the client hangs up, or is late──► lost
       └──────────────────────────────────────────┘

Who parts gives back at once what the client had here (`release`); its socket lives on until our last words are read.
"""

import asyncio
import socket
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import msgspec

from shardmq.errors import ConnectionLost, ShardmqError
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client_properties import NOTHING
from shardmq.gateway.session.session import Session
from shardmq.gateway.state.message_loans import STALLED_SECONDS
from shardmq.gateway.state.time_slices import LEAST_READ_BYTES, TURN_SECONDS
from shardmq.limits import HANDSHAKE_SECONDS

if TYPE_CHECKING:
    from shardmq.gateway.server import Server

HELD_BYTES_MAX: Final = 4 << 20
"""Requests held behind others that wait; past it the socket is not read."""

HELD_OVERHEAD_BYTES: Final = 500
"""What a request takes at least while it is held."""

UNREAD_BYTES_MAX: Final = 16 << 20
"""A client that does not read what it is sent is not read from either, nor is anything more carried out for it, once
this much is waiting for it: some requests are small and have large answers."""

UNREAD: Final = frozenset({"unread"})
"""What holds reading from such a client, where nothing else does."""

READ_TURN: Final = "turn"
"""What holds reading of a client whose bytes take long to deal with, until the others had their turn."""

SINCE_DATA_CAME: Final = struct.Struct("=52xI")
"""In Linux's tcp_info: milliseconds since it got anything, read or not (tcpi_last_data_recv)."""

SILENCE_CHECK_SECONDS: Final = 1.0
"""Between two looks at who has to be sent a heartbeat, and of whom none has come."""

PARTING_SECONDS: Final = 10.0
"""What a client has, from our last words on, to read them and to hang up."""

MUCH_BYTES: Final = 1 << 20
"""More than that is not put together to be written as one piece: to copy it takes longer than writing in pieces."""

WRITE_HIGH_WATER_BYTES: Final = 1 << 20
"""A client with more than this unread is given no more credit; small beside a delivery window."""

LEAST_HIGH_WATER_BYTES: Final = 16 << 10
"""The same, where there are many thousands of clients: together they are not to have more than there is."""

READ_BUFFER: Final = memoryview(bytearray(256 << 10))
"""One for all connections: what is read into it is taken out before the loop reads again. A new one for each read costs
page faults (0.1 µs a message in bulk), one for each connection memory."""


def set_socket_options(transport: asyncio.BaseTransport) -> None:
    """Small frames go at once, as a pass already gathers what belongs together; dead peers are probed for."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class ClientConnection(asyncio.BufferedProtocol):
    """See the module. One for each accepted socket; the rest of `channel.Front` is its protocol's.

    There may be many thousands that do nothing, hence slots and shared empty sets: of 5,000 with a channel, each takes
    4.6 KB of resident memory, its transport included.

    Attributes:
        protocol: its name, for lists.
        session: what the client has from when it is let in until one of us parts.
        is_writable: whether the client's socket takes more.
        is_blocked: whether an alarm holds its publishes.
        client: what the client says of itself, as msgpack.
    """

    protocol: ClassVar[str]
    __slots__ = (
        "_confirming",
        "_counted_bytes",
        "_deadline",
        "_heard_at",
        "_heartbeat",
        "_held_bytes",
        "_hub",
        "_is_authenticating",
        "_is_closing",
        "_is_finished",
        "_is_unread",
        "_lent_bytes",
        "_out",
        "_out_bytes",
        "_pass",
        "_progress_at",
        "_read_bytes",
        "_reading_held_by",
        "_sent_at",
        "_server",
        "_spent",
        "_transport",
        "_unread_bytes",
        "client",
        "connected_at_ms",
        "is_blocked",
        "is_tls",
        "is_writable",
        "peer",
        "peer_port",
        "session",
    )

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._hub = server.hub
        self.session: Session | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._held_bytes = 0
        self._counted_bytes = 0  # unread, in what the hub counts
        self._lent_bytes = 0  # of what was sent, those that are free again when the client has read them
        self._pass = 0  # the last one in which something was read
        self._spent = 0.0  # seconds of work for what was read in it
        self._read_bytes = len(READ_BUFFER)  # at once
        self._is_unread = False
        self._unread_bytes = 0  # when that was last looked at
        self._confirming: list[Channel] = []
        self._heard_at = self._sent_at = self._progress_at = time.monotonic()
        self._deadline = self._heard_at + HANDSHAKE_SECONDS
        self._heartbeat = 0
        self._is_authenticating = False
        self._is_closing = False
        self._is_finished = False
        self._reading_held_by: frozenset[str] = frozenset()
        self._transport: asyncio.Transport
        self.is_writable = True
        self.peer = ""
        self.peer_port = 0
        self.is_tls = False
        self.is_blocked = False
        self.connected_at_ms = 0
        self.client = NOTHING

    @property
    def client_properties(self) -> dict[str, Any]:
        """What the client says of itself."""
        return msgspec.msgpack.decode(self.client, type=dict[str, Any])

    # --- the protocol's ---------------------------------------------------------------------------------------------

    def take(self, data: memoryview) -> None:
        """Bytes have come; they are there for this call alone."""
        raise NotImplementedError

    def close(self, fault: ShardmqError) -> None:
        """Part from the client, and tell it why."""
        raise NotImplementedError

    def go_on(self) -> None:
        """Carry out what was held, as far as nothing holds it any more."""
        raise NotImplementedError

    def forget(self) -> None:
        """The connection is over: drop what its channels hold."""
        raise NotImplementedError

    def modes(self, channel: int) -> tuple[bool, bool]:  # noqa: ARG002  (some protocols' channels differ)
        """Whether a channel confirms what is published there, and whether it is transactional."""
        return True, False

    def give_up(self, fault: ShardmqError) -> None:
        """The client has not done in time what it should have."""
        self.close(fault)

    def send_heartbeat(self) -> None:
        """Give a sign of life."""
        raise NotImplementedError

    def block(self, reason: str) -> None:
        """An alarm is on: publishes are held from now on."""
        raise NotImplementedError

    def unblock(self) -> None:
        """No alarm is on any more."""
        raise NotImplementedError

    def encode_confirms(self, channel: Channel) -> bytes:
        """What tells the client of a channel's confirms."""
        raise NotImplementedError

    # --- asyncio.BufferedProtocol ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class
        self._transport.set_write_buffer_limits(high=self._server.next_high_water)
        address = transport.get_extra_info("peername") or ("", 0)
        self.peer, self.peer_port = str(address[0]), address[1]
        self.is_tls = transport.get_extra_info("ssl_object") is not None
        self.connected_at_ms = time.time_ns() // 1_000_000
        self._server.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  (asyncio's signature)
        self._is_closing = self._is_finished = True
        self._out.clear()
        self._forget_unread()
        self.release()
        self._server.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        return READ_BUFFER if self._read_bytes == len(READ_BUFFER) else READ_BUFFER[: self._read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = began = time.monotonic()
        if self._is_finished:
            return
        self.take(READ_BUFFER[:nbytes])
        spent = time.monotonic() - began
        if self._pass != self._hub.passes:
            self._pass = self._hub.passes
            self._spent = 0.0
        self._spent += spent
        if self._spent > TURN_SECONDS:
            self._end_turn()
        if spent > TURN_SECONDS:
            self._read_bytes = max(LEAST_READ_BYTES, self._read_bytes // 2)
        elif spent < TURN_SECONDS / 4 and self._read_bytes < len(READ_BUFFER):
            self._read_bytes *= 2

    def _end_turn(self) -> None:
        """It had its share of this pass: more of it is read when the others were served."""
        if READ_TURN not in self._reading_held_by:
            self._hold_reading(READ_TURN)
            self._hub.turns.wait(partial(self._resume_reading, READ_TURN))

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self._forget_unread()
        if self._lent_bytes:
            self._repay()
        self._was_read()
        if self.session is not None:
            self.session.socket_has_room()

    def _forget_unread(self) -> None:
        self._hub.unread_bytes -= self._counted_bytes
        self._counted_bytes = 0

    # --- parting ----------------------------------------------------------------------------------------------------

    def part(self) -> None:
        """Carry out nothing more for the client, and give back what it has here; it may still be told why, and answer.

        Confirms and what else was said in this pass go out before. A client that we do not read would never hear of
        it, hence it is read again, whatever held that.
        """
        if self._is_closing:
            return
        self._is_closing = True  # before the flush, which would go on with what is held
        self.flush()
        self.release()
        self._deadline = time.monotonic() + PARTING_SECONDS
        if self._reading_held_by and not self._transport.is_closing():
            self._reading_held_by = frozenset()
            self._transport.resume_reading()

    def finish(self) -> None:
        """Hang up: what was said is sent, and then nothing more.

        What the client still says is dropped until it hangs up, too. A socket that is closed with something unread is
        reset, and a client that is reset may lose what it has not read: our last words.
        """
        self.part()
        if self._is_finished:
            return
        self.flush()
        self._is_finished = True
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()  # TLS, which parts in a similar way by itself

    def abort(self) -> None:
        """Hang up at once, whatever the client has not read."""
        self._transport.abort()

    def release(self) -> None:
        """Give back what the client has here: consumers, what is unacked, exclusive queues."""
        self._hub.alarms.leave(self)
        if self.session is not None:
            self._server.left(self.session)
            self.session.close()
            self.session = None  # a circle, which would lie around until the collector comes by
        self.forget()

    def stop_reading(self) -> None:
        """The process is about to stop: what is under way will be answered, nothing more is begun."""
        self._hold_reading("stopping")

    def abort_if_silent(self, now: float) -> None:
        """Called every SILENCE_CHECK_SECONDS: enforces the handshake's time and the heartbeat, and sends ours."""
        if self._is_closing:
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

    def _keeps_others_waiting(self, now: float) -> bool:
        """Whether it reads nothing of what was lent to it, while that is all there is."""
        self._repay()
        return now - self._progress_at > STALLED_SECONDS and self._hub.lender.is_short

    def _sense(self, now: float) -> None:
        """Look for signs of life of a client that is not read from until it reads: it takes something, or the kernel
        has heard of it. One that is frozen would keep what it was given for ever.
        """
        before, self._unread_bytes = self._unread_bytes, self._transport.get_write_buffer_size()
        if self._unread_bytes < before:
            self._heard_at = now
        elif not self._transport.is_closing():
            raw = self._transport.get_extra_info("socket")
            info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SINCE_DATA_CAME.size)
            (silent_ms,) = SINCE_DATA_CAME.unpack(info)
            self._heard_at = max(self._heard_at, now - silent_ms / 1000)

    # --- sending --------------------------------------------------------------------------------------------------

    def send_frame(self, frame: bytes) -> None:
        """Queue a frame, or several, for the end of the pass."""
        if self._is_finished:
            return
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
            self._out += [self.encode_confirms(channel) for channel in confirming]
        if not self._out or self._is_finished or self._transport.is_closing():
            if self._lent_bytes:
                self._repay()
            return
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if size > MUCH_BYTES and len(out) > 1:
            self._sent_at = time.monotonic()
            self._transport.writelines(out)
        elif data := out[0] if len(out) == 1 else b"".join(out):  # where nobody asked for confirms there is none
            self._sent_at = time.monotonic()
            self._transport.write(data)
        if self._lent_bytes:
            self._repay()
        if not self.is_writable and self._is_too_much(self._transport.get_write_buffer_size()):
            self._is_unread = True
            self._hold_reading("unread")
        elif self._is_unread:
            self._was_read()

    def _is_too_much(self, unread: int) -> bool:
        """Whether the client is to read before anything more is done for it: it has much to read, or it is one of many
        that have something.
        """
        hub = self._hub
        hub.unread_bytes += unread - self._counted_bytes
        self._counted_bytes = unread
        return unread > UNREAD_BYTES_MAX or hub.unread_bytes > hub.unread_bytes_max

    def delivery_bytes(self, consumer: str) -> int:  # noqa: ARG002  (some protocols name it in each delivery)
        return 0

    def repay_when_read(self, size: int) -> None:
        if not self._lent_bytes:
            self._progress_at = time.monotonic()
            if not self._out:
                self._hub.write_due(self)
        self._lent_bytes += size

    def _repay(self) -> None:
        """What was lent and is not in the transport any more is free for the next messages."""
        unread = 0 if self.is_writable else self._transport.get_write_buffer_size() + self._out_bytes
        if self._lent_bytes > unread:
            repaid, self._lent_bytes = self._lent_bytes - unread, unread
            self._progress_at = time.monotonic()
            if self.session is not None:
                self.session.account.repay(repaid)

    def confirms_due(self, channel: Channel) -> None:
        if self._is_closing:
            return
        if not self._confirming:
            self._hub.write_due(self)
        self._confirming.append(channel)

    def _was_read(self) -> None:
        """There is room for more answers: go on with what was held for the lack of it."""
        self._is_unread = False
        self._resume_reading("unread")
        self.go_on()

    # --- back-pressure ----------------------------------------------------------------------------------------------

    def hold_publishing(self, link: ShardLink) -> None:
        reason = f"publishing to {link.name}"
        if reason not in self._reading_held_by:
            self._hold_reading(reason)
            link.confirms.relieved.append(lambda: self._resume_reading(reason))

    def _hold_more(self, size: int) -> None:
        self._held_bytes += size
        if self._held_bytes > HELD_BYTES_MAX:
            self._hold_reading("held")

    def _hold_less(self, size: int = 0) -> None:
        self._held_bytes -= size
        if self._held_bytes <= HELD_BYTES_MAX:
            self._resume_reading("held")

    def _hold_reading(self, reason: str) -> None:
        if self._is_closing:
            return
        if not self._reading_held_by and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reading_held_by |= {reason}

    def _resume_reading(self, reason: str) -> None:
        if reason in self._reading_held_by:
            self._reading_held_by -= {reason}
            if not self._reading_held_by and not self._transport.is_closing():
                self._heard_at = time.monotonic()
                self._transport.resume_reading()
