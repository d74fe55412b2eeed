"""A client's socket: read in turns, written to once a pass, and read no further while the client is behind."""

import asyncio
import socket
import struct
import time
from functools import partial
from typing import Final

from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.front import ConfirmingChannel
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.passes import LEAST_READ_BYTES, OFTEN, TURN_SECONDS

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

MUCH_BYTES: Final = 1 << 20
"""More than that is not put together to be written as one piece: to copy it takes longer than writing in pieces."""

LARGE_PIECE_BYTES: Final = 2 << 10
"""Pieces that have more on average are not put together either."""

READ_BUFFER: Final = memoryview(bytearray(256 << 10))
"""One for all connections: what is read into it is taken out before the loop reads again. A new one for each read costs
page faults (0.1 µs a message in bulk), one for each connection memory."""


def set_socket_options(transport: asyncio.BaseTransport) -> None:
    """Send small frames at once, as a pass already gathers what belongs together; probe for dead peers."""
    raw = transport.get_extra_info("socket")
    if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class ClientSocket(asyncio.BufferedProtocol):
    """The socket of one client. Classes above it say what its bytes mean.

    There may be many thousands that do nothing, hence slots and shared empty sets: of 5,000 with a channel, each takes
    4.6 KB of resident memory, its transport included.

    Args:
        state: of the gateway.

    Attributes:
        state: of the gateway.
        is_writable: whether the client's socket takes more.
        is_unread: whether nothing more is carried out for the client until it has read what it was sent.
        is_closing: whether nothing more is carried out for the client at all.
        bytes_in: what was read.
        bytes_out: what was written.
    """

    __slots__ = (
        "_confirming",
        "_counted_bytes",
        "_heard_at",
        "_held_bytes",
        "_is_finished",
        "_lent_bytes",
        "_look",
        "_out",
        "_out_bytes",
        "_pass",
        "_progress_at",
        "_read_bytes",
        "_reading_held_by",
        "_reads",
        "_sent_at",
        "_spent",
        "_transport",
        "_unread_bytes",
        "bytes_in",
        "bytes_out",
        "is_closing",
        "is_unread",
        "is_writable",
        "state",
    )

    def __init__(self, state: GatewayState) -> None:
        self.state = state
        self._transport: asyncio.Transport
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._confirming: list[ConfirmingChannel] = []
        self._held_bytes = 0
        self._counted_bytes = 0  # unread, in what the gateway counts
        self._lent_bytes = 0  # of what was sent, those that are free again when the client has read them
        self._pass = 0  # the last one in which something was read
        self._spent = 0.0  # seconds of work for what was read in it
        self._read_bytes = len(READ_BUFFER)  # at once
        self._look = 0  # the last one at all clients' reads (`Gathering`) before something was read
        self._reads = 0  # since then
        self.is_unread = False
        self.bytes_in = self.bytes_out = 0
        self._unread_bytes = 0  # when that was last looked at
        self._heard_at = self._sent_at = self._progress_at = time.monotonic()
        self.is_closing = False
        self._is_finished = False
        self._reading_held_by: frozenset[str] = frozenset()
        self.is_writable = True

    def take(self, data: memoryview) -> None:
        """Carry out what has come; the bytes are there for this call alone."""
        raise NotImplementedError

    def drop_stranger(self, fault: Exception) -> bool:
        """Drop a client for what nobody expected while it was carried out; returns whether all else may go on."""
        raise NotImplementedError

    def resume(self) -> None:
        """Carry out what was held, as far as nothing holds it any more."""
        raise NotImplementedError

    def socket_has_room(self) -> None:
        """Give the client's consumers credit: its socket takes more again."""
        raise NotImplementedError

    def repay(self, size: int) -> None:
        """Repay `size` bytes that were lent to the client."""
        raise NotImplementedError

    def encode_confirms(self, channel: ConfirmingChannel) -> bytes:
        """A channel's confirms as the client's protocol writes them."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  (asyncio's signature)
        """The buffer to read into; less of it for a client whose bytes take long."""
        return READ_BUFFER if self._read_bytes == len(READ_BUFFER) else READ_BUFFER[: self._read_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Carry out what was read; end the client's turn where that took long."""
        self._heard_at = began = time.monotonic()
        gathering = self.state.gathering
        gathering.reads += 1
        gathering.bytes += nbytes
        if self._look == gathering.looks:
            self._reads += 1
            if self._reads > OFTEN:
                gathering.often += 1
        else:
            self._look, self._reads = gathering.looks, 1
        self.bytes_in += nbytes
        if self._is_finished:
            return
        try:
            self.take(READ_BUFFER[:nbytes])
        except Exception as fault:
            if not self.drop_stranger(fault):
                raise
        spent = time.monotonic() - began
        if self._pass != self.state.passes:
            self._pass = self.state.passes
            self._spent = 0.0
        self._spent += spent
        if self._spent > TURN_SECONDS:
            self._end_turn()
        if spent > TURN_SECONDS:
            self._read_bytes = max(LEAST_READ_BYTES, self._read_bytes // 2)
        elif spent < TURN_SECONDS / 4 and self._read_bytes < len(READ_BUFFER):
            self._read_bytes *= 2

    def _end_turn(self) -> None:
        """Stop reading until the others were served: this client had its share of the pass."""
        if READ_TURN not in self._reading_held_by:
            self._hold_reading(READ_TURN)
            self.state.time_slices.wait(partial(self._resume_reading, READ_TURN))

    def pause_writing(self) -> None:
        """Note that the transport holds more than the client has read of late."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Go on with what waited for the client to read."""
        self.is_writable = True
        self._forget_unread()
        if self._lent_bytes:
            self._repay_read()
        self._was_read()
        self.socket_has_room()

    def _forget_unread(self) -> None:
        self.state.unread_bytes -= self._counted_bytes
        self._counted_bytes = 0

    def send_frame(self, frame: bytes) -> None:
        """Queue a frame, or several, for the end of the pass."""
        if self._is_finished:
            return
        if not self._out:
            self.state.write_due(self)
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > UNREAD_BYTES_MAX:
            self.is_unread = True

    def send_pieces(self, pieces: list[bytes | memoryview]) -> None:
        """Queue frames in pieces, one behind the other, for the end of the pass."""
        if self._is_finished:
            return
        if not self._out:
            self.state.write_due(self)
        self._out += pieces
        self._out_bytes += sum(map(len, pieces))
        if self._out_bytes > UNREAD_BYTES_MAX:
            self.is_unread = True

    def confirms_due(self, channel: ConfirmingChannel) -> None:
        """Collect a channel's confirms at the end of the pass."""
        if self.is_closing:
            return
        if not self._confirming:
            self.state.write_due(self)
        self._confirming.append(channel)

    def send_confirms(self, channel: ConfirmingChannel) -> None:
        """Send a channel's confirms now, if some are due: the channel ends, and its number may be used again."""
        if channel in self._confirming:
            self._confirming.remove(channel)
            self.send_frame(self.encode_confirms(channel))

    def flush(self) -> int:
        """Write what is queued, as one piece, unless that would be to copy much; returns how many bytes."""
        if self._confirming:
            confirming, self._confirming = self._confirming, []
            self._out += [self.encode_confirms(channel) for channel in confirming]
        if not self._out or self._is_finished or self._transport.is_closing():
            if self._lent_bytes:
                self._repay_read()
            return 0
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if len(out) > 1 and (size > MUCH_BYTES or size > len(out) * LARGE_PIECE_BYTES):
            self._sent_at = time.monotonic()
            self._transport.writelines(out)
        elif data := out[0] if len(out) == 1 else b"".join(out):  # where nobody asked for confirms there is none
            self._sent_at = time.monotonic()
            self._transport.write(data)
            size = len(data)
        self.bytes_out += size
        if self._lent_bytes:
            self._repay_read()
        if not self.is_writable and self._is_too_much(self._transport.get_write_buffer_size()):
            self.is_unread = True
            self._hold_reading("unread")
        elif self.is_unread:
            self._was_read()
        return size

    def _is_too_much(self, unread: int) -> bool:
        """Whether the client is to read before anything more is done for it.

        It is where it has much to read, or is one of many that have something.
        """
        state = self.state
        state.unread_bytes += unread - self._counted_bytes
        self._counted_bytes = unread
        return unread > UNREAD_BYTES_MAX or state.unread_bytes > state.unread_bytes_max

    def _was_read(self) -> None:
        """Go on with what was held for the lack of room for answers."""
        self.is_unread = False
        self._resume_reading("unread")
        self.resume()

    def repay_when_read(self, size: int) -> None:
        """Repay `size` bytes that were lent once the client's socket has taken them."""
        if not self._lent_bytes:
            self._progress_at = time.monotonic()
            if not self._out:
                self.state.write_due(self)
        self._lent_bytes += size

    def _repay_read(self) -> None:
        """Repay what was lent and is not in the transport any more: it is free for the next messages."""
        unread = 0 if self.is_writable else self._transport.get_write_buffer_size() + self._out_bytes
        if self._lent_bytes > unread:
            repaid, self._lent_bytes = self._lent_bytes - unread, unread
            self._progress_at = time.monotonic()
            self.repay(repaid)

    def _sense(self, now: float) -> None:
        """Look for signs of life of a client that is not read from until it reads.

        It takes something, or the kernel has heard of it. One that is frozen would keep what it was given for ever.
        """
        before, self._unread_bytes = self._unread_bytes, self._transport.get_write_buffer_size()
        if self._unread_bytes < before:
            self._heard_at = now
        elif not self._transport.is_closing():
            raw = self._transport.get_extra_info("socket")
            info = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SINCE_DATA_CAME.size)
            (silent_ms,) = SINCE_DATA_CAME.unpack(info)
            self._heard_at = max(self._heard_at, now - silent_ms / 1000)

    def hold_publishing(self, link: ShardLink) -> None:
        """Read no more until that shard has confirmed most of what it was sent."""
        reason = f"publishing to {link.name}"
        if reason not in self._reading_held_by:
            self._hold_reading(reason)
            link.confirms.relieved.append(lambda: self._resume_reading(reason))

    def hold_more(self, size: int) -> None:
        """Count a request of `size` bytes that is held; read no more once that is much."""
        self._held_bytes += size
        if self._held_bytes > HELD_BYTES_MAX:
            self._hold_reading("held")

    def hold_less(self, size: int) -> None:
        """Count a request of `size` bytes as held no longer."""
        self._held_bytes -= size
        if self._held_bytes <= HELD_BYTES_MAX:
            self._resume_reading("held")

    def pause_reading(self) -> None:
        """Read no more, whatever holds that: nothing that the client says counts."""
        self._transport.pause_reading()

    def _hold_reading(self, reason: str) -> None:
        if self.is_closing:
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
