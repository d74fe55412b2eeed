"""An endpoint of the HTTP API as a value: who may ask what, and what answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from shardmq.management.web.call import BODY_BYTES_MAX, Call

PREFIX: Final = "/api"
"""Of the paths of the HTTP API."""


class Right(IntEnum):
    """What a caller needs; each tag has the rights below it."""

    NOTHING = 0
    MANAGEMENT = 1
    POLICYMAKER = 2
    MONITORING = 3
    ADMINISTRATOR = 4

    def is_of(self, tags: tuple[str, ...]) -> bool:
        """Whether these tags give it. Monitors change no policies."""
        if self is Right.POLICYMAKER:
            return bool({"policymaker", "administrator"} & set(tags))
        return max((_OF_TAG.get(tag, Right.NOTHING) for tag in tags), default=Right.NOTHING) >= self


_OF_TAG: Final = {
    "management": Right.MANAGEMENT,
    "policymaker": Right.POLICYMAKER,
    "monitoring": Right.MONITORING,
    "administrator": Right.ADMINISTRATOR,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered.

    Attributes:
        body: the value that becomes JSON; None for no body; bytes, at once or piece by piece, are sent as they are, and
            `headers` say what they are.
        status: of HTTP.
        headers: more of the answer.
    """

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


NO_CONTENT: Final = Answer(status=204)
"""Something was changed or deleted."""

CREATED: Final = Answer(status=201)
"""Something is new."""


def put(is_new: bool) -> Answer:
    """The answer to a PUT."""
    return CREATED if is_new else NO_CONTENT


Handler = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path.

    Attributes:
        method: of HTTP; GET is HEAD as well.
        path: below the prefix, as "/queues/{vhost}/{name}".
        handler: answers.
        right: what the caller needs.
        summary: a sentence for the description.
        answer: type of the answer's body, for the description; None for no body.
        body: type of the request's body, likewise.
        is_list: whether it takes the parameters of lists: paging, sorting, columns.
        parameters: names of others that it takes.
        has_samples: whether it takes those of samples, as `lengths_age`.
        is_shared: whether browsers get the answer that another one of the same user got within this second.
        prefix: of the path.
        body_bytes_max: of a request's body.
        has_secret: whether a part of the path is one, which no log may have.
    """

    method: str
    path: str
    handler: Handler
    right: Right
    summary: str
    answer: Any = None
    body: Any = None
    is_list: bool = False
    parameters: tuple[str, ...] = ()
    has_samples: bool = False
    is_shared: bool = False
    prefix: str = PREFIX
    body_bytes_max: int = BODY_BYTES_MAX
    has_secret: bool = False
