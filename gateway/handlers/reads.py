"""Slices, reads and reservations, by which a queue is read in parallel; and searches of queues and topics.

All of them take the permission to read the queue, as consuming does, and are answered by the queue's shard.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.reads import (
    EndReservation,
    Found,
    FoundDead,
    Read,
    Reserve,
    Search,
    SearchDead,
    SeenBatch,
    Slices,
)
from shardmq.errors import InvalidRequest, NotFound
from shardmq.gateway.handlers.replies import delivery_tables, shaped
from shardmq.gateway.handlers.topics.partitions import no_partition, partitions_read
from shardmq.gateway.session import large_messages
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.limits import RESERVATION_MS
from shardmq.protocol.native.operations.reads import (
    DeathsSearch,
    MessagesSearch,
    QueuePlaces,
    QueueRead,
    QueueReserve,
    QueueSlices,
    ReservationEnd,
)
from shardmq.search.filters import DeathFilters
from shardmq.topology.entities import Queue, check_name

ALL: Final = 2**63 - 1
"""More messages than any queue has."""


def queue_slices(channel: Channel, operation: QueueSlices, reply: Reply) -> None:
    """Cut what is ready, or reserved, into parts of one size.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: it is exclusive to another connection.
        InvalidRequest: the reservation's name is not valid.
    """
    client, reservation = channel.client, operation.reservation
    queue = _readable(client, operation.queue)
    _check_reservation_if_any(reservation)
    client.state.links[queue.shard].ask(Slices(queue.id, operation.count, reservation), reply)


def queue_places(channel: Channel, operation: QueuePlaces, reply: Reply) -> None:
    """Tell where a queue is, or each partition of a topic, as this gateway knows: no shard is asked.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue or topic.
        ResourceLocked: it is exclusive to another connection.
    """
    client, name = channel.client, operation.queue
    if (client.vhost, name) in client.state.topology.queues:
        queues = [_readable(client, name)]
    else:
        queues = _partitions(client, name)
    primaries = client.state.primaries
    rows = []
    for number, queue in enumerate(queues):
        host, gateway = ("", "") if primaries is None else primaries.leader(client.state.links[queue.shard].name)
        rows.append({"partition": number, "queue": queue.name, "shard": queue.shard, "host": host, "gateway": gateway})
    reply(rows)


def queue_read(channel: Channel, operation: QueueRead, reply: Reply) -> None:
    """Look at messages by their numbers, and leave all as it is.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: it is exclusive to another connection.
        InvalidRequest: the reservation's name is not valid, or the range ends before it begins.
    """
    client, first, end, reservation = channel.client, operation.first, operation.end, operation.reservation
    queue = _readable(client, operation.queue)
    _check_reservation_if_any(reservation)
    if end < first:
        raise InvalidRequest(f"range [{first}, {end}) of queue '{queue.name}' ends before it begins; swap the two")

    def shape(answer: tuple[Sequence[SeenBatch], int | None]) -> dict[str, Any]:
        seen, following = answer
        return {
            "deliveries": delivery_tables(seen, reads_keys=client.reads_keys, place="first"),
            "next": following,
        }

    message = Read(queue.id, first, end, operation.count, reservation)
    large_messages.look(channel, partial(client.state.links[queue.shard].ask, message), shaped(reply, shape))


def messages_search(channel: Channel, operation: MessagesSearch, reply: Reply) -> None:
    """Find messages of a queue, or of a partition of a topic, and leave all as it is.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue or topic, or no such partition of it.
        ResourceLocked: it is exclusive to another connection.
    """
    client, name, number = channel.client, operation.queue, operation.partition
    if (client.vhost, name) in client.state.topology.queues:
        kind, queues = "queue", [_readable(client, name)]
    else:
        kind, queues = "topic", _partitions(client, name)
    if number >= len(queues):
        raise no_partition(client, name, number, len(queues), kind)
    queue = queues[number]

    def shape(found: Found) -> dict[str, Any]:
        return {
            "deliveries": delivery_tables(found.deliveries, reads_keys=client.reads_keys, place="first"),
            "looked_at": found.looked_at,
            "next": found.following,
            "left": found.left,
            "cut": found.cut,
            "partitions": len(queues),
        }

    message = Search(queue.id, operation.first, operation.count, operation.filters)
    large_messages.look(channel, partial(client.state.links[queue.shard].ask, message), shaped(reply, shape))


def deaths_search(channel: Channel, operation: DeathsSearch, reply: Reply) -> None:
    """Find dead letters among the ready messages of a queue, and leave all as it is.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: it is exclusive to another connection.
    """
    client, filters = channel.client, operation.filters
    queue = _readable(client, operation.queue)
    if filters.death is None:
        filters = msgspec.structs.replace(filters, death=DeathFilters())

    def shape(found: FoundDead) -> dict[str, Any]:
        return {
            "groups": found.groups,
            "looked_at": found.looked_at,
            "next": found.following,
            "left": found.left,
            "cut": found.cut,
        }

    message = SearchDead(queue.id, operation.first, operation.ranges_max, filters)
    client.state.links[queue.shard].ask(message, shaped(reply, shape))


def queue_reserve(channel: Channel, operation: QueueReserve, reply: Reply) -> None:
    """Reserve the first ready messages under a name; or find those that are reserved, and begin their time anew.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: it is exclusive to another connection.
        InvalidRequest: the reservation's name is not valid, or the ranges do not rise.
    """
    client, name = channel.client, operation.reservation
    queue = _readable(client, operation.queue)
    check_name("reservation", name)

    def shape(answer: tuple[int, bool]) -> dict[str, Any]:
        messages, is_acknowledged = answer
        return {"messages": messages, "state": "acknowledged" if is_acknowledged else "held"}

    lease_ms, ranges = operation.lease_ms or RESERVATION_MS, operation.ranges
    _check_rising(name, ranges or [])
    message = Reserve(queue.id, name, operation.messages_max or ALL, lease_ms, ranges, operation.again)
    client.state.links[queue.shard].ask(message, shaped(reply, shape))


def reservation_end(channel: Channel, operation: ReservationEnd, reply: Reply) -> None:
    """Acknowledge what is reserved, all or some of it; or requeue it.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such queue.
        ResourceLocked: it is exclusive to another connection.
        InvalidRequest: the reservation's name is not valid; or the ranges do not rise, or are given where it returns.
    """
    client, name = channel.client, operation.reservation
    queue = _readable(client, operation.queue)
    check_name("reservation", name)
    _check_ranges(operation)
    message = EndReservation(queue.id, name, operation.acknowledge, operation.ranges)
    client.state.links[queue.shard].ask(message, shaped(reply, lambda messages: {"messages": messages}))


def _partitions(client: Client, name: str) -> list[Queue]:
    try:
        return partitions_read(client, name)
    except NotFound as fault:
        raise NotFound(f"no queue, stream or topic '{name}' in vhost '{client.vhost}'; declare it first") from fault


def _readable(client: Client, name: str) -> Queue:
    client.permissions.check_read(name, "queue")
    return client.queue(name)


def _check_reservation_if_any(name: str) -> None:
    if name:
        check_name("reservation", name)


def _check_ranges(operation: ReservationEnd) -> None:
    name = operation.reservation
    if operation.ranges and not operation.acknowledge:
        raise InvalidRequest(f"ranges are for acknowledging; leave them out to requeue all of reservation '{name}'")
    _check_rising(name, operation.ranges)


def _check_rising(name: str, ranges: list[tuple[int, int]]) -> None:
    behind = 0
    for first, end in ranges:
        if not behind <= first < end:
            raise InvalidRequest(
                f"range [{first}, {end}) of reservation '{name}' is empty or begins before {behind}; sort and join them"
            )
        behind = end


REQUESTS: Final[dict[type[Any], Any]] = {
    QueueSlices: queue_slices,
    QueuePlaces: queue_places,
    QueueRead: queue_read,
    MessagesSearch: messages_search,
    DeathsSearch: deaths_search,
    QueueReserve: queue_reserve,
    ReservationEnd: reservation_end,
}
