"""Records of AMQP messages, packed by the batch: the same as one by one."""

import pytest

from shardmq.message.record import pack_raw
from shardmq.protocol.amqp.records import pack, pack_alike, unpack

LISTS = [b"\x00\x00", b"\x10\x00\x02", b"\x80\x00\xff" + b"x" * 255, b"\x20\x00" + b"y" * 70_000]


@pytest.mark.parametrize("properties", LISTS)
@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_alike_messages_are_packed_as_each_would_be(properties: bytes, size: int, count: int) -> None:
    bodies = [bytes((number,)) * size for number in range(count)]
    records = pack_alike(properties, bodies)
    assert records == b"".join([pack_raw(properties, body) for body in bodies])
    lists, back = unpack(records, count)
    assert (list(lists), list(back)) == ([properties] * count, bodies)


@pytest.mark.parametrize("count", [1, 2, 15, 16, 300, 65_536])
def test_messages_that_differ_are_packed_as_each_would_be(count: int) -> None:
    lists = [LISTS[number % 3] for number in range(count)]
    bodies = [b"x" * (number % 300) for number in range(count)]
    assert pack(lists, bodies) == b"".join(map(pack_raw, lists, bodies))
    assert pack_alike(LISTS[1], bodies) == b"".join([pack_raw(LISTS[1], body) for body in bodies])
