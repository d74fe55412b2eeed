"""Messages between native and AMQP clients: what becomes of properties and headers, and what batches share."""

import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from shardmq.message.properties import Properties
from shardmq.message.record import check, pack, pack_raw, unpack
from shardmq.message.record_batch import AMQP, PERSISTENT, RecordBatch, can_join
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.tables import encode_table, wrapped
from shardmq.protocol.translation import KNOWN_MAX, to_amqp, to_native
from tests.protocol.amqp.property_lists import EVERY_TYPE, lists

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)


def batch_of(records: list[bytes], flags: int = PERSISTENT) -> RecordBatch:
    return RecordBatch("e", "k", flags, 1_700_000_000_000, 2**63, 7, len(records), b"".join(records), 3, 1000)


def amqp_batch(*contents: tuple[bytes, bytes], flags: int = PERSISTENT) -> RecordBatch:
    return batch_of([pack_raw(raw, body) for raw, body in contents], flags | AMQP)


def native_batch(*contents: tuple[Properties | None, bytes], flags: int = PERSISTENT) -> RecordBatch:
    return batch_of([pack(known, body) for known, body in contents], flags)


def crossed(headers: dict[str, Any]) -> dict[str, Any]:
    """Headers of a native client as an AMQP client reads them."""
    (raw,), _ = to_amqp(native_batch((Properties(headers=headers), b"")))
    read = properties.decode(raw).headers
    assert read is not None
    return read


def test_a_native_batch_stays_as_it_is() -> None:
    batch = native_batch((Properties(app_id="a"), b"1"))
    assert to_native(batch) is batch


def test_an_amqp_batch_reads_as_a_native_one_with_all_that_it_has_in_common() -> None:
    raw = properties.encode(Properties(delivery_mode=2, message_id="m"))
    batch = to_native(amqp_batch((raw, b"1"), (b"\x00\x00", b"2"), (raw, b"")))
    assert msgspec.structs.replace(batch, records=b"") == msgspec.structs.replace(batch_of([]), count=3)
    first, second, third = unpack(batch.records, batch.count)
    assert (first.properties, first.body) == (Properties(delivery_mode=2, message_id="m"), b"1")
    assert (second.properties, second.body) == (None, b"2")
    assert (third.properties, third.body) == (first.properties, b"")


@given(st.lists(st.tuples(lists, st.binary(max_size=50)), min_size=1, max_size=5))
def test_native_clients_read_what_amqp_clients_sent(contents: list[tuple[Properties, bytes]]) -> None:
    batch = to_native(amqp_batch(*[(properties.encode(known), body) for known, body in contents]))
    assert [
        (record.properties or Properties(), record.body) for record in unpack(batch.records, batch.count)
    ] == contents


def test_every_type_arrives() -> None:
    batch = to_native(amqp_batch((b"\x20\x00" + wrapped(b"", EVERY_TYPE), b"")))
    [record] = unpack(batch.records, 1)
    assert record.properties is not None
    assert record.properties.headers == {
        "b": -1,
        "B": 255,
        "s": -1,
        "u": 65535,
        "I": 1,
        "i": 1,
        "l": 1,
        "L": 1,
        "f": 0.5,
        "d": 0.5,
        "D": Decimal("1.25"),
        "t": True,
        "S": "a",
        "x": b"a",
        "T": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        "A": [None, 257],
        "F": {"n": 1},
        "V": None,
        "\\xff": None,
    }


def test_what_native_clients_are_given_they_may_publish() -> None:
    far = b"\x01T" + b"T" + b"\xff" * 8
    batch = to_native(amqp_batch((b"\x20\x00" + wrapped(b"", EVERY_TYPE + far), b"body")))
    decoded = check(batch.records, batch.count)
    assert decoded is not None
    assert to_amqp(batch)[1][0] == b"body"


def test_an_amqp_batch_keeps_its_lists_byte_for_byte() -> None:
    raw = b"\x20\x03" + wrapped(b"", EVERY_TYPE)
    lists, bodies = to_amqp(amqp_batch((raw, b"1"), (b"\x00\x00", b"2")))
    assert (list(lists), list(bodies)) == ([raw, b"\x00\x00"], [b"1", b"2"])


@pytest.mark.parametrize(("flags", "mode"), [(PERSISTENT, b"\x02"), (0, b"\x01")])
def test_amqp_clients_are_told_the_delivery_mode_in_force(flags: int, mode: bytes) -> None:
    batch = native_batch((None, b"1"), (None, b"2"), flags=flags)
    lists, bodies = to_amqp(batch)
    assert (list(lists), list(bodies)) == ([b"\x10\x00" + mode] * 2, [b"1", b"2"])
    mixed = native_batch((None, b"1"), (Properties(delivery_mode=7), b"2"), (None, b""), flags=flags)
    lists, bodies = to_amqp(mixed)
    assert (list(lists), list(bodies)) == ([b"\x10\x00" + mode] * 3, [b"1", b"2", b""])


@given(st.lists(st.tuples(lists, st.binary(max_size=50)), min_size=1, max_size=5))
def test_amqp_clients_read_what_native_clients_sent(contents: list[tuple[Properties, bytes]]) -> None:
    raws, bodies = to_amqp(native_batch(*contents))
    assert [properties.decode(raw) for raw in raws] == [
        msgspec.structs.replace(known, delivery_mode=2) for known, _ in contents
    ]
    assert list(bodies) == [body for _, body in contents]


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (Decimal("12.50"), Decimal("12.50")),
        ([Decimal("1"), {"n": Decimal("-2.5")}], [Decimal("1"), {"n": Decimal("-2.5")}]),
        ((1, 2), [1, 2]),
        (NOON, NOON),
        (NOON.replace(microsecond=5), NOON),
        (NOON.astimezone(datetime.timezone(datetime.timedelta(hours=-7))), NOON),
        (NOON.replace(tzinfo=None), "2026-11-21T12:00:00"),
        (datetime.date(2026, 11, 21), "2026-11-21"),
        (b"\xff", b"\xff"),
        (bytearray(b"a"), b"a"),
        (None, None),
        (True, True),
        (0.1, 0.1),
        (2**63 - 1, 2**63 - 1),
        (2**64 - 1, str(2**64 - 1)),
        (-(2**63), -(2**63)),
        ({1: "a", b"b": {}}, {"1": "a", "b": {}}),
        (Ext(55, b"data"), b"data"),
        (Ext(1, b"no decimal"), b"no decimal"),
    ],
)
def test_headers_of_native_clients_have_a_type_in_amqp(sent: Any, read: Any) -> None:
    there = crossed({"n": sent})["n"]
    assert there == read
    assert type(there) is type(read)
    if isinstance(read, Decimal):
        assert str(there) == str(read)


def test_headers_of_native_clients_nest_as_deep_as_a_gateway_lets_them_in() -> None:
    deep = b"\x92\x81\xa7headers\x82\xa1a" + b"\x91" * 390 + b"\xc0\xa1b\x01\xc4\x00"
    (raw,), _ = to_amqp(batch_of([deep]))
    read = properties.decode(raw).headers
    assert read is not None
    assert read["b"] == 1


def test_a_name_that_is_too_long_for_amqp_is_left_out() -> None:
    assert crossed({"x" * 256: 1, "y": 2}) == {"y": 2}


def test_messages_that_came_back_say_how_often() -> None:
    raw = b"\x20\x04" + wrapped(b"", EVERY_TYPE) + b"\x01c"
    forged = b"\x20\x00" + encode_table({"x-delivery-count": "mine", "a": 1})
    lists, bodies = to_amqp(amqp_batch((raw, b"1"), (forged, b"2"), (b"\x00\x00", b"3")), deliveries=2)
    counted = b"\x10x-delivery-countl\x00\x00\x00\x00\x00\x00\x00\x02"
    assert list(bodies) == [b"1", b"2", b"3"]
    assert list(lists) == [
        b"\x20\x04" + wrapped(b"", EVERY_TYPE + counted) + b"\x01c",
        b"\x20\x00" + wrapped(b"", b"\x01aI\x00\x00\x00\x01" + counted),
        b"\x20\x00" + wrapped(b"", counted),
    ]
    (raw,), _ = to_amqp(native_batch((None, b"1")), deliveries=2)
    assert raw == b"\x30\x00" + wrapped(b"", counted) + b"\x02"


def test_batches_of_one_kind_never_join_those_of_the_other() -> None:
    native = native_batch((None, b"1"))
    assert can_join(native, msgspec.structs.replace(native, serial=native.serial + 1))
    assert not can_join(native, msgspec.structs.replace(native, serial=native.serial + 1, flags=PERSISTENT | AMQP))


def test_translations_that_are_forgotten_are_made_again() -> None:
    for _ in range(2):
        for number in range(0, 2 * KNOWN_MAX, 64):
            known = [Properties(message_id=str(each), delivery_mode=2) for each in range(number, number + 64)]
            raws, _ = to_amqp(native_batch(*[(each, b"") for each in known]))
            assert [properties.decode(raw) for raw in raws] == known
            there = to_native(amqp_batch(*[(raw, b"") for raw in raws]))
            assert [record.properties for record in unpack(there.records, there.count)] == known


def test_the_same_properties_of_transient_and_persistent_messages_are_kept_apart() -> None:
    known = Properties(app_id="a")
    for _ in range(2):
        for flags, mode in ((0, 1), (PERSISTENT, 2)):
            (raw,), _ = to_amqp(native_batch((known, b""), flags=flags))
            assert properties.decode(raw) == Properties(app_id="a", delivery_mode=mode)
