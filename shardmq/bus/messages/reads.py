"""Looking at a queue, reading it in parallel, and reserving its messages."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from shardmq.bus.messages.base import Request
from shardmq.bus.messages.streams import Reading
from shardmq.message.record_batch import RecordBatch
from shardmq.search.deaths import Group
from shardmq.search.filters import SearchFilters

SeenBatch = tuple[int, bool, int, RecordBatch]
"""Messages that stay in the queue: sequence number of the first, redelivered, failed deliveries, records."""


class Peek(Request[Sequence[SeenBatch]], frozen=True, tag=34):
    """Look at ready messages and change nothing.

    Answer: batches in the order of delivery, from `offset` messages behind the head on, `count` messages and a few MB
    at most.
    """

    only_reads: ClassVar[bool] = True

    queue: int
    offset: int
    count: int


class Slices(Request[list[tuple[int, int, int]]], frozen=True, tag=51):
    """Cut the ready messages of a queue, or those of a reservation, into about `count` slices of equal size.

    Answer: [(first, end, messages), …], sequence numbers in rising order; no message lies between two slices.
    """

    only_reads: ClassVar[bool] = True

    queue: int
    count: int
    reservation: str = ""


class Read(Request[tuple[Sequence[SeenBatch], int | None]], frozen=True, tag=52):
    """Look at messages with numbers in [first, end) that are ready, or in a reservation, and change nothing.

    Answer: batches in the order of their numbers, `count` messages and a few MB at most; and the number to read on
    from, or nil at the end.
    """

    only_reads: ClassVar[bool] = True

    queue: int
    first: int
    end: int
    count: int
    reservation: str = ""


class Pulled(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a Pull brought.

    Attributes:
        deliveries: messages in the order of their offsets; none where there are none, or where the first is too large.
        following: the offset to read on from.
        first: the offset of the oldest message that is kept.
        end: the offset of the next message to come.
        size: bytes of the next message, where it takes more than was asked for; else 0.
    """

    deliveries: Sequence[SeenBatch]
    following: int
    first: int
    end: int
    size: int = 0


class Pull(Request[Pulled], frozen=True, tag=110):
    """Read messages of a partition, and change nothing.

    Where there are none yet, the answer waits for some, `wait_ms` at most. Refused (416) where the offset that is
    asked for is not among those that are kept, nor the next one.

    Attributes:
        queue: id of the partition.
        reading: where to begin, and which messages.
        count: of messages, at most.
        bytes_max: of their records.
        wait_ms: how long to wait.
    """

    only_reads: ClassVar[bool] = True

    queue: int
    reading: Reading
    count: int
    bytes_max: int
    wait_ms: int = 0


class Found(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a Search found.

    Attributes:
        deliveries: the messages, in the order of their numbers.
        looked_at: messages looked at for this answer.
        following: the number to search on from; None at the end.
        left: about how many messages are from there on.
        cut: of those looked at, the ones that were looked into in part only: long or broken bodies.
    """

    deliveries: Sequence[SeenBatch]
    looked_at: int
    following: int | None
    left: int
    cut: int = 0


class Search(Request[Found], frozen=True, tag=116):
    """Find ready messages of a queue, or messages of a partition, and change nothing.

    The answer comes when `count` messages are found, at the end of the queue, or after part of a second, whatever was
    found by then.

    Attributes:
        queue: id of the queue.
        first: the number to begin at.
        count: of messages to find, at most.
        filters: which.
    """

    only_reads: ClassVar[bool] = True

    queue: int
    first: int
    count: int
    filters: SearchFilters


class FoundDead(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a SearchDead found.

    Attributes:
        groups: the dead letters by where and of what they died, their numbers rising.
        looked_at, following, left, cut: as in Found.
    """

    groups: list[Group]
    looked_at: int
    following: int | None
    left: int
    cut: int = 0


class SearchDead(Request[FoundDead], frozen=True, tag=117):
    """Find ready messages of a queue that died, and change nothing; the answer says how they died and where they are.

    It comes as a Search's does, or when there are `ranges_max` ranges of neighbouring messages.

    Attributes:
        queue: id of the queue.
        first: the number to begin at.
        ranges_max: in all groups together.
        filters: which.
    """

    only_reads: ClassVar[bool] = True

    queue: int
    first: int
    ranges_max: int
    filters: SearchFilters


class Reserve(Request[tuple[int, bool]], frozen=True, tag=53):
    """Reserve the first ready messages under a name for `lease_ms`, `messages_max` at most; or those of `ranges`.

    Reserved messages are not delivered, also after a restart of the shard. A reservation that exists keeps its
    messages, and its time starts again. Answer: (messages, whether the reservation was acknowledged before).

    Attributes:
        queue: id of the queue.
        name: of the reservation.
        messages_max: how many messages at most.
        lease_ms: after which they are back at their place.
        ranges: of the messages; None for the first ones. Where there are none, the name is there, and holds nothing.
        again: whether a name of which all was acknowledged is used anew, for the messages that are ready now; where
            there are none, nothing is reserved.
    """

    queue: int
    name: str
    messages_max: int
    lease_ms: int
    ranges: list[tuple[int, int]] | None = None
    again: bool = False


class EndReservation(Request[int], frozen=True, tag=54):
    """Acknowledge the messages of a reservation, or return them to their queue. Answer: how many messages.

    The name of a reservation that was acknowledged whole is remembered for days. Refused (404) where
    there is no such reservation to acknowledge.

    Attributes:
        queue: id of the queue.
        name: of the reservation.
        acknowledge: whether the messages are acknowledged; all that is left returns to its place otherwise.
        ranges: the messages to acknowledge; empty for all of the reservation.
    """

    queue: int
    name: str
    acknowledge: bool
    ranges: list[tuple[int, int]]


ReadRequest = Peek | Slices | Search | SearchDead | Read | Pull | Reserve | EndReservation
"""What is asked of a shard in this file."""
