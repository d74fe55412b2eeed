"""Requests that look at a queue or reserve its messages, as values."""

from collections.abc import Iterable
from typing import Final

import msgspec

from shardmq.client.api.message import Delivery, Message, Peeked
from shardmq.client.api.results import (
    DeathsPage,
    QueuePlace,
    QueueSlice,
    Reserved,
    Searched,
    SearchPage,
    converted,
    numbered,
    peeked,
    read,
    reserved,
    result_of,
    slices,
)
from shardmq.client.core.requests.request import Request, counted
from shardmq.client.core.validation import check_name, check_names, check_number, pairs
from shardmq.errors import InvalidRequest
from shardmq.limits import DELAY_MS_MAX, RANGES_MAX, RECORD_BATCH_RECORDS_MAX, SEARCH_FOUND_MAX, SLICES_MAX
from shardmq.protocol.native.operations.reads import (
    DeathsSearch,
    MessagesSearch,
    QueuePlaces,
    QueueRead,
    QueueReserve,
    QueueSlices,
    ReservationEnd,
)
from shardmq.protocol.native.operations.topology import (
    QueuePeek,
)
from shardmq.search.filters import SearchFilters
from shardmq.topology.entities import PARTITIONS_MAX

_PEEKED: Final = Peeked()


def queue_peek(queue: str, offset: int, count: int) -> Request[list[Message]]:
    """Peek at ready messages."""
    check_names(queue=queue)
    if type(offset) is not int or type(count) is not int:
        raise TypeError(f"offset and count are int, not {offset!r} and {count!r}")
    if not 0 <= offset < 2**63:
        raise InvalidRequest(f"an offset is 0 (the head of the queue) or more, not {offset}")
    if not 1 <= count <= RECORD_BATCH_RECORDS_MAX:
        raise InvalidRequest(f"a peek looks at 1 to {RECORD_BATCH_RECORDS_MAX} messages, not {count}")

    def shape(result: object) -> list[Message]:
        return [message for frame in peeked(result) for message in Delivery(frame, _PEEKED, queue).messages()]

    return Request(f"peeking at queue '{queue}'", shape, QueuePeek(0, 0, queue, offset, count))


def queue_slices(queue: str, count: int, reservation: str) -> Request[list[QueueSlice]]:
    """Cut a queue into slices of about one size."""
    check_names(queue=queue, reservation=reservation)
    check_number("a count of slices", count, 1, SLICES_MAX)
    return Request(f"slicing queue '{queue}'", slices, QueueSlices(0, 0, queue, count, reservation))


def queue_places(queue: str) -> Request[list[QueuePlace]]:
    """Ask where a queue is, or the partitions of a topic."""
    check_names(queue=queue)

    def shape(result: object) -> list[QueuePlace]:
        return converted(result, list[QueuePlace], "QueuePlaces")

    return Request(f"asking where '{queue}' is", shape, QueuePlaces(0, 0, queue))


def queue_read(
    queue: str, first: int, end: int, count: int, reservation: str
) -> Request[tuple[list[Message], int | None]]:
    """Read the messages with these numbers."""
    check_names(queue=queue, reservation=reservation)
    check_number("first", first, 0, 2**63 - 1)
    check_number("end", end, 0, 2**63 - 1)
    check_number("a count of messages to read", count, 1, RECORD_BATCH_RECORDS_MAX)

    def shape(result: object) -> tuple[list[Message], int | None]:
        batches, go_on = read(result)
        unpacked = [Delivery(frame, _PEEKED, queue, position).messages() for frame, position in batches]
        return [message for messages in unpacked for message in messages], go_on

    return Request(f"reading queue '{queue}'", shape, QueueRead(0, 0, queue, first, end, count, reservation))


def messages_search(
    queue: str, filters: SearchFilters | None, first: int, count: int, partition: int
) -> Request[SearchPage]:
    """Find messages in a part of a queue or partition."""
    check_names(queue=queue)
    check_number("first", first, 0, 2**63 - 1)
    check_number("a count of messages to find", count, 1, SEARCH_FOUND_MAX)
    check_number("a partition", partition, 0, PARTITIONS_MAX)
    check_filters(filters)

    def shape(result: object) -> SearchPage:
        answer = result_of(Searched, result)
        batches = [Delivery(frame, _PEEKED, queue, number) for frame, number in numbered(answer.deliveries)]
        messages = [message for batch in batches for message in batch.messages()]
        return SearchPage(messages, answer.looked_at, answer.next, answer.left, answer.cut, answer.partitions)

    asked = MessagesSearch(0, 0, queue, partition, first, count, filters or SearchFilters())
    return Request(f"searching '{queue}'", shape, asked)


def check_filters(filters: SearchFilters | None) -> None:
    """Check what is searched for.

    Raises:
        TypeError: it is something else.
        InvalidRequest: a filter has the wrong type, or is too long.
    """
    if filters is not None and not isinstance(filters, SearchFilters):
        raise TypeError(f"filters are SearchFilters, not {filters!r}")
    try:  # msgspec looks at no types where an object is made, and what the broker cannot read ends the connection
        msgspec.convert(msgspec.to_builtins(filters or {}, builtin_types=(bytes,)), SearchFilters)
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"SearchFilters: {fault}") from fault


def deaths_search(queue: str, filters: SearchFilters | None, first: int, ranges_max: int) -> Request[DeathsPage]:
    """Find dead letters in a part of a queue."""
    check_names(queue=queue)
    check_number("first", first, 0, 2**63 - 1)
    check_number("ranges_max", ranges_max, 1, RANGES_MAX)
    check_filters(filters)

    def shape(result: object) -> DeathsPage:
        return result_of(DeathsPage, result)

    asked = DeathsSearch(0, 0, queue, first, ranges_max, filters or SearchFilters())
    return Request(f"searching the dead letters of '{queue}'", shape, asked)


def queue_reserve(
    queue: str,
    reservation: str,
    messages_max: int,
    lease_ms: int,
    ranges: Iterable[tuple[int, int]] | None,
    again: bool,
) -> Request[Reserved]:
    """Reserve ready messages."""
    check_names(queue=queue)
    check_name("reservation", reservation)
    check_number("messages_max", messages_max, 0, 2**63 - 1)
    check_number("lease_ms", lease_ms, 0, DELAY_MS_MAX)
    if type(again) is not bool:
        raise TypeError(f"again is True (use the name anew) or False, not {again!r}")
    which = None if ranges is None else sorted(pairs("ranges", ranges))
    if which is not None:
        check_number("a number of ranges", len(which), 0, RANGES_MAX)
    return Request(
        f"reserving messages of queue '{queue}' as '{reservation}'",
        reserved,
        QueueReserve(0, 0, queue, reservation, messages_max, lease_ms, which, again),
    )


def reservation_end(queue: str, reservation: str, acknowledge: bool, ranges: Iterable[tuple[int, int]]) -> Request[int]:
    """End a reservation: acknowledge what is reserved, or put it back."""
    check_names(queue=queue)
    check_name("reservation", reservation)
    if type(acknowledge) is not bool:
        raise TypeError(f"acknowledge is True (done with) or False (back to the queue), not {acknowledge!r}")
    return Request(
        f"ending reservation '{reservation}' of queue '{queue}'",
        counted,
        ReservationEnd(0, 0, queue, reservation, acknowledge, sorted(pairs("ranges", ranges))),
    )
