"""Type, length, payload: cutting a stream of bytes into frames.

type u32 | length u32 | payload (length bytes)      big-endian
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import FRAME_BYTES_MAX

HEADER: Final = Struct(">II")
"""What a frame begins with: type, length."""

_AMQP: Final = int.from_bytes(b"AMQP", "big")


def frame(kind: int, payload: bytes) -> bytes:
    """The bytes of a frame."""
    return HEADER.pack(kind, len(payload)) + payload


class FrameReader:
    """Cuts a stream of bytes into frames. A feed has three outcomes: frames, nothing yet, or a ProtocolError.

    Only a frame that arrives in several reads is copied.

    Args:
        limit: the largest payload, in bytes.
    """

    # Between calls, `_held` is the beginning of at most one frame. It is shorter than `_wanted`, the size of the header
    # until the header has come and is found right, and the size of the frame from then on.

    __slots__ = ("_held", "_limit", "_limits", "_wanted")

    def __init__(self, limit: int = FRAME_BYTES_MAX) -> None:
        self._held = bytearray()
        self._wanted = HEADER.size
        self.allow(limit, {})

    def allow(self, limit: int, larger: Mapping[int, int]) -> None:
        """Set the limits of frames whose headers come from now on.

        Args:
            limit: the largest payload, in bytes.
            larger: the limit of types with a larger one.
        """
        self._limit = limit
        self._limits = larger

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[int, memoryview]]:
        """Take bytes from the stream.

        Args:
            data: the next bytes, cut anywhere.

        Returns:
            The frames that are complete now: type and payload. Most payloads are views of `data`: use them before it is
            reused.

        Raises:
            ProtocolError: a frame is over the limit, or has a type that no version has (FRAME_ERROR).
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
        """Add to the frame that was begun; returns how many bytes of `view` belong to it."""
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
            f"a frame of type {kind} with {length} bytes; the limit is {limit}; send smaller ones",
            ReplyCode.FRAME_ERROR,
        )
