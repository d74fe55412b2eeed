"""Messages between native and AMQP clients: their properties, in the other's shape."""

import msgspec

from shardmq.gateway.amqp import properties
from shardmq.records import AMQP, PERSISTENT, Properties, Run, pack, unpack, unpack_raw


def to_native(run: Run) -> Run:
    """A run as native clients read it: the same one where it came from them."""
    if not run.flags & AMQP:
        return run
    records = [pack(_native(raw), body) for raw, body in unpack_raw(run.records, run.count)]
    return msgspec.structs.replace(run, flags=run.flags & ~AMQP, records=b"".join(records))


def to_amqp(run: Run) -> list[tuple[bytes, bytes]]:
    """Property list and body of each message of a run, as AMQP clients read them."""
    if run.flags & AMQP:
        return unpack_raw(run.records, run.count)
    mode = 2 if run.flags & PERSISTENT else 1
    plain = properties.encode(Properties(delivery_mode=mode))
    contents = []
    for record in unpack(run.records, run.count):
        known = record.properties
        raw = plain if known is None else properties.encode(msgspec.structs.replace(known, delivery_mode=mode))
        contents.append((raw, record.body))
    return contents


def _native(raw: bytes) -> Properties | None:
    return properties.decode(raw) if raw != properties.NO_PROPERTIES else None
