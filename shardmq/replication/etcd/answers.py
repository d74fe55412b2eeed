"""Answers of the gateway read from bytes, without I/O.

Errors have two shapes. Up to etcd 3.5: `{"error": "text", "code": 7}`, in streams
`{"error": {"grpc_code": 7, "message": "text"}}`. From 3.6 on: `{"code": 7, "message": "text"}`, in streams
`{"error": {"code": 7, "message": "text"}}`. What lies in front of etcd may answer in no shape at all.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

import msgspec

from shardmq.replication.etcd.messages import WatchAnswer

Answer = TypeVar("Answer")

LINE_BYTES_MAX: Final = 64 << 20
"""One message of a watch. etcd takes no request over 1.5 MB, and puts the events of up to 1,000 revisions into one."""


class Status(IntEnum):
    """gRPC's status codes that mean something here."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


WITHOUT_EFFECT: Final = frozenset(
    {
        Status.INVALID_ARGUMENT,
        Status.NOT_FOUND,
        Status.PERMISSION_DENIED,
        Status.RESOURCE_EXHAUSTED,
        Status.FAILED_PRECONDITION,
        Status.OUT_OF_RANGE,
        Status.UNAUTHENTICATED,
    }
)
"""After these a change has had no effect. With all others, such as 14 (UNAVAILABLE, "request timed out", "leader
changed"), it may be under way: etcd says them while the change waits for its majority, too."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a member said instead of an answer.

    Attributes:
        status: gRPC's, `Status.UNKNOWN` where it said none.
        text: its words.
    """

    status: int
    text: str

    @property
    def is_without_effect(self) -> bool:
        """Whether what was asked for has had no effect for certain."""
        return self.status in WITHOUT_EFFECT

    @property
    def is_forgotten_login(self) -> bool:
        """Whether logging in again helps: members forget tokens when they start, and with time."""
        return self.status == Status.UNAUTHENTICATED or "auth store is old" in self.text


class _Inner(msgspec.Struct):
    grpc_code: int = 0
    code: int = 0
    message: str = ""


class _Outer(msgspec.Struct):
    error: str | _Inner = ""
    code: int = 0
    message: str = ""


class _Line(msgspec.Struct):
    result: WatchAnswer | None = None
    error: _Inner | str | None = None


def read_answer(http_status: int, body: bytes, answer: type[Answer]) -> Answer | Failure:
    """The answer in a body, or what was said instead."""
    if http_status != 200:
        return read_failure(http_status, body)
    try:
        return msgspec.json.decode(body, type=answer, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        return Failure(Status.UNKNOWN, f"its answer is not etcd's ({fault})")


def read_failure(http_status: int, body: bytes) -> Failure:
    """What was said with an HTTP status other than 200."""
    try:
        outer = msgspec.json.decode(body, type=_Outer, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        said = " ".join(body[:200].decode(errors="replace").split())
        hint = ""
        if http_status == 404:
            hint = "; is it etcd's port for clients, with --enable-grpc-gateway?"
        elif said.startswith("CommonName"):  # etcd's gateway would take its own certificate for the user's
            hint = "; use a certificate without one, with its names in subjectAltName"
        return Failure(Status.UNKNOWN, f"HTTP {http_status} {said}{hint}")
    if isinstance(outer.error, _Inner):
        return _failure(outer.error)
    return Failure(outer.code or Status.UNKNOWN, outer.message or outer.error or f"HTTP {http_status}")


def _failure(inner: _Inner) -> Failure:
    return Failure(inner.grpc_code or inner.code or Status.UNKNOWN, inner.message or "it gives no reason")


class WatchStream:
    """The stream of a watch: messages cut from chunks that end anywhere."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def receive(self, data: bytes) -> list[WatchAnswer | Failure]:
        """The messages that are complete now; a failure is the last of them."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces, self._size = [], 0
        self._pieces.append(rest)
        self._size += len(rest)
        read = []
        for line in lines:
            if line:
                read.append(_read_line(line))
                if isinstance(read[-1], Failure):
                    return read
        if self._size > LINE_BYTES_MAX:
            read.append(Failure(Status.UNKNOWN, f"it sends a message of over {LINE_BYTES_MAX:,} bytes"))
        return read


def _read_line(line: bytes) -> WatchAnswer | Failure:
    try:
        message = msgspec.json.decode(line, type=_Line, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        return Failure(Status.UNKNOWN, f"its watch is not etcd's ({fault})")
    if message.error:
        return Failure(Status.UNKNOWN, message.error) if isinstance(message.error, str) else _failure(message.error)
    return message.result or WatchAnswer()
