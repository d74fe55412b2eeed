"""ZMTP 3.1, ZeroMQ's wire protocol (rfc.zeromq.org/spec/37), without I/O: the NULL mechanism, DEALER and ROUTER.

    both ends   greeting   FF 00 x 8 7F | 03 01 | "NULL" in 20 bytes | 00 | 00 x 31
    both ends   READY      04 size | 05 "READY" | 0B "Socket-Type" 4-byte size, value | 08 "Identity" 4-byte size, value
    either end  frame      flags, size (1 byte; 8 with LONG) | body

Neither end waits for the other's greeting before it sends its READY. A message of one frame is what this project's
links send; one of several frames comes as `NO_ENVELOPE`, its parts are dropped. A PING is answered.

The bytes of a frame that has come in part are gathered where they stay: the rest of it is read behind them.
"""

import struct
from collections import deque
from typing import Final

from shardmq.bus.transport.transport import NO_ENVELOPE, Envelope

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4
"""Flags of a frame."""

DEALER: Final = b"DEALER"
ROUTER: Final = b"ROUTER"

SIGNATURE: Final = b"\xff\0\0\0\0\0\0\0\0\x7f"
MECHANISM: Final = b"NULL".ljust(20, b"\0")
GREETING: Final = SIGNATURE + b"\x03\x01" + MECHANISM + bytes(32)

READ_BYTES: Final = 256 << 10
"""Read at once where frames are small."""

COMMAND_BYTES_MAX: Final = 16 << 10
"""READY has a socket type, an identity of 255 bytes at most and what else a peer may say of itself."""

BODY_BYTES_FIRST: Final = 16 << 20
"""Memory is taken for a frame as it comes, twice as much each time: a size that is claimed is no reason yet."""

_SIZE: Final = struct.Struct("!Q")
_PROPERTY: Final = struct.Struct("!I")


class ZmtpViolation(Exception):
    """The peer does not speak ZMTP 3 with the NULL mechanism, or is a socket of another type."""


def header_of(size: int) -> bytes:
    """The header of a message's only frame."""
    return bytes((0, size)) if size < 256 else b"\x02" + _SIZE.pack(size)


class Zmtp:
    """One end of a connection.

    Args:
        kind: type of this socket.
        peer: type that the peer's socket must have.
        identity: of this socket, where it is a dealer.

    Attributes:
        opening: the bytes to send first.
        is_ready: whether the peer has said who it is.
        messages: what has come.
        replies: what is to be sent in answer.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_filled",
        "_flags",
        "_greeting",
        "_is_in_parts",
        "_peer",
        "_rest",
        "_size",
        "is_ready",
        "messages",
        "opening",
        "replies",
    )

    def __init__(self, kind: bytes, peer: bytes, identity: bytes = b"") -> None:
        self.opening = GREETING + command(b"READY", _property(b"Socket-Type", kind) + _property(b"Identity", identity))
        self.is_ready = False
        self.messages: deque[Envelope] = deque()
        self.replies: list[bytes] = []
        self._peer = peer
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._greeting = b""
        self._rest = b""
        self._is_in_parts = False
        self._body: bytearray | None = None
        self._flags = self._size = self._filled = 0

    def space(self) -> memoryview:
        """Where the next bytes are to be read."""
        body = self._body
        if body is None:
            return self._buffer
        if self._filled == len(body):
            self._body = bytearray(min(2 * len(body), self._size))  # views of the one before may be held
            self._body[: self._filled] = body
            body = self._body
        return memoryview(body)[self._filled :]

    def took(self, count: int) -> None:
        """Take in so many bytes, which were read to where `space` said.

        Raises:
            ZmtpViolation: the peer speaks something else.
        """
        if self._body is not None:
            self._filled += count
            if self._filled == self._size:
                body, self._body = self._body, None
                self._frame(self._flags, body)
            return
        data = self._buffer[:count]
        if len(self._greeting) < len(GREETING):
            data = self._greet(data)
        if self._rest:
            data = memoryview(self._rest + data)
            self._rest = b""
        self._frames(data)

    def _frames(self, data: memoryview) -> None:
        at, end = 0, len(data)
        is_plain = self.is_ready and not self._is_in_parts
        while end - at >= 2:
            flags = data[at]
            if flags & LONG:
                if end - at < 9:
                    break
                start = at + 9
                (size,) = _SIZE.unpack_from(data, at + 1)
            else:
                start = at + 2
                size = data[at + 1]
            stop = start + size
            if stop > end:
                self._begin(flags, size, data[start:])
                return
            if is_plain and not flags & ~LONG:
                self.messages.append(bytes(data[start:stop]))
            else:
                self._frame(flags, bytes(data[start:stop]))
                is_plain = self.is_ready and not self._is_in_parts
            at = stop
        self._rest = bytes(data[at:])

    def _begin(self, flags: int, size: int, part: memoryview) -> None:
        """Begin a frame of which only a part has come."""
        if flags & COMMAND and size > COMMAND_BYTES_MAX:
            raise ZmtpViolation(f"it sent a command of {size} bytes")
        body = bytearray(max(len(part), min(size, BODY_BYTES_FIRST)))
        body[: len(part)] = part
        self._body, self._flags, self._size, self._filled = body, flags, size, len(part)

    def _frame(self, flags: int, body: Envelope) -> None:
        if flags & ~LONG == 0 and self.is_ready and not self._is_in_parts:
            self.messages.append(body)
        elif flags & COMMAND:
            self._command(flags, bytes(body))
        elif flags & ~(LONG | MORE):
            raise ZmtpViolation(f"it sent a frame with flags {flags:#x}")
        elif not self.is_ready:
            raise ZmtpViolation("it sent a message before it said who it is")
        else:
            self._is_in_parts = bool(flags & MORE)
            if not self._is_in_parts:
                self.messages.append(NO_ENVELOPE)

    def _greet(self, data: memoryview) -> memoryview:
        """Take in the greeting; returns what has come behind it."""
        lacking = len(GREETING) - len(self._greeting)
        greeting = self._greeting = self._greeting + data[:lacking]
        if greeting[:1] != b"\xff"[: len(greeting)] or (len(greeting) > 9 and not greeting[9] & 1):
            raise ZmtpViolation("it does not speak ZMTP")
        if len(greeting) > 10 and greeting[10] < 3:
            raise ZmtpViolation(f"it speaks ZMTP {greeting[10]}; this process speaks 3.1")
        if len(greeting) == len(GREETING) and greeting[12:32] != MECHANISM:
            raise ZmtpViolation(f"it wants the mechanism {greeting[12:32].rstrip(bytes(1))!r}; sockets here have none")
        return data[lacking:]

    def _command(self, flags: int, body: bytes) -> None:
        if flags & MORE or not body or len(body) < 1 + body[0]:
            raise ZmtpViolation("it sent a command that is none")
        name, value = body[1 : 1 + body[0]], body[1 + body[0] :]
        if name == b"ERROR":
            raise ZmtpViolation(f"it refused: {value[1:].decode(errors='replace')}")
        if name == b"READY" and not self.is_ready:
            kind = properties(value).get(b"socket-type")
            if kind != self._peer:
                raise ZmtpViolation(f"it is a socket of type {kind!r}, not {self._peer!r}")
            self.is_ready = True
        elif name == b"PING" and self.is_ready:
            self.replies.append(command(b"PONG", value[2:18]))
        elif name != b"PONG" or not self.is_ready:
            raise ZmtpViolation(f"it sent the command {name!r}")


def command(name: bytes, value: bytes) -> bytes:
    """The frame of a command."""
    body = bytes((len(name),)) + name + value
    if len(body) < 256:
        return bytes((COMMAND, len(body))) + body
    return bytes((COMMAND | LONG,)) + _SIZE.pack(len(body)) + body


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + _PROPERTY.pack(len(value)) + value


def properties(value: bytes) -> dict[bytes, bytes]:
    """Read what a READY says, names in lower case.

    Raises:
        ZmtpViolation: it is cut off.
    """
    found = {}
    at = 0
    while at < len(value):
        name_end = at + 1 + value[at]
        start = name_end + _PROPERTY.size
        if start > len(value):
            raise ZmtpViolation("its READY is cut off")
        (size,) = _PROPERTY.unpack_from(value, name_end)
        if start + size > len(value):
            raise ZmtpViolation("its READY is cut off")
        found[value[at + 1 : name_end].lower()] = value[start : start + size]
        at = start + size
    return found
