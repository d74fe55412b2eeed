"""Many records under one header, the unit of everything: flags, message ids, cutting points, joining."""

from collections.abc import Sequence
from typing import Final

import msgpack
import msgspec

PERSISTENT: Final = 1
"""Flag of a run: its records survive a restart in a durable queue (AMQP delivery-mode 2)."""

AMQP: Final = 4
"""Flag of a run: its records' properties stand as AMQP 0-9-1 property lists, byte for byte as an AMQP client sent them:
msgpack [list as bin, body as bin]. Only gateways read or write those; native clients never see them."""

DECIMAL: Final = 1
"""Extension type of decimals in headers, which msgpack has none of: its data are their text, as "12.50"."""

MANDATORY: Final = 2
"""Flag of a publish, never of a stored run: what no queue takes comes back (AMQP basic.publish, mandatory)."""


class RecordBatch(msgspec.Struct, array_like=True, gc=False):
    """`count` records with what they have in common.

    Attributes:
        exchange: where it was published to.
        routing_key: with which key.
        flags: PERSISTENT, or 0.
        timestamp_ms: when the broker received it, milliseconds since 1970.
        origin: who numbered it, a gateway's life (64 random bits).
        serial: message i of the run is number `serial + i` of that origin: its message id when it brought none.
        count: how many records, at least 1.
        records: them, back to back.
        priority: of each of them (the property of that name), 0 to 255.
        ttl_ms: how long each of them may wait in a queue (the property `expiration`), None for ever. The gateway cuts
            a publish where priority or ttl_ms change; a shard need not look into records for them.
    """

    exchange: str
    routing_key: str
    flags: int
    timestamp_ms: int
    origin: int
    serial: int
    count: int
    records: bytes
    priority: int = 0
    ttl_ms: int | None = None


def message_id(origin: int, serial: int) -> str:
    """The id the broker assigns to a message whose publisher set none: unique, the same in every queue and restart."""
    return f"{origin:016x}-{serial:x}"


def record_ends(records: bytes, count: int) -> list[int]:
    """Where each of the first `count` records ends, in bytes."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(records)
    offsets = []
    for _ in range(count):
        unpacker.skip()
        offsets.append(unpacker.tell())
    return offsets


def can_join(left: RecordBatch, right: RecordBatch) -> bool:
    """Whether `right` may be joined to the end of `left` with no message losing anything."""
    return (
        left.serial + left.count == right.serial
        and left.routing_key == right.routing_key
        and left.exchange == right.exchange
        and left.flags == right.flags
        and left.origin == right.origin
        and left.timestamp_ms == right.timestamp_ms
        and left.priority == right.priority
        and left.ttl_ms == right.ttl_ms
    )


def join(runs: Sequence[RecordBatch]) -> RecordBatch:
    """One run of several that continue one another."""
    head = runs[0]
    return RecordBatch(
        head.exchange,
        head.routing_key,
        head.flags,
        head.timestamp_ms,
        head.origin,
        head.serial,
        sum(run.count for run in runs),
        b"".join([run.records for run in runs]),
        head.priority,
        head.ttl_ms,
    )
