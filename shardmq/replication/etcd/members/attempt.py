"""A request on its way to etcd, and the members that were asked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.members.connection import Connection
from shardmq.replication.etcd.members.endpoints import Member
from shardmq.replication.etcd.messages import Request
from shardmq.replication.etcd.url import Endpoint

Answer = TypeVar("Answer")

LATE_SECONDS: Final = 0.5
"""When a member has not answered a read, or cannot be connected to, within this time, the next one is asked as well.
Once every member was asked, the time doubles."""

LATE_LOGIN_SECONDS: Final = 2.0
"""The same for a login: etcd hashes passwords slowly on purpose."""

CLOSED_SECONDS: Final = 8.0
"""A connection that has brought no answer for so long is closed."""

LATE: Final = "no answer in time"
"""Why a member brought nothing; one that has given a better reason before keeps that."""


@dataclass(slots=True, eq=False)
class Call(Generic[Answer]):
    """A request on its way.

    Attributes:
        request: what is asked.
        deadline: when it is over.
        done: called with its outcome, once.
        stream: called with each part of an answer that has no end; the deadline is for its first part then.
        attempts: members that were asked and have not answered yet, the newest last.
        next_at: when the next member is asked, though those before may still answer.
        late_seconds: how long the first members have before the next one is asked as well.
        asked: how many members were, those asked twice counted twice.
        logins: how often it was refused for a token that members do not know any more.
        reasons: why members that were asked brought nothing so far.
    """

    request: Request[Answer]
    deadline: float
    done: Callable[[Answer | EtcdError], None]
    stream: Callable[[bytes], None] | None = None
    late_seconds: float = LATE_SECONDS
    attempts: "list[Attempt]" = field(default_factory=list)
    next_at: float = 0.0
    asked: int = 0
    logins: int = 0
    is_over: bool = False
    reasons: dict[Endpoint, str] = field(default_factory=dict)

    def patience(self, members: int) -> float:
        """How long the next one of so many members has before another is asked as well, in seconds."""
        return min(self.late_seconds * 2.0 ** min(self.asked // members, 8), CLOSED_SECONDS)

    def note(self, member: Member, reason: str) -> None:
        """A member has brought nothing so far."""
        if reason != LATE or member.endpoint not in self.reasons:
            self.reasons[member.endpoint] = reason

    @property
    def has_sent(self) -> bool:
        """Whether a member may have the request."""
        return any(attempt.connection.has_sent for attempt in self.attempts)


@dataclass(slots=True, eq=False)
class Attempt:
    """A call at one member.

    Attributes:
        call: None once nobody waits for the answer.
        member: who was asked.
        connection: over which; nobody else uses it.
        token: that it was asked with.
        until: when the connection is closed, whatever may still come.
        is_late: whether the next member was asked as well.
        parts: of the answer.
        size: of all parts, bytes.
    """

    call: Call[Any] | None
    member: Member
    connection: Connection
    token: str
    until: float
    is_late: bool = False
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
