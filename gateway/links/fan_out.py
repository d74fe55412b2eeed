"""Confirms of a publish that went to several shards, joined."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from shardmq.errors import ReplyCode


class ConfirmTarget(Protocol):
    """Whoever waits for confirms: a channel."""

    def confirm(self, first: int, last: int) -> None:
        """Publishes `first` to `last` are where they should be."""

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        """Publishes `first` to `last` are not, or not everywhere; but for the first `taken` messages if it is one."""


class FanOut:
    """A publish in several parts: confirmed when the last is, refused when one is.

    Attributes:
        is_of_many: whether it puts publishes of one message each together.
    """

    __slots__ = ("refusal", "remaining", "taken")
    is_of_many: ClassVar = False

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining
        self.refusal: tuple[int, str] | None = None
        self.taken = 0

    def confirm(self, publisher: ConfirmTarget, request: int) -> None:
        """One part is where it should be."""
        self.remaining -= 1
        if self.remaining:
            return
        if self.refusal is None:
            publisher.confirm(request, request)
        else:
            publisher.refuse(request, request, *self.refusal, self.taken)

    def refuse(self, publisher: ConfirmTarget, request: int, code: int, text: str, taken: int) -> None:
        """One part is not; only the first `taken` messages of the publish are certain to be in it."""
        if self.refusal is None or taken < self.taken:
            self.refusal = code, text
            self.taken = taken
        self.confirm(publisher, request)


class FanOutOfMany(FanOut):
    """Publishes of one message each, which go to several shards together: each of them is confirmed where all parts of
    the run are certain to have its message.
    """

    __slots__ = ("last",)
    is_of_many: ClassVar = True

    def __init__(self, remaining: int, last: int) -> None:
        super().__init__(remaining)
        self.last = last

    def confirm(self, publisher: ConfirmTarget, request: int) -> None:
        self.remaining -= 1
        if self.remaining:
            return
        refused = self.last + 1 if self.refusal is None else request + self.taken
        if refused > request:
            publisher.confirm(request, refused - 1)
        if self.refusal is not None:
            publisher.refuse(refused, self.last, *self.refusal)


@dataclass(slots=True)
class _Unconfirmed:
    """Publishes in a run: `each` messages in every one of them, from message `start` of the run on."""

    number: int
    queues: tuple[int, ...]
    publisher: ConfirmTarget
    first: int
    last: int
    each: int
    start: int
    size: int
    fan: FanOut | None
    offset: int  # how many messages of the publish that a fan puts together are in the parts before
    is_many: bool  # publishes of one message each that were handed in together


def _confirm(entry: _Unconfirmed) -> None:
    if entry.fan is None:
        entry.publisher.confirm(entry.first, entry.last)
    else:
        entry.fan.confirm(entry.publisher, entry.first)


def refuse(publisher: ConfirmTarget, first: int, last: int, fan: FanOut | None, text: str) -> None:
    """Refuse publishes of which nothing is certain."""
    if fan is None:
        publisher.refuse(first, last, ReplyCode.RESOURCE_ERROR, text)
    else:
        fan.refuse(publisher, first, ReplyCode.RESOURCE_ERROR, text, 0)
