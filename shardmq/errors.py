"""What can go wrong, as one tree of exceptions with AMQP 0-9-1 reply codes.

The code says what happened, the class says whose fault it is and what lives on: a `RequestError` ends one request,
a `ChannelError` ends the channel, a `ConnectionFault` the connection. Texts say what was wrong, where, and what to do.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Self, TypeVar


class ReplyCode(IntEnum):
    """Reply codes, as in AMQP 0-9-1 section 1.1 and RabbitMQ's; 416, as in HTTP, is for native clients alone."""

    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    RANGE_ERROR = 416
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


class ShardmqError(Exception):
    """The root of everything shardmq raises.

    Attributes:
        code: what happened, an AMQP 0-9-1 reply code; where no broker spoke, the one that fits best.
        text: what was wrong, where, and what to do.
        is_from_broker: whether the broker said it. `str()` then begins with the code's name: "NOT_FOUND - no queue …".
        refused: messages refused since the last flush, where a publisher's flush raises it; else 0.
        came_back: mandatory messages that came back since the last flush, likewise.
    """

    code: ReplyCode = ReplyCode.INTERNAL_ERROR
    is_from_broker: bool = False
    refused: int = 0
    came_back: int = 0

    def __init__(self, text: str, code: ReplyCode | None = None) -> None:
        super().__init__(text)
        self.text = text
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code.name} - {self.text}" if self.is_from_broker else self.text

    def with_text(self, text: str) -> Self:
        """The same error with another text."""
        copy = type(self)(text, self.code)
        copy.is_from_broker = self.is_from_broker
        copy.refused, copy.came_back = self.refused, self.came_back
        return copy


class RequestError(ShardmqError):
    """One request was refused; the channel and everything else on it live on."""


class AccessRefused(RequestError):
    """The user may not do that."""

    code = ReplyCode.ACCESS_REFUSED


class NotFound(RequestError):
    """No exchange, queue, binding or virtual host of that name."""

    code = ReplyCode.NOT_FOUND


class ResourceLocked(RequestError):
    """Somebody else holds it exclusively."""

    code = ReplyCode.RESOURCE_LOCKED


class PreconditionFailed(RequestError):
    """It exists with other arguments, or is not in the state that was asked for."""

    code = ReplyCode.PRECONDITION_FAILED


class AlreadyAcknowledged(PreconditionFailed):
    """A job's messages were acknowledged by an earlier run of it, and nothing is left to do."""


class OffsetOutOfRange(RequestError):
    """An offset that a partition does not have: its message was dropped by retention, or is yet to come.

    Attributes:
        first: the oldest offset that is kept.
        end: the offset of the next message to come; -1 where the text does not tell the range.
    """

    code = ReplyCode.RANGE_ERROR
    first = end = -1

    def __init__(self, text: str, code: ReplyCode | None = None) -> None:
        super().__init__(text, code)
        found = _OFFSETS.search(text)
        if found is not None:
            self.first, self.end = int(found[1]), int(found[2])

    @classmethod
    def of(cls, offset: int, title: str, first: int, end: int) -> Self:
        """The error for an offset of what `title` names, which keeps [first, end)."""
        why = "dropped by its retention" if offset < first else "not published yet"
        return cls(
            f"offset {offset} of {title} is {why}: it keeps offsets [{first}, {end}); read from the earliest or the "
            "latest, or from one of these"
        )


_OFFSETS: Final = re.compile(r"offsets \[(\d+), (\d+)\)")


class ContentTooLarge(RequestError):
    """A message or a request over the limit."""

    code = ReplyCode.CONTENT_TOO_LARGE


class NotAllowed(RequestError):
    """Forbidden for everybody, whatever the permissions."""

    code = ReplyCode.NOT_ALLOWED


class Unavailable(RequestError):
    """The process that would answer is not there now; trying again later is right."""

    code = ReplyCode.RESOURCE_ERROR


class StillPreparing(Unavailable):
    """Shards still read what a commit is to bring into queues, and get on. Committing again goes on waiting for them.

    Attributes:
        read: bytes of records that those which have not answered yet have read so far.
        staged: bytes of records that they are to read.
    """

    read = staged = 0

    def __init__(self, text: str, code: ReplyCode | None = None) -> None:
        super().__init__(text, code)
        found = _PREPARED.match(text)
        if found is not None:
            self.read, self.staged = int(found[1]), int(found[2])

    @property
    def left(self) -> int:
        """Bytes of records that are still to be read."""
        return self.staged - self.read

    @classmethod
    def of(cls, shards: Sequence[str], transaction: str, read: int, staged: int) -> Self:
        """The error for a commit of the transaction of that name, for which these shards still read."""
        who = f"{shards[0]} still reads" if len(shards) == 1 else f"{shards[0]} and {len(shards) - 1} more still read"
        return cls(
            f"{who} what was staged ({read} of {staged} bytes so far); nothing of transaction '{transaction}' is "
            "decided: commit it again, it goes on from there"
        )


_PREPARED: Final = re.compile(
    r"shard-\d+ (?:still reads|and \d+ more still read) what was staged \((\d+) of (\d+) bytes so far\)"
)
"""How such a text begins. Its code is that of `Unavailable`, so that clients of earlier versions ask again, too."""


class InvalidRequest(RequestError):
    """A well-formed request with a value that has no meaning."""

    code = ReplyCode.SYNTAX_ERROR


class PublishRefused(RequestError):
    """Messages the broker did not take (a nack). They are not stored, or not certain to be."""

    code = ReplyCode.RESOURCE_ERROR


class Unroutable(RequestError):
    """A mandatory message that no queue took came back.

    Attributes:
        message: it, a `shardmq.ReturnedMessage`.
    """

    code = ReplyCode.NO_ROUTE
    message: Any = None

    def with_text(self, text: str) -> Self:
        """The same error with another text."""
        copy = super().with_text(text)
        copy.message = self.message
        return copy


class Timeout(RequestError):
    """No answer in time; what was asked for may still happen."""

    code = ReplyCode.RESOURCE_ERROR


class ChannelError(ShardmqError):
    """The channel is closed: it was misused, or its connection ended."""

    code = ReplyCode.CHANNEL_ERROR


class ConnectionFault(ShardmqError):
    """The connection is closed: what came over it made no sense."""

    code = ReplyCode.COMMAND_INVALID


class ProtocolError(ConnectionFault):
    """Bytes that are no valid frame or operation. `code` tells which kind of fault it was."""

    code = ReplyCode.FRAME_ERROR


class AuthenticationFailed(ConnectionFault):
    """User, password or virtual host were refused at connection.open."""

    code = ReplyCode.ACCESS_REFUSED


class ConnectionLost(ConnectionFault):
    """The peer went away, or did not answer in time."""

    code = ReplyCode.CONNECTION_FORCED


class StartupRefused(ShardmqError):
    """A process that will not start as it was asked to; starting it again the same way cannot help."""

    code = ReplyCode.NOT_ALLOWED


class StoreRefused(StartupRefused):
    """A store file that is not ours to open: foreign, newer, torn or in use. It is left untouched."""


class StoreDamaged(StoreRefused):
    """A store file is not what was written. It is left untouched.

    Attributes:
        file: the file.
        what: what is damaged, and what that affects.
        database: name of the database; None where all of the file is meant.
    """

    def __init__(self, file: Path, what: str, database: str | None = None, place: str = "") -> None:
        inside = "" if database is None else f" in database {database!r}"
        super().__init__(f"{file} is damaged{inside}{place}: {what}; restore it from a copy")
        self.file = file
        self.what = what
        self.database = database


class RowDamaged(StoreDamaged):
    """One row of a store is not what was written; the file around it is whole.

    Attributes:
        key: of the row.
        queue: id of the queue it belongs to; None where it belongs to none, or the key cannot tell.
    """

    database: str

    def __init__(self, file: Path, database: str, key: bytes, what: str, queue: int | None = None) -> None:
        super().__init__(file, what, database, f", key {key.hex() or 'empty'}")
        self.key = key
        self.queue = queue


class StoreUnreadable(ShardmqError):
    """A process met damage at its work that is no queue's; it ends, and its next start says what is damaged."""

    code = ReplyCode.RESOURCE_ERROR


class ReplicationRefused(ShardmqError):
    """What one replica sent to another cannot be taken; replication/store/faults.py has the kinds."""

    code = ReplyCode.PRECONDITION_FAILED


class StoreUnwritable(ShardmqError):
    """A store could not write what it must; its process ends, and starts from what is on disk."""

    code = ReplyCode.RESOURCE_ERROR


class HalfDone(ShardmqError):
    """A change was begun and not ended; the process ends, and starts from what is on disk."""


_REQUEST_ERRORS: dict[int, type[RequestError]] = {
    kind.code: kind
    for kind in (
        AccessRefused,
        NotFound,
        ResourceLocked,
        PreconditionFailed,
        OffsetOutOfRange,
        ContentTooLarge,
        NotAllowed,
        Unavailable,
        InvalidRequest,
    )
}


_Error = TypeVar("_Error", bound=ShardmqError)


def from_broker(error: _Error) -> _Error:
    """The error, marked as said by the broker."""
    error.is_from_broker = True
    return error


def request_error(code: int, text: str) -> RequestError:
    """The exception for a refusal that arrived as a reply code and a text."""
    kind = _REQUEST_ERRORS.get(code)
    if kind is Unavailable and _PREPARED.match(text):
        kind = StillPreparing
    return from_broker(kind(text) if kind else RequestError(text, reply_code(code)))


def reply_code(code: int) -> ReplyCode:
    """The reply code of that number; a number no version knows reads as INTERNAL_ERROR."""
    return ReplyCode(code) if code in ReplyCode.__members__.values() else ReplyCode.INTERNAL_ERROR
