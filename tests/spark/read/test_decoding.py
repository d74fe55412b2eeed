"""Taking records apart gives what was put in, on every way there is, and refuses what is no records."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import ProtocolError
from shardmq.message.keyed_records import pack as pack_keyed
from shardmq.message.properties import Properties
from shardmq.message.record import pack, pack_properties
from shardmq.spark.read import decoding as unpacking
from shardmq.spark.read.decoding import KEYED, Parts, keys_apart, take_apart

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=300) | st.binary(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=20,
)
properties = st.none() | st.builds(
    Properties,
    content_type=st.none() | st.sampled_from(["text/csv", "text/plain"]),
    headers=st.none() | st.dictionaries(st.text(), values, max_size=20),
    message_id=st.none() | st.text(),
)
Members = list[tuple[Properties | None, bytes]]
messages = st.lists(st.tuples(properties, st.binary(max_size=300)), min_size=1, max_size=12)


@pytest.fixture(scope="module", params=["compiled", "python"])
def _msgpack(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the compiled msgpack, and with what an executor has that got the zip alone."""
    if request.param == "compiled" and not unpacking._IS_COMPILED:
        pytest.skip("msgpack is not compiled here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "_IS_COMPILED", request.param == "compiled")
        yield


def put_together(parts: Parts) -> list[tuple[bytes | None, bytes]]:
    """(raw properties, body) of each record."""
    of = range(len(parts.bodies)) if parts.of is None else parts.of.to_pylist()
    return list(zip([parts.raws[place] for place in of], parts.bodies.to_pylist(), strict=True))


def raw(given: Properties | None, body: bytes = b"") -> bytes | None:
    """The bytes of properties in a record."""
    header = 2 if len(body) < 2**8 else 3 if len(body) < 2**16 else 5
    return None if given is None else pack(given, body)[1 : -len(body) - header]


def taken(members: list[tuple[Properties | None, bytes]]) -> list[tuple[bytes | None, bytes]]:
    return put_together(take_apart(b"".join(pack(*member) for member in members), len(members)))


@pytest.mark.usefixtures("_msgpack")
@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_records_with_keys_come_back_without_them(deliveries: list[Members], data: st.DataObject) -> None:
    given, expected = [], []
    for members in deliveries:
        if data.draw(st.booleans()):
            keys = data.draw(st.lists(st.text(max_size=40), min_size=len(members), max_size=len(members)))
            packed = pack_keyed(
                [(pack_properties(own), body, key) for (own, body), key in zip(members, keys, strict=True)]
            )
            given.append({"flags": KEYED, "routing_key": "", "count": len(members), "records": packed})
        else:
            keys = ["k"] * len(members)
            packed = b"".join(pack(*member) for member in members)
            given.append({"flags": 1, "routing_key": "k", "count": len(members), "records": packed})
        expected += keys
    plain, keys = keys_apart(given)
    assert len(plain) == len(given)
    if any(each["flags"] & KEYED for each in given):
        assert keys == expected
    else:
        assert keys == ["k"] * len(given)
    for each, members in zip(plain, deliveries, strict=True):
        assert each["records"] == b"".join(pack(*member) for member in members)


@pytest.mark.usefixtures("_msgpack")
@pytest.mark.parametrize("records", [b"", b"\x92\xc0\xc4\x00", b"\x93\xc0\xc4\x00", b"\x93\xc0\xa0\xa0"])
def test_what_has_no_key_is_refused_where_one_is_due(records: bytes) -> None:
    with pytest.raises(ProtocolError, match="no 1 records"):
        keys_apart([{"flags": KEYED, "routing_key": "", "count": 1, "records": records}])


@pytest.mark.usefixtures("_msgpack")
@given(messages)
def test_records_come_back_as_they_were_packed(members: list[tuple[Properties | None, bytes]]) -> None:
    assert taken(members) == [(raw(*member), member[1]) for member in members]


@pytest.mark.usefixtures("_msgpack")
@given(properties, st.integers(0, 300), st.integers(1, 50))
def test_records_that_differ_in_nothing_but_bodies_come_back(given: Properties | None, size: int, count: int) -> None:
    members = [(given, bytes([number]) * size) for number in range(count)]
    assert taken(members) == [(raw(given, bytes(size)), body) for _, body in members]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 1 << 20])
@pytest.mark.parametrize("given", [None, Properties(), Properties(app_id="a"), Properties(app_id="a" * 100)])
def test_bodies_of_every_size_come_back(given: Properties | None, size: int) -> None:
    members = [(given, b"a" * size), (given, b"b" * size), (None, b"c")]
    assert [body for _, body in taken(members[:2])] == [b"a" * size, b"b" * size]
    assert [body for _, body in taken(members)] == [b"a" * size, b"b" * size, b"c"]


def test_what_looks_like_the_next_record_s_beginning_may_be_a_body() -> None:
    bodies = [b"\x92\xc0\xc4\x03", b"\x92\xc0\xc4\x04", b"\x92\xc0", b"\x92\xc0\x92\xc0\xc0\xc0"]
    members: list[tuple[Properties | None, bytes]] = [(None, body) for body in bodies]
    assert taken(members) == members


def test_the_same_properties_are_told_once() -> None:
    one, other = Properties(app_id="one"), Properties(app_id="other")
    members = [(one, b"1"), (one, b"22"), (None, b"3"), (other, b"4"), (one, b"5")]
    parts = take_apart(b"".join(pack(*member) for member in members), 5)
    assert parts.raws == [raw(one), None, raw(other)]
    assert parts.of.to_pylist() == [0, 0, 1, 2, 0]


VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    2**32 - 1,
    2**32,
    2**64 - 1,
    -1,
    -32,
    -33,
    -128,
    -129,
    -(2**15),
    -(2**15) - 1,
    -(2**31) - 1,
    1.5,
    "",
    "s" * 31,
    "s" * 32,
    "s" * 256,
    "s" * 65_536,
    b"",
    b"b" * 255,
    b"b" * 256,
    b"b" * 65_536,
    [],
    [0] * 15,
    [0] * 16,
    [[]] * 65_536,
    {},
    {str(key): key for key in range(16)},
    {str(key): {} for key in range(65_536)},
]


@pytest.mark.usefixtures("_msgpack")
@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_values_of_every_type_are_skipped(value: Any) -> None:
    members = [(Properties(headers={"h": value}), b"1"), (Properties(headers={"h": value, "i": 1}), b"22")]
    assert taken(members) == [(raw(*member), member[1]) for member in members]


@pytest.mark.usefixtures("_msgpack")
@pytest.mark.parametrize(
    "extension",
    [
        b"\xd4\x01a",
        b"\xd5\x01aa",
        b"\xd6\xff\0\0\0\x01",
        b"\xd7\x01" + b"a" * 8,
        b"\xd8\x01" + b"a" * 16,
        b"\xc7\x03\x01aaa",
        b"\xc8\x00\x01\x01a",
        b"\xc9\x00\x00\x00\x01\x01a",
        b"\xca\0\0\0\0",
    ],
)
def test_extensions_are_skipped(extension: bytes) -> None:
    table = b"\x81\xa7headers\x81\xa1h" + extension
    records = b"\x92" + table + b"\xc4\x01a" + b"\x92\xc0\xc4\x02bb"
    assert put_together(take_apart(records, 2)) == [(table, b"a"), (None, b"bb")]


@pytest.mark.usefixtures("_msgpack")
@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"\x92\xc0\xc4\x01a", 2),
        (b"\x92\xc0\xc4\x01a\x92\xc0\xc4\x01a", 1),
        (b"\x92\xc0\xc4\x02a", 1),
        (b"\x92\xc0\xc4", 1),
        (b"\x92\xc0", 1),
        (b"\x92", 1),
        (b"", 1),
        (b"\x92\xc0\xa1a", 1),
        (b"\x93\xc0\xc4\x01a", 1),
        (b"\x92\xc1\xc4\x01a", 1),
        (b"\x92\x81\xa1a", 1),
        (b"\x92\xc0\xc4\x01a\x91\xc0\xc4\x02aa", 2),
        (b"\x92\xc0\xc4\x01a\x92\xc0\xc4\x05aa", 2),
    ],
)
def test_what_is_no_records_is_refused(records: bytes, count: int) -> None:
    with pytest.raises(ProtocolError, match=rf"{len(records)} bytes that are no {count} records"):
        take_apart(records, count)
