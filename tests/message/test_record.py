"""Records and batches: packing, checking, cutting, joining."""

import inspect
import sys
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import MESSAGE_BYTES_HIGHEST, MESSAGE_BYTES_MAX, RECORD_BATCH_RECORDS_MAX
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record import Record
from shardmq.message.record_batch import DECIMAL, PERSISTENT, RecordBatch, record_ends

texts = st.none() | st.text(max_size=20)
properties = st.none() | st.builds(
    Properties,
    content_type=texts,
    headers=st.none()
    | st.dictionaries(st.text(max_size=8), st.integers(-(2**63), 2**63) | st.text() | st.none(), max_size=4),
    delivery_mode=st.none() | st.integers(1, 2),
    message_id=texts,
    timestamp=st.none() | st.integers(0, 2**60),
)
messages = st.lists(st.tuples(properties, st.binary(max_size=200)), min_size=1, max_size=30)


def batch_of(items: list[tuple[Properties | None, bytes]], serial: int = 7) -> RecordBatch:
    packed = b"".join(records.pack(*item) for item in items)
    return RecordBatch("flights", "UA.EWR", PERSISTENT, 1_700_000_000_000, 2**63, serial, len(items), packed)


@given(messages)
def test_what_was_packed_is_unpacked(items: list[tuple[Properties | None, bytes]]) -> None:
    batch = batch_of(items)
    plain = all(properties is None for properties, _ in items)
    assert records.check(batch.records, batch.count) == (None if plain else [Record(*item) for item in items])
    assert records.unpack(batch.records, batch.count) == [Record(*item) for item in items]


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=40), properties)
def test_packing_many_is_packing_each(bodies: list[bytes], common: Properties | None) -> None:
    assert records.pack_many(bodies, common) == b"".join(records.pack(common, body) for body in bodies)


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_packing_many_cuts_off_every_width_of_array_header(count: int) -> None:
    assert records.pack_many([b"x"] * count) == records.pack(None, b"x") * count


@given(messages, st.data())
def test_a_changed_byte_is_refused_or_still_whole_records(
    items: list[tuple[Properties | None, bytes]], data: st.DataObject
) -> None:
    packed = bytearray(batch_of(items).records)
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        records.check(bytes(packed), len(items))
    except InvalidRequest:
        return
    assert record_ends(bytes(packed), len(items))[-1] == len(packed)


@pytest.mark.parametrize(
    ("packed", "count"),
    [
        (b"", 1),
        (b"\x92\xc0\xc4\x01x", 0),
        (b"\x92\xc0\xc4\x01x", 2),
        (b"\x92\xc0\xc4\x01xx", 1),
        (b"\x92\xc0\xc4\x01x\x92\xc0\xa1x", 2),
        (b"\x92\xc0\xa1x", 1),
        (b"\x93\xc0\xc4\x01x\xc0", 1),
        (b"\x92\xc4\x01p\xc4\x01x", 1),
        (records.pack_many([b""]) * 3, RECORD_BATCH_RECORDS_MAX + 1),
        (b"\x91" * 100_000, 1),
    ],
)
def test_what_is_no_batch_of_records_is_refused(packed: bytes, count: int) -> None:
    with pytest.raises(InvalidRequest):
        records.check(packed, count)


def test_a_property_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="colour"):
        records.check(b"\x92\x81\xa6colour\xa3red\xc4\x00", 1)


def test_a_message_over_the_limit_is_refused_wherever_it_stands() -> None:
    packed = records.pack_many([b"small", b"x" * (MESSAGE_BYTES_MAX + 1)])
    with pytest.raises(ContentTooLarge, match=f"{MESSAGE_BYTES_MAX + 1} .* {MESSAGE_BYTES_MAX}"):
        records.check(packed, 2)


@pytest.mark.parametrize("properties", [None, Properties(type="t", headers={"long": "x" * 1000})])
@pytest.mark.parametrize("limit", [10, 3 << 20])
def test_the_body_alone_counts(properties: Properties | None, limit: int) -> None:
    for count in (1, 2):
        fits = records.pack_many([b"x" * limit] * count, properties)
        decoded = records.check(fits, count, limit)
        assert (decoded is None) == (properties is None)
        assert (
            decoded is None
            or [(each.properties, bytes(each.body)) for each in decoded] == [(properties, b"x" * limit)] * count
        )
        over = records.pack_many([b"x" * limit] * (count - 1) + [b"x" * (limit + 1)], properties)
        with pytest.raises(ContentTooLarge, match=f"message size {limit + 1} is larger .* max size {limit}"):
            records.check(over, count, limit)


@pytest.mark.parametrize("size", [0, 1, 100, 255, 256, 257, 65_535, 65_536])
def test_bodies_of_one_size_are_told_by_their_headers(size: int) -> None:
    count = records.ALIKE_MIN
    packed = records.pack_many([bytes([number]) * size for number in range(count)])
    assert records.alike_size(packed, count) == size
    assert records.check(packed, count) is None
    assert records.check_plain(packed, count, size)
    assert records.alike_size(packed + packed, count) is None
    assert records.alike_size(packed[:-1], count) is None
    if size:
        with pytest.raises(ContentTooLarge):
            records.check(packed, count, size - 1)
        with pytest.raises(ContentTooLarge):
            records.check_plain(packed, count, size - 1)


@given(st.integers(0, 300), st.data())
def test_records_that_look_alike_are_those_that_can_be_decoded(size: int, data: st.DataObject) -> None:
    count = records.ALIKE_MIN
    packed = bytearray(records.pack_many([b"\x92\xc0\xc4" * size] * count))
    length = len(packed) // count
    for place in data.draw(st.lists(st.integers(0, min(8, length - 1)), max_size=2)):
        packed[data.draw(st.integers(0, count - 1)) * length + place] = data.draw(st.integers(0, 255))
    if records.alike_size(bytes(packed), count) is not None:
        found = records.unpack(bytes(packed), count)
        assert {record.properties for record in found} == {None}


def test_the_highest_limit_has_rabbitmqs_own_words() -> None:
    assert records.too_large_text(2**30, MESSAGE_BYTES_HIGHEST) == (
        "message size 1073741824 is larger than max size 536870912"
    )


@pytest.mark.parametrize("damage", [b"\x93", b"\x92\xc1", b"\x92\xa1"])
def test_a_large_record_that_comes_alone_is_looked_at_as_closely(damage: bytes) -> None:
    good = records.pack(Properties(type="t"), bytes(2 << 20))
    assert records.check(good, 1) is not None
    for bad in (damage + good[1:], good + b"\xc0", good[:-1], good[:1] + b"\x81\xa6colour\xa3red" + good[8:]):
        with pytest.raises(InvalidRequest):
            records.check(bad, 1)
    with pytest.raises(ContentTooLarge, match="bytes of properties; the limit is 131072"):
        records.check(records.pack(Properties(headers={"x": "x" * 140_000}), bytes(2 << 20)), 1)


@pytest.mark.parametrize("text", ["12.50", "-0.0", "1E+30", "NaN", "Infinity", "1" * 1000])
def test_decimals_in_headers_arrive_as_they_were(text: str) -> None:
    headers = {"a": Decimal(text), "b": [Decimal(text), {"c": (Decimal(text), "text")}], "d": {"e": 1}}
    packed = records.pack(Properties(headers=headers), b"body")
    assert packed == records.pack_many([b"body"], Properties(headers=headers))
    assert packed == records.pack_packed([(records.pack_properties(Properties(headers=headers)), b"body")])
    [record] = records.check(packed, 1) or []
    assert record.properties is not None
    assert repr(record.properties.headers) == repr({**headers, "b": [Decimal(text), {"c": [Decimal(text), "text"]}]})
    assert records.pack(record.properties, record.body) == packed


def test_an_extension_that_is_no_decimal_stays_what_it_is() -> None:
    headers = {"a": Ext(DECIMAL, b"twelve"), "b": Ext(DECIMAL, b"\xff"), "c": Ext(7, b"")}
    packed = records.pack(Properties(headers=headers), b"")
    [record] = records.unpack(packed, 1)
    assert record.properties == Properties(headers=headers)
    assert records.pack(record.properties, b"") == packed


@given(messages)
def test_records_come_apart_into_properties_and_bodies(items: list[tuple[Properties | None, bytes]]) -> None:
    batch = batch_of(items)
    apart = records.unpack_apart(batch.records, batch.count)
    assert [(records.unpack_properties(bytes(packed)), body) for packed, body in apart] == items
    assert records.pack_packed(apart) == batch.records
    plain = records.unpack_bodies(batch.records, batch.count)
    assert plain == (items if all(properties is None for properties, _ in items) else None)


def test_properties_that_could_be_read_once_can_be_read_where_the_stack_is_deeper() -> None:
    deep = b"\x81\xa7headers\x81\xa1a" + b"\x91" * 300 + b"\xc0"
    limit = sys.getrecursionlimit()
    depth = len(inspect.stack())
    try:
        sys.setrecursionlimit(depth + 100)
        properties = records.unpack_properties(deep)
        assert sys.getrecursionlimit() == depth + 100
    finally:
        sys.setrecursionlimit(limit)
    assert properties is not None
    assert properties.headers is not None


def test_pieces_are_the_records_as_they_were_packed() -> None:
    nested: object = "bottom"
    for _ in range(500):
        nested = [nested]
    packed = [
        records.pack(None, b""),
        records.pack(Properties(priority=3, headers={"a": [1, {"b": b"c"}]}), b"body" * 100),
        records.pack(Properties(headers={"deep": nested}), b"1"),
    ]
    assert list(map(bytes, records.pieces(b"".join(packed), len(packed)))) == packed
