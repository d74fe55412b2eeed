r"""Messages from one protocol for clients of the other.

Their properties differ:

    property               AMQP                    native
    all but these          short string, octet     the same; bytes that are not UTF-8 become escapes (`\xff`)
    headers                field table             map, values as in `tables`: bytes, times, decimals, nothing, nested
                                                   tables and arrays, however deep; of 16 letters for numbers three
                                                   remain (I, l, d) once a native client publishes them again
    delivery_mode          1, 2                    what the sender wrote, if it did; an AMQP client always gets it
    timestamp              seconds, u64            the same; negative becomes 0
    message_id             as sent, or none        as sent, or the broker's, which is in every delivery
    cluster_id             as sent                 not there (section 1.8.3.14: deprecated)

`properties.encode` and `tables` say what becomes of properties of native clients that AMQP has no room for. AMQP
clients do not get the id that the broker gives to messages without one, as in RabbitMQ. So messages without properties
share one list, and are sent in a fifth of the time.

A message that was delivered before from a queue that counts deliveries has the header x-delivery-count, as with
RabbitMQ's quorum queues. Native clients get the number beside the message.

Neighbours mostly have the same properties. The last translations are remembered.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from shardmq.message.batch_parts import Contents, contents_of
from shardmq.message.keyed_records import contents
from shardmq.message.keyed_records import pack as pack_keyed
from shardmq.message.properties import Properties
from shardmq.message.record import (
    pack_packed,
    pack_properties,
    unpack_apart,
    unpack_bodies,
    unpack_properties,
    unpack_raw,
)
from shardmq.message.record_batch import AMQP, KEYED, PERSISTENT, RecordBatch
from shardmq.protocol.amqp import properties, property_facts
from shardmq.protocol.amqp.property_edits import edited, without
from shardmq.protocol.amqp.records import unpack
from shardmq.protocol.amqp.tables import encode_entry, encode_long, wrapped

KNOWN_MAX: Final = 1024
"""Translations that are remembered. When there are more, all are forgotten."""

KNOWN_BYTES_MAX: Final = property_facts.KNOWN_BYTES_MAX
"""Longer properties are not remembered. They may have 128 KB, and mostly differ from message to message."""

DELIVERY_COUNT: Final = "x-delivery-count"
"""The header with the number of earlier deliveries."""

Translated = TypeVar("Translated", bytes, msgspec.Raw)


def to_native(batch: RecordBatch) -> RecordBatch:
    """A batch as native clients read it; the same object if a native client published it."""
    if not batch.flags & AMQP:
        return batch
    if batch.flags & KEYED:
        keyed = [(_packed.get(raw) or _pack(raw), body, key) for raw, body, key in zip(*contents(batch), strict=True)]
        return msgspec.structs.replace(batch, flags=batch.flags & ~AMQP, records=pack_keyed(keyed))
    records = pack_packed(
        [(_packed.get(raw) or _pack(raw), body) for raw, body in unpack_raw(batch.records, batch.count)]
    )
    return msgspec.structs.replace(batch, flags=batch.flags & ~AMQP, records=records)


def to_amqp(batch: RecordBatch, deliveries: int = 0) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """A batch as AMQP clients read it: property lists and bodies.

    Args:
        batch: from either protocol.
        deliveries: how often its messages were delivered before, in queues that count it.
    """
    lists, bodies = _contents(batch) if type(batch) is RecordBatch else contents_of(batch, _contents)
    if deliveries:
        counted = {raw: _counted(raw, deliveries) for raw in set(lists)}
        lists = [counted[raw] for raw in lists]
    return lists, bodies


def _contents(batch: RecordBatch) -> Contents:
    if batch.flags & KEYED:
        lists, bodies, _ = contents(batch)
        if not batch.flags & AMQP:
            lists = _translated_lists(lists, bool(batch.flags & PERSISTENT))
        return lists, bodies
    return unpack(batch.records, batch.count) if batch.flags & AMQP else _translated(batch)


def _translated(batch: RecordBatch) -> tuple[Sequence[bytes], Sequence[bytes]]:
    is_persistent = bool(batch.flags & PERSISTENT)
    plain = unpack_bodies(batch.records, batch.count)
    if plain is not None:
        return [_PLAIN[is_persistent]] * batch.count, [body for _, body in plain]
    packed, bodies = zip(*unpack_apart(batch.records, batch.count), strict=True)
    return _translated_lists(map(bytes, packed), is_persistent), bodies


def _translated_lists(packed: Iterable[bytes], is_persistent: bool) -> list[bytes]:
    """Translate first halves of records to property lists."""
    known = _lists[is_persistent]
    return [known.get(each) or _list(each, is_persistent) for each in packed]


def _list(packed: bytes, is_persistent: bool) -> bytes:
    """Translate the first half of a record to a property list."""
    own = unpack_properties(packed)
    raw = properties.encode(msgspec.structs.replace(own or Properties(), delivery_mode=2 if is_persistent else 1))
    return _remember(_lists[is_persistent], packed, raw)


def _pack(raw: bytes) -> msgspec.Raw:
    """Translate a property list to the first half of a record."""
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
"""Property lists by the first half of a record, of transient messages, and of persistent ones."""

_packed: Final[dict[bytes, msgspec.Raw]] = {}
"""First halves of records by property list."""
