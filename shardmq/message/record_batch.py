"""Many records under one header, the unit of everything: flags, message ids, cutting points, joining."""

from collections.abc import Sequence
from typing import Final

import msgpack
import msgspec

PERSISTENT: Final = 1
"""Flag of a batch: its records survive a restart in a durable queue (AMQP delivery-mode 2)."""

AMQP: Final = 4
"""Flag of a batch: its records have AMQP 0-9-1 property lists, byte for byte as an AMQP client sent them: msgpack [list
as bin, body as bin]. Only gateways read and write such records; native clients never see them."""

OFFSETS: Final = 16
"""Flag of a staged batch that is no message: where its transaction is committed, group `routing_key` reads on at offset
`serial`, as its member of epoch `origin` says."""

KEYED: Final = 32
"""Flag of a batch: each of its records has a routing key of its own behind its body, and the batch has none, "".
Records of 3 elements are cut, joined and stored like those of 2 (message/keyed_records.py)."""

OUTSIDE: Final = 64
"""Flag of a staged batch of OFFSETS: no member of the group has committed it, but a program beside it, while the group
had no members; `origin` is the group's epoch of then."""

DROPPED: Final = 128
"""Flag of a staged batch of OFFSETS: the group was deleted in the partition since, and the transaction is not to be
committed."""

DECIMAL: Final = 1
"""Extension type of decimals in headers, which msgpack does not have. The data are their text, such as "12.50"."""

MANDATORY: Final = 2
"""Flag of a publish, never of a stored batch: a message that no queue takes comes back (AMQP basic.publish,
mandatory)."""


class RecordBatch(msgspec.Struct, array_like=True, gc=False):
    """`count` records with what they have in common.

    Attributes:
        exchange: the exchange they were published to.
        routing_key: their routing key; "" where each has its own.
        flags: PERSISTENT, AMQP and KEYED, where they hold.
        timestamp_ms: when the broker received them, in milliseconds since 1970.
        origin: 64 random bits that stand for one life of the gateway that numbered them.
        serial: message i is number `serial + i` of that origin, which is its message id where it has none.
        count: how many records, at least 1.
        records: the records, back to back.
        priority: the property of each of them, 0 to 255.
        ttl_ms: how long each of them may wait in a queue (the property `expiration`), None for ever. The gateway cuts
            a publish where priority or ttl_ms change, so that shards need not look into records.
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
    """The id of a message whose publisher set none: unique, the same in every queue and after every restart."""
    return f"{origin:016x}-{serial:x}"


def record_ends(records: bytes, count: int) -> list[int]:
    """The offsets at which the first `count` records end, in bytes."""
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(records)
    offsets = []
    for _ in range(count):
        unpacker.skip()
        offsets.append(unpacker.tell())
    return offsets


def can_join(left: RecordBatch, right: RecordBatch) -> bool:
    """Whether `right` continues `left` and has the same header, so that the two can be one batch."""
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


def join(batches: Sequence[RecordBatch]) -> RecordBatch:
    """One batch of several that continue one another."""
    head = batches[0]
    return RecordBatch(
        head.exchange,
        head.routing_key,
        head.flags,
        head.timestamp_ms,
        head.origin,
        head.serial,
        sum(batch.count for batch in batches),
        b"".join([batch.records for batch in batches]),
        head.priority,
        head.ttl_ms,
    )


def cost(batch: RecordBatch, overhead: int) -> int:
    """The bytes that a batch takes of a consumer's window.

    Args:
        batch: what is delivered.
        overhead: bytes that each message takes beside its record and names, where the protocol writes them for each; 0
            where it writes them once.
    """
    size = len(batch.records)
    if overhead:
        size += batch.count * (overhead + len(batch.exchange) + len(batch.routing_key))
    return size
