"""Reading a queue in parallel: slices, reads, reservations; and searching queues and topics.

slices ─► read … by any number of clients                     nothing changes
reserve ─► slices ─► read … ─► reservation.end                acknowledged, or returned to their place
"""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import DELAY_MS_MAX, RANGES_MAX, RECORD_BATCH_RECORDS_MAX, SEARCH_FOUND_MAX, SLICES_MAX
from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name
from shardmq.search.filters import SearchFilters

Position = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of a message in its queue, or of the one behind it."""


class QueueSlices(ClientRequest, frozen=True):
    """Cut the ready messages, or those of a reservation, into about `count` parts of one size.

    The answer is Ok: `[[first, end, messages], ...]`, half-open ranges of message numbers, rising.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    queue: Name
    count: Annotated[int, Meta(ge=1, le=SLICES_MAX)]
    reservation: Name = ""


class QueuePlaces(ClientRequest, frozen=True):
    """Ask where a queue is, or each partition of a topic: at which shard, led by which host, behind which gateway.

    The answer is Ok: a table for each partition, in order, one for a queue: `{"partition", "queue", "shard", "host",
    "gateway"}`. `host` leads the shard and `gateway` is where clients reach it, as host:port; both are "" in a broker
    on one machine, and while nobody leads the shard.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    queue: Name


class QueueRead(ClientRequest, frozen=True):
    """Look at the messages numbered [first, end) that are ready, or in a reservation, without taking them.

    The answer is Ok: `{"deliveries", "next"}`. Deliveries are tables with the fields of BasicDeliver (consumer "", tag
    0) and `first`, the number of the first message. `next` is the number to read on from, nil at the end.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    queue: Name
    first: Position
    end: Position
    count: Annotated[int, Meta(ge=1, le=RECORD_BATCH_RECORDS_MAX)]
    reservation: Name = ""


class QueueReserve(ClientRequest, frozen=True):
    """Hold the first ready messages under a name, `messages_max` at most (0: all), for `lease_ms` (0: an hour).

    With `ranges` ([first, end), rising), hold those of them that are ready instead. They return to their place when the
    lease is over. A reservation that exists keeps its messages, and its lease begins anew. The answer is Ok:
    `{"messages", "state"}`; state is "held", or "acknowledged" if the reservation was acknowledged.
    With `again`, such a name is used anew for the messages that are ready now; where there are none, no reservation is
    made.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    reservation: Name
    messages_max: Position = 0
    lease_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0
    ranges: Annotated[list[tuple[Position, Position]], Meta(max_length=RANGES_MAX)] | None = None
    again: bool = False


class ReservationEnd(ClientRequest, frozen=True):
    """Acknowledge the messages of a reservation, or return them to their place. The answer is Ok: `{"messages"}`.

    With `ranges` ([first, end), rising) only those messages are acknowledged. Acknowledging is refused (404) if there
    is no such reservation.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    reservation: Name
    acknowledge: bool
    ranges: list[tuple[Position, Position]] = []


class MessagesSearch(ClientRequest, frozen=True):
    """Find messages by filters, without taking them: ready ones of a queue, or those of a partition of a topic.

    `first` is the number, in a stream the offset, to begin at. The answer is Ok: `{"deliveries", "looked_at", "next",
    "left", "cut", "partitions"}`; it comes after part of a second, with what was found by then. Deliveries are as those
    of QueueRead. `next` is the number to search on from, nil at the end; `left` about how many messages
    are there; `cut` how many bodies were looked into in part only; `partitions` how many the topic has, 1 for a queue.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    queue: Name
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    first: Position
    count: Annotated[int, Meta(ge=1, le=SEARCH_FOUND_MAX)]
    filters: SearchFilters


class DeathsSearch(ClientRequest, frozen=True):
    """Find dead letters among the ready messages of a queue, without taking them: how they died, and where they are.

    The answer is Ok: `{"groups", "looked_at", "next", "left", "cut"}`; it comes after part of a second, or when there
    are `ranges_max` ranges. Each group is `[queue, reason, first_ms, last_ms, ranges]`: what a number of messages died
    in and of, the times of the first and the last of these deaths (ms since 1970, nil where none is known), and the
    messages, [first, end), rising. All else is as in MessagesSearch; without filters on deaths, all dead letters are
    found.
    """

    after_loss = AfterLoss.ASK_AGAIN
    only_reads = True

    queue: Name
    first: Position
    ranges_max: Annotated[int, Meta(ge=1, le=RANGES_MAX)]
    filters: SearchFilters
