"""Looking at a queue, reading it in parallel, and reserving its messages."""

from collections.abc import Sequence

from shardmq.bus.messages.base import Request
from shardmq.message.record_batch import RecordBatch

SeenBatch = tuple[int, bool, int, RecordBatch]
"""Messages that are only looked at: sequence number of the first, redelivered, deliveries, records."""


class Peek(Request[Sequence[SeenBatch]], frozen=True, tag=34):
    """Look at ready messages and leave everything as it is. Answer: [(first, redelivered, deliveries, Run), …] in the
    order of delivery, beginning `offset` messages behind the head, `count` messages and some MB at most.
    """

    queue: int
    offset: int
    count: int


class Slices(Request[list[tuple[int, int, int]]], frozen=True, tag=51):
    """Cut what is ready in a queue, or reserved under that name, into about `count` parts of one size. Answer:
    [(first, end, messages), …], as sequence numbers in rising order; nothing is between them.
    """

    queue: int
    count: int
    reservation: str = ""


class Read(Request[tuple[Sequence[SeenBatch], int | None]], frozen=True, tag=52):
    """Look at messages with numbers in [first, end) that are ready, or reserved under that name, and leave everything
    as it is. Answer: ([(first, redelivered, deliveries, Run), …] in order of their numbers, where to read on or nil);
    `count` messages and some MB at most.
    """

    queue: int
    first: int
    end: int
    count: int
    reservation: str = ""


class Reserve(Request[tuple[int, bool]], frozen=True, tag=53):
    """Set the first ready messages aside under a name, as many as there are now and `messages_max` at most, for
    `lease_ms`: nobody gets them meanwhile, and they stay so over restarts. Answer: (messages, whether it was
    acknowledged). A name that is there keeps what it has, and its time begins anew.
    """

    queue: int
    name: str
    messages_max: int
    lease_ms: int


class EndReservation(Request[int], frozen=True, tag=54):
    """`acknowledge`: what is reserved under that name is done with, of it only `ranges` if there are any; 404 where
    there is no such reservation. Otherwise all that is left of it returns to its place. Answer: how many messages.
    What was acknowledged whole is remembered by its name until its time is over.
    """

    queue: int
    name: str
    acknowledge: bool
    ranges: list[tuple[int, int]]
