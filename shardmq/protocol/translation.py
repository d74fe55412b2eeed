"""Messages between native and AMQP clients: their properties, in the other's shape.

    property               AMQP                    native
    all but these          short string, octet     the same; bytes that are not UTF-8 come escaped (`\\xff`)
    headers                field table             map, values as in `tables`: bytes, times, decimals, nothing, nested
                                                   tables and arrays as deep as they come; of 16 letters for numbers
                                                   three remain (I, l, d) once a native client publishes them again
    delivery_mode          1, 2                    what the sender wrote, if it did; an AMQP client always gets it
    timestamp              seconds, u64            the same; negative is 0
    message_id             as sent, or none        as sent, or else the broker's (it is in every delivery)
    cluster_id             as sent                 not there (section 1.8.3.14: deprecated)

What native clients may write and AMQP has no room for: `properties.encode` and `tables` say what becomes of it. AMQP
clients do not get the id that the broker gives to messages without one, as with RabbitMQ: messages without properties
share one list, and go out in a fifth of the time that they would take if each had its own.

A message that was delivered before and came back, to a queue that counts that, says so in the header x-delivery-count,
as with RabbitMQ's quorum queues. (Native clients have the number beside the message.)

Neighbours mostly have the same properties, but for ids: those of the last 1024 kinds are translated once.
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from shardmq.message.properties import Properties
from shardmq.message.record import (
    pack_packed,
    pack_properties,
    unpack_apart,
    unpack_bodies,
    unpack_properties,
    unpack_raw,
)
from shardmq.message.record_batch import AMQP, PERSISTENT, RecordBatch
from shardmq.protocol.amqp import properties, property_facts
from shardmq.protocol.amqp import records as packing
from shardmq.protocol.amqp.property_edits import edited, without
from shardmq.protocol.amqp.tables import encode_entry, encode_long, wrapped

KNOWN_MAX: Final = 1024
"""Properties whose translation is remembered; past it all are forgotten."""

KNOWN_BYTES_MAX: Final = property_facts.KNOWN_BYTES_MAX
"""Longer ones are not remembered: they mostly differ, and may have 128 KB."""

DELIVERY_COUNT: Final = "x-delivery-count"

Translated = TypeVar("Translated", bytes, msgspec.Raw)


def to_native(run: RecordBatch) -> RecordBatch:
    """A run as native clients read it: the same one where it came from them."""
    if not run.flags & AMQP:
        return run
    contents = unpack_raw(run.records, run.count)
    records = pack_packed([(_packed.get(raw) or _pack(raw), body) for raw, body in contents])
    return msgspec.structs.replace(run, flags=run.flags & ~AMQP, records=records)


def to_amqp(run: RecordBatch, deliveries: int = 0) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Property lists and bodies of a run's messages, as AMQP clients read them.

    Args:
        run: of either kind.
        deliveries: how often its messages were delivered before, where that is counted.
    """
    if run.flags & AMQP:
        lists, bodies = packing.unpack(run.records, run.count)
    else:
        lists, bodies = _translated(run)
    if deliveries:
        counted = {raw: _counted(raw, deliveries) for raw in set(lists)}
        lists = [counted[raw] for raw in lists]
    return lists, bodies


def _translated(run: RecordBatch) -> tuple[Sequence[bytes], Sequence[bytes]]:
    is_persistent = bool(run.flags & PERSISTENT)
    plain = unpack_bodies(run.records, run.count)
    if plain is not None:
        return [_PLAIN[is_persistent]] * run.count, [body for _, body in plain]
    known = _lists[is_persistent]
    lists, bodies = [], []
    for packed, body in unpack_apart(run.records, run.count):
        key = bytes(packed)
        lists.append(known.get(key) or _list(key, is_persistent))
        bodies.append(body)
    return lists, bodies


def _list(packed: bytes, is_persistent: bool) -> bytes:
    """The property list of properties as they lie in a record."""
    own = unpack_properties(packed)
    raw = properties.encode(msgspec.structs.replace(own or Properties(), delivery_mode=2 if is_persistent else 1))
    return _remember(_lists[is_persistent], packed, raw)


def _pack(raw: bytes) -> msgspec.Raw:
    """A property list's properties as they lie in a record."""
    own = properties.decode(raw) if raw != properties.NO_PROPERTIES else None
    return _remember(_packed, raw, pack_properties(own))


def _remember(known: dict[bytes, Translated], key: bytes, value: Translated) -> Translated:
    if len(key) > KNOWN_BYTES_MAX:
        return value
    if len(known) >= KNOWN_MAX:
        known.clear()
    known[key] = value
    return value


def _counted(raw: bytes, deliveries: int) -> bytes:
    entry = encode_entry(DELIVERY_COUNT, encode_long(deliveries))
    return edited(raw, {}, lambda table: wrapped(b"", without(table, DELIVERY_COUNT.encode())[4:] + entry))


_PLAIN: Final = tuple(properties.encode(Properties(delivery_mode=mode)) for mode in (1, 2))
_lists: Final[tuple[dict[bytes, bytes], dict[bytes, bytes]]] = {}, {}
"""Property lists by properties as they lie in records; of transient messages, and of persistent ones."""

_packed: Final[dict[bytes, msgspec.Raw]] = {}
"""The other way."""
