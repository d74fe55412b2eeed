"""What events say of the memory that they take."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.limits import REQUEST_BYTES_MAX
from shardmq.protocol.amqp import encoder
from shardmq.protocol.amqp.events import AcksReceived, Event, MethodReceived
from shardmq.protocol.amqp.field_types import TABLE_DEPTH_MAX
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods.basic import BasicConsume
from shardmq.protocol.amqp.methods.topology import ExchangeBind
from shardmq.protocol.amqp.tables import wrapped
from tests.protocol.amqp.bytestreams import ack

ROOM = REQUEST_BYTES_MAX - 1000


def consume(entries: bytes) -> bytes:
    """A frame of basic.consume with a table of these entries."""
    payload = encoder.method_frame(1, BasicConsume(0, "q"))[7:-1]
    return encoder.frame(1, 1, payload[:-4] + wrapped(b"", entries))


def array(value: bytes) -> bytes:
    """A table that is one array of as many of these values as fit."""
    return b"\x00" + wrapped(b"A", value * (ROOM // len(value)))


def nested(wrap: Callable[[bytes], bytes]) -> bytes:
    value = b"V"
    for _ in range(TABLE_DEPTH_MAX - 2):
        value = wrap(value)
    return value


def names(size: int) -> bytes:
    """As many entries as fit, with different names of that size."""
    count = ROOM // (size + 2)
    return b"".join([bytes((size,)) + number.to_bytes(size, "little") + b"V" for number in range(count)])


FRAMES: dict[str, bytes] = {
    "empty-tables": consume(array(b"F\0\0\0\0")),
    "empty-arrays": consume(array(b"A\0\0\0\0")),
    "tables-of-one": consume(array(wrapped(b"F", b"\0V"))),
    "tables-in-tables": consume(array(nested(lambda value: wrapped(b"F", b"\0" + value)))),
    "arrays-in-arrays": consume(array(nested(lambda value: wrapped(b"A", value)))),
    "decimals": consume(array(b"D\x02\0\0\0\x7d")),
    "numbers": consume(array(b"s\x7f\xff")),
    "nothing": consume(array(b"V")),
    "names-of-two": consume(names(2)),
    "names-of-three": consume(names(3)),
    "names": encoder.method_frame(1, ExchangeBind(0, *["\U0001f600" + "x" * 251] * 3)),
    "acks": b"".join([ack(1_000_000 + number * 2) for number in range(ROOM // 21)]),
    "pairs-of-acks": b"".join([ack(1_000_000 + number * 3 // 2) for number in range(ROOM // 21)]),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_method_says_what_it_takes_in_memory_at_most(name: str) -> None:
    reader = FrameReader(0)
    reader.frame_max = REQUEST_BYTES_MAX
    list(reader.feed(FRAMES["nothing"]))  # whatever is remembered or made once
    events: list[Any] = []
    gc.collect()
    tracemalloc.start()
    try:
        events += reader.feed(FRAMES[name])
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    event: Event
    (event,) = events
    assert isinstance(event, AcksReceived | MethodReceived)
    print(f"{taken} bytes, of {len(FRAMES[name])} in the frame")
    assert taken < event.size + 1000
