"""Confirms of a publish that went to several shards, joined."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

from shardmq.errors import ReplyCode


class ConfirmTarget(Protocol):
    """Whoever waits for confirms: a channel's publisher.

    Attributes:
        more_confirmed: messages that were confirmed beside the first of each publish.
        is_confirming: whether somebody waits for them, and not only they themselves are to know.
    """

    more_confirmed: int
    is_confirming: bool

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        """Confirm publishes, ranges with both ends included: they are in all their queues."""

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        """Refuse publishes `first` to `last`; where it is one, its first `taken` messages are in all their queues."""


class FanOut:
    """A publish in several parts: confirmed when the last is, refused when one is.

    Args:
        remaining: how many parts.
        messages: how many messages the publish has.

    Attributes:
        is_of_many: whether its parts hold several publishes of one message each.
        remaining: parts that are not answered.
        refusal: code and text of the part that took least; None where all are confirmed.
        taken: how many of the first messages of the publish all parts have, where one was refused.
    """

    __slots__ = ("_messages", "refusal", "remaining", "taken")
    is_of_many: ClassVar = False

    def __init__(self, remaining: int, messages: int = 1) -> None:
        self.remaining = remaining
        self._messages = messages
        self.refusal: tuple[int, str] | None = None
        self.taken = 0

    def confirm(self, target: ConfirmTarget, request: int) -> None:
        """Count a part that is confirmed."""
        self.remaining -= 1
        if self.remaining:
            return
        if self.refusal is None:
            target.more_confirmed += self._messages - 1
            target.confirm([(request, request)])
        else:
            target.refuse(request, request, *self.refusal, self.taken)

    def refuse(self, target: ConfirmTarget, request: int, code: int, text: str, taken: int) -> None:
        """Count a part that is refused; only the first `taken` messages of the publish are certain to be in it."""
        if self.refusal is None or taken < self.taken:
            self.refusal = code, text
            self.taken = taken
        self.confirm(target, request)


class FanOutOfMany(FanOut):
    """Publishes of one message each, which go to several shards together.

    Each of them is confirmed where all parts of the batch are certain to have its message.

    Args:
        remaining: how many parts.
        last: the number of the last publish.
    """

    __slots__ = ("last",)
    is_of_many: ClassVar = True

    def __init__(self, remaining: int, last: int) -> None:
        super().__init__(remaining)
        self.last = last

    def confirm(self, target: ConfirmTarget, request: int) -> None:
        """Count a part that is confirmed, of publishes from `request` on."""
        self.remaining -= 1
        if self.remaining:
            return
        refused = self.last + 1 if self.refusal is None else request + self.taken
        if refused > request:
            target.confirm([(request, refused - 1)])
        if self.refusal is not None:
            target.refuse(refused, self.last, *self.refusal)


@dataclass(slots=True)
class Unconfirmed:
    """Publishes in one record batch that wait for their confirm together.

    Attributes:
        target: hears of them.
        requests: their numbers in the order of their messages, as ranges with both ends included.
        each: how many messages every one of them has.
        start: how many messages of the batch are before theirs.
        size: bytes of their records.
        fan_out: joins the parts of a publish that goes to several shards; None where it is whole.
        offset: how many messages of a publish that is joined are in the parts before.
        is_many: whether they are publishes of one message each that were handed in together, or parts of such: queues
            that are deleted meanwhile have had them, as who publishes so (AMQP) is not told of them.
    """

    target: ConfirmTarget
    requests: list[tuple[int, int]]
    each: int
    start: int
    size: int
    fan_out: FanOut | None
    offset: int
    is_many: bool

    @property
    def messages(self) -> int:
        """How many messages they have together."""
        return self.each * sum([last + 1 - first for first, last in self.requests])

    def join(self, first: int, last: int, size: int) -> None:
        """Publishes `first` to `last`, whose messages follow, wait with them."""
        self.size += size
        newest, end = self.requests[-1]
        if end + 1 == first:
            self.requests[-1] = newest, last
        else:
            self.requests.append((first, last))

    def confirm(self) -> None:
        """Confirm all of them."""
        if self.fan_out is None:
            if self.each > 1:
                self.target.more_confirmed += self.messages - self.messages // self.each
            self.target.confirm(self.requests)
        else:
            self.fan_out.confirm(self.target, self.requests[0][0])

    def refuse(self, code: int, text: str, taken: int) -> None:
        """Refuse those of which the shard has not all messages, and confirm the others.

        Args:
            code: of the refusal.
            text: what happened.
            taken: how many of their first messages the shard has.
        """
        target = self.target
        if self.fan_out is not None:
            if taken >= self.each:
                self.confirm()
            else:
                self.fan_out.refuse(target, self.requests[0][0], code, text, self.offset + taken)
            return
        whole, part = divmod(taken, self.each)
        for first, last in self.requests:
            stored = min(whole, last + 1 - first)
            whole -= stored
            if stored:
                target.more_confirmed += stored * (self.each - 1)
                target.confirm([(first, first + stored - 1)])
            refused = first + stored
            if refused <= last and part:
                target.refuse(refused, refused, code, text, part)
                refused += 1
                part = 0
            if refused <= last:
                target.refuse(refused, last, code, text)


def refuse(target: ConfirmTarget, first: int, last: int, fan_out: FanOut | None, text: str) -> None:
    """Refuse publishes of which nothing is certain."""
    if fan_out is None:
        target.refuse(first, last, ReplyCode.RESOURCE_ERROR, text)
    else:
        fan_out.refuse(target, first, ReplyCode.RESOURCE_ERROR, text, 0)
