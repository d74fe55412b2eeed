"""Frames: bytes in, whole payloads out, and back. No I/O; the bytes are drawn in SPEC.md.

type u32 | length u32 | payload (length bytes)      big-endian
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import FRAME_BYTES_MAX

HEADER: Final = Struct(">II")
_AMQP: Final = int.from_bytes(b"AMQP", "big")


def frame(kind: int, payload: bytes) -> bytes:
    """One frame's bytes."""
    return HEADER.pack(kind, len(payload)) + payload


class FrameReader:
    """Cuts a stream of bytes into frames. A feed has three outcomes: frames, nothing yet, or a ProtocolError.

    Only a frame that straddles two reads is copied. Invariant: between calls, `_held` is the beginning of at most one
    frame, shorter than `_wanted`: its header's length, and once the header is there and found good, the whole's.
    """

    __slots__ = ("_held", "_limit", "_limits", "_wanted")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._held = bytearray()
        self._wanted = HEADER.size
        self.allow(limit, {})

    def allow(self, limit: int, larger: Mapping[int, int]) -> None:
        """How large the frames may be whose headers come from now on.

        Args:
            limit: bytes of a payload.
            larger: the same for types that may have more.
        """
        self._limit = limit
        self._limits = larger

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[int, memoryview]]:
        """Take in what was read.

        Args:
            data: bytes as they came from the socket, cut anywhere.

        Returns:
            The frames now complete: (type, payload). Payloads are views, of `data` most of them: use them before it is
            reused.

        Raises:
            ProtocolError: FRAME_ERROR for a frame over the limit or a type no version has.
        """
        view = memoryview(data)
        position, size = 0, len(view)
        frames: list[tuple[int, memoryview]] = []
        if self._held:
            position = self._complete(view, frames)
        while size - position >= HEADER.size:
            kind, length = HEADER.unpack_from(view, position)
            if not 0 < kind <= 0xFFFF or (length > self._limit and length > self._limits.get(kind, 0)):
                raise self._refusal(kind, length)
            end = position + HEADER.size + length
            if end > size:
                self._wanted = end - position
                break
            frames.append((kind, view[position + HEADER.size : end]))
            position = end
        if position < size:
            self._held += view[position:]
        return frames

    def _complete(self, view: memoryview, frames: list[tuple[int, memoryview]]) -> int:
        """Add to the frame that was begun; returns how much of `view` belongs to it."""
        held = self._held
        position = 0
        while True:
            missing = self._wanted - len(held)
            held += view[position : position + missing]
            position = min(position + missing, len(view))
            if len(held) < self._wanted:
                return position
            kind, length = HEADER.unpack_from(held)
            if not 0 < kind <= 0xFFFF or (length > self._limit and length > self._limits.get(kind, 0)):
                raise self._refusal(kind, length)
            self._wanted = HEADER.size + length
            if len(held) == self._wanted:
                frames.append((kind, memoryview(held)[HEADER.size :]))
                self._held = bytearray()
                self._wanted = HEADER.size
                return position

    def _refusal(self, kind: int, length: int) -> ProtocolError:
        if kind == _AMQP:
            return ProtocolError("this is an AMQP header; this port speaks the shardmq protocol", ReplyCode.FRAME_ERROR)
        if not 0 < kind <= 0xFFFF:
            return ProtocolError(f"{kind:#010x} is no frame type; is this a shardmq client?", ReplyCode.FRAME_ERROR)
        limit = max(self._limit, self._limits.get(kind, 0))
        return ProtocolError(
            f"a frame of type {kind} with {length} bytes; the limit is {limit}: say it in smaller pieces",
            ReplyCode.FRAME_ERROR,
        )
