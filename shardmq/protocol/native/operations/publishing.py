"""The frame of a large BasicPublish, written with one copy of its records where `encode` makes two."""

from typing import Final

import msgspec

from shardmq.protocol.native.frames import HEADER
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.protocol.native.operations.codec import TYPES

LARGE_BYTES: Final = 16 << 10
"""Records of so many bytes cost more to copy than the steps that avoid the copy (1 µs)."""

_FIELDS: Final = len(BasicPublish.__struct_fields__)
_TYPE: Final = TYPES[BasicPublish]
_pack = msgspec.msgpack.Encoder().encode


def encode_publish(operation: BasicPublish) -> bytes:
    """The frame of a publish, byte for byte as `encode` makes it; without a growth where it has none.

    Brokers that tell of no growth know no such field.
    """
    records = operation.records
    size = len(records)
    if size < LARGE_BYTES:
        payload = _pack(operation if operation.growth else msgspec.structs.astuple(operation)[:-1])
        return HEADER.pack(_TYPE, len(payload)) + payload
    growth = (operation.growth,) if operation.growth else ()
    head = _pack(
        (
            operation.request,
            operation.channel,
            operation.exchange,
            operation.routing_key,
            operation.flags,
            operation.count,
        )
    )
    tail = _pack((operation.delay_ms, operation.producer, operation.sequence, operation.transaction, *growth))
    binary = b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xc6" + size.to_bytes(4, "big")
    # head and tail begin with a header of one byte, of an array of their own
    total = len(head) + len(binary) + size + len(tail) - 1
    fields = bytes([0x90 | _FIELDS - (not growth)])
    return b"".join((HEADER.pack(_TYPE, total), fields, head[1:], binary, records, tail[1:]))
