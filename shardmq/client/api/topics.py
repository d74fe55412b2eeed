"""What a program says of topics, and hears: where to read, and what a pull brought."""

import datetime
from collections.abc import Callable, Iterator
from typing import Final, Literal, TypedDict

from shardmq.client.api.message import Message
from shardmq.errors import InvalidRequest

Start = int | str | datetime.datetime
"""Where to read from: an offset, "earliest", "latest", or a time."""

Begin = Literal["first", "last", "next", "offset", "time"]

_WORDS: Final[dict[str, Begin]] = {
    "earliest": "first",
    "first": "first",
    "latest": "next",
    "next": "next",
    "last": "last",
}


class PullOptions(TypedDict, total=False):
    """What a pull may say beside how many messages it wants.

    Attributes:
        tags: only messages with one of these in their header x-stream-filter-value.
        has_untagged: with tags, messages without one, too.
        bytes_max: about how many bytes it brings at most; one message comes however large it is.
        wait_ms: how long the broker waits for messages where there are none.
    """

    tags: str | list[str] | None
    has_untagged: bool
    bytes_max: int
    wait_ms: int


class GroupOptions(TypedDict, total=False):
    """How a program consumes as a member of a group.

    Attributes:
        shared: any number of members get the messages of each partition, in turn; in other groups, one member has each.
        tags: only messages with one of these; has_untagged: beside them messages without one.
        start: where a new group begins. One that exists begins with the first message of partitions that are new.
        pull: messages that a poll brings at most.
        prefetch: messages unacked at most, of all partitions together.
        auto_commit: what was handled is acknowledged by the next step.
        on_assigned: called with the partitions that the consumer has now, (number, offset) each.
        on_revoked: called with the numbers of those that it is to let go of, and whether they are lost already.
        inactivity_timeout: seconds without a message after which an iteration ends; None for never.
        timeout_ms: a message that is unacked for longer goes to another member; of an ordered group, all partitions do.
        delivery_limit: how often a message is given back before it dies.
        dead_letter_exchange: where messages go that die or are rejected.
        dead_letter_routing_key: by which key.
    """

    shared: bool
    tags: str | list[str] | None
    has_untagged: bool
    start: Start
    pull: int
    prefetch: int
    auto_commit: bool
    on_assigned: Callable[[list[tuple[int, int]]], object]
    on_revoked: Callable[[list[int], bool], object]
    inactivity_timeout: float | None
    timeout_ms: int
    delivery_limit: int
    dead_letter_exchange: str
    dead_letter_routing_key: str


class Pulled:
    """The messages that a pull brought, in the order of their offsets.

    Attributes:
        messages: they cannot be acked: reading leaves all as it is.
        next: the offset to read on from.
        first: the oldest offset that the partition keeps.
        end: the offset of the next message that is published to it.
    """

    __slots__ = ("end", "first", "messages", "next")

    def __init__(self, messages: list[Message], following: int, first: int, end: int) -> None:
        self.messages = messages
        self.next = following
        self.first = first
        self.end = end

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"<Pulled {len(self)} messages, the next at offset {self.next} of [{self.first}, {self.end})>"


def place_of(start: Start) -> tuple[Begin, int]:
    """Where to read from, in the broker's words.

    Raises:
        TypeError: it is no offset, word or time.
        InvalidRequest: it is another word, or below 0.
    """
    if isinstance(start, datetime.datetime):
        try:
            seconds = start.timestamp()
        except (ValueError, OverflowError) as fault:  # in no time zone, at the ends of the calendar
            raise InvalidRequest(f"one reads from a time since 1970, not from {start}: {fault}") from fault
        return "time", max(0, round(seconds * 1_000_000) // 1000)  # never past a message of that time
    if isinstance(start, str):
        word = _WORDS.get(start)
        if word is None:
            raise InvalidRequest(f"one reads from an offset, a time, 'earliest' or 'latest', not from {start!r}")
        return word, 0
    if type(start) is not int:
        raise TypeError(f"one reads from an offset (int), a datetime, 'earliest' or 'latest', not from {start!r}")
    if not 0 <= start < 2**63:
        raise InvalidRequest(f"an offset is 0 to 2^63 - 1, not {start}")
    return "offset", start


def tag_list(tags: str | list[str] | None) -> list[str] | None:
    """The tags that a reader wants, as a list; None for all messages.

    Raises:
        TypeError: they are no str.
    """
    if tags is None:
        return None
    listed = [tags] if isinstance(tags, str) else list(tags)
    if not all(isinstance(tag, str) for tag in listed):
        raise TypeError(f"tags are str, not {tags!r}")
    return listed
