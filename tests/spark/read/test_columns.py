"""Columns hold what was published, whatever it was, and only those are made that are asked for."""

import base64
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgpack
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from shardmq.errors import InvalidRequest, ProtocolError
from shardmq.message import record_batch
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT, message_id
from shardmq.spark.read.columns import DECIMAL, PROPERTIES, READ_SCHEMA, Columns, Delivery, arrow_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def delivery(members: list[tuple[Properties | None, bytes]], **others: Any) -> Delivery:
    """As queue.read has it."""
    return {
        "consumer": "",
        "tag": 0,
        "redelivered": False,
        "exchange": "logs",
        "routing_key": "error",
        "flags": PERSISTENT,
        "timestamp_ms": 1_700_000_000_123,
        "origin": 0xABC,
        "serial": 0xFE,
        "count": len(members),
        "records": b"".join(pack(*member) for member in members),
        "deliveries": 0,
        "first": 0,
    } | others


def table(deliveries: list[Delivery], *names: str) -> list[dict[str, Any]]:
    """Rows of these columns, or of all of them."""
    asked = StructType([READ_SCHEMA[name] for name in names or READ_SCHEMA.names])
    batch = Columns(arrow_schema(asked)).batch(deliveries)
    batch.validate(full=True)
    assert batch.schema == to_arrow_schema(asked, timezone="UTC")
    # Maps as dicts; a key that is there twice is a fault.
    return batch.to_pylist(maps_as_pydicts="strict")


def column(name: str, *members: tuple[Properties | None, bytes]) -> list[Any]:
    return [row[name] for row in table([delivery(list(members))], name)]


def headers(**given: Any) -> dict[str, str]:
    [row] = column("headers", (Properties(headers=given), b""))
    return row


def test_a_message_with_everything_has_everything() -> None:
    properties = Properties(
        content_type="text/csv",
        content_encoding="gzip",
        headers={"source": "test"},
        delivery_mode=2,
        priority=5,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    [row] = table([delivery([(properties, b"body")], redelivered=True, deliveries=3, first=7)])
    assert row == {
        "body": b"body",
        "exchange": "logs",
        "routing_key": "error",
        "message_id": "m",
        "properties": {
            "content_type": "text/csv",
            "content_encoding": "gzip",
            "delivery_mode": 2,
            "priority": 5,
            "correlation_id": "c",
            "reply_to": "r",
            "expiration": "60000",
            "message_id": "m",
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "type": "t",
            "user_id": "guest",
            "app_id": "a",
        },
        "headers": {"source": "test"},
        "redelivered": True,
        "deliveries": 3,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "position": 7,
        "persistent": True,
        "raw_properties": msgspec.msgpack.encode(properties),
    }


def test_decimals_are_their_text() -> None:
    headers = {"price": Decimal("12.50"), "prices": [Decimal("1"), {"n": Decimal("-1.5")}]}
    [row] = table([delivery([(Properties(headers=headers), b"")])])
    assert row["headers"] == {"price": "12.50", "prices": '["1",{"n":"-1.5"}]'}
    assert DECIMAL == record_batch.DECIMAL


def test_a_message_with_nothing_has_what_the_broker_gave_it() -> None:
    [row] = table([delivery([(None, b"")], flags=0, exchange="", routing_key="q")])
    assert row == {
        "body": b"",
        "exchange": "",
        "routing_key": "q",
        "message_id": "0000000000000abc-fe",
        "properties": None,
        "headers": None,
        "redelivered": False,
        "deliveries": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "position": 0,
        "persistent": False,
        "raw_properties": None,
    }


def test_properties_of_which_none_is_set_are_there() -> None:
    [row] = table([delivery([(Properties(), b"")])])
    assert row["properties"] == dict.fromkeys(PROPERTIES.names)
    assert (row["headers"], row["raw_properties"], row["message_id"]) == (None, b"\x80", "0000000000000abc-fe")


texts = st.none() | st.text(max_size=40)
scalars = st.text() | st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.none() | st.floats() | st.binary()
everything = st.builds(
    Properties,
    content_type=texts,
    headers=st.none() | st.dictionaries(st.text(), scalars, max_size=4),
    delivery_mode=st.none() | st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    expiration=texts,
    message_id=texts,
    timestamp=st.none() | st.integers(0, 2**32),
    app_id=texts,
)
contents = st.lists(st.tuples(st.none() | everything, st.binary(max_size=300)), min_size=1, max_size=8)


u64 = st.integers(0, 2**64 - 9)


@given(st.lists(st.tuples(contents, u64, u64, st.booleans()), min_size=1, max_size=4))
def test_messages_come_back_as_they_were_published(
    published: list[tuple[list[tuple[Properties | None, bytes]], int, int, bool]],
) -> None:
    deliveries = [
        delivery(members, serial=serial, origin=origin, redelivered=again, first=number * 100, exchange=f"x{number}")
        for number, (members, serial, origin, again) in enumerate(published)
    ]
    rows = iter(table(deliveries))
    for number, (members, serial, origin, redelivered) in enumerate(published):
        for offset, (properties, body) in enumerate(members):
            row = next(rows)
            assert (row["body"], row["exchange"], row["position"]) == (body, f"x{number}", number * 100 + offset)
            assert row["redelivered"] is redelivered
            given_id = None if properties is None else properties.message_id
            assert row["message_id"] == (message_id(origin, serial + offset) if given_id is None else given_id)
            assert row["raw_properties"] == (None if properties is None else msgspec.msgpack.encode(properties))
            if properties is None:
                assert (row["properties"], row["headers"]) == (None, None)
                continue
            seconds = row["properties"].pop("timestamp")
            assert properties.timestamp == (None if seconds is None else int((seconds - EPOCH).total_seconds()))
            assert all(value == getattr(properties, name) for name, value in row["properties"].items())
            assert (row["headers"] is None) == (properties.headers is None)
            assert list(row["headers"] or {}) == list(properties.headers or {})
    assert next(rows, None) is None


@pytest.mark.parametrize("name", READ_SCHEMA.names)
def test_each_column_by_itself_is_as_among_all(name: str) -> None:
    members = [(Properties(app_id="a", headers={"n": 1}), b"1"), (None, b"22"), (Properties(message_id="m"), b"")]
    deliveries = [delivery(members), delivery(members[1:], exchange="other", first=10)]
    assert [row[name] for row in table(deliveries, name)] == [row[name] for row in table(deliveries)]


def test_columns_come_in_the_order_they_are_asked_for() -> None:
    asked = StructType([READ_SCHEMA[name] for name in ("position", "body", "exchange")])
    batch = Columns(arrow_schema(asked)).batch([delivery([(None, b"a")])])
    assert batch.schema.names == ["position", "body", "exchange"]


def test_properties_are_not_looked_at_where_no_column_needs_them() -> None:
    nonsense = b"\x92\x81\xa1x\xa1y\xc4\x01a"  # a property that there is not, and whose bytes are no map of ours
    deliveries = [delivery([(None, b"b")], records=nonsense.replace(b"\x81\xa1x\xa1y", b"\xa1x"))]
    assert table(deliveries, "body", "position", "exchange") == [{"body": b"a", "position": 0, "exchange": "logs"}]
    with pytest.raises(ProtocolError, match="properties that cannot be decoded"):
        table(deliveries, "headers")


def test_strings_are_as_they_are() -> None:
    assert headers(a="text", b="", c="ünïcode", d='"quoted"') == {"a": "text", "b": "", "c": "ünïcode", "d": '"quoted"'}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-1, "-1"),
        (2**64 - 1, "18446744073709551615"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (1.5, "1.5"),
        (1e300, "1e+300"),
        (b"\x00\xff", "AP8="),
        (datetime(2026, 11, 20, 12, 30, tzinfo=UTC), "2026-11-20T12:30:00+00:00"),
        ([], "[]"),
        ({}, "{}"),
        ([1, "a", b"\x00", None], '[1,"a","AA==",null]'),
        ({"a": {"b": [True, {"c": "ü"}]}}, '{"a":{"b":[true,{"c":"ü"}]}}'),
        ({1: 2, b"\x00": 3, (1, 2): [{None: 1}]}, '{"1":2,"AA==":3,"[1,2]":[{"null":1}]}'),
    ],
)
def test_all_other_types_of_headers_are_text(value: Any, text: str) -> None:
    assert headers(h=value) == {"h": text}


def test_extensions_are_base64() -> None:
    members = msgpack.packb([{"headers": {"e": msgpack.ExtType(5, b"abc"), "l": [msgpack.ExtType(5, b"abc")]}}, b""])
    [row] = table([delivery([(None, b"")], records=members)], "headers")
    assert row["headers"] == {"e": base64.b64encode(b"abc").decode(), "l": '["YWJj"]'}


def test_deaths_can_be_read_as_json() -> None:
    deaths = [
        {
            "count": 2,
            "reason": "rejected",
            "queue": "jobs",
            "time": datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC),
            "exchange": "work",
            "routing-keys": ["a", "b"],
        },
        {
            "count": 1,
            "reason": "expired",
            "queue": "retry",
            "time": datetime(2026, 11, 19, tzinfo=UTC),
            "exchange": "",
            "routing-keys": ["retry"],
            "original-expiration": "1000",
        },
    ]
    read = headers(**{"x-death": deaths, "x-first-death-reason": "expired"})
    assert read["x-first-death-reason"] == "expired"
    assert json.loads(read["x-death"]) == [death | {"time": death["time"].isoformat()} for death in deaths]  # type: ignore[attr-defined]


def test_a_header_too_deep_for_text_says_what_to_do() -> None:
    deep = b"\x92\x81\xa7headers\x81\xa1h" + b"\x91" * 990 + b"\x01" + b"\xc4\x01a"
    deliveries = [delivery([(None, b"")], records=deep)]
    with pytest.raises(InvalidRequest, match=r"header 'h' .* too deeply .* raw_properties"):
        table(deliveries, "headers")
    [row] = table(deliveries, "body", "raw_properties")
    assert (row["body"], row["raw_properties"]) == (b"a", deep[1:-3])


@pytest.mark.parametrize(
    ("name", "value"),
    [("timestamp", 2**63 - 1), ("timestamp", 2**63 // 10**6 + 1), ("delivery_mode", 2**31), ("priority", -(2**31) - 1)],
)
def test_numbers_that_spark_has_not_are_null(name: str, value: int) -> None:
    [row] = column("properties", (Properties(**{name: value}), b""))
    assert row[name] is None


@pytest.mark.parametrize(("name", "value"), [("delivery_mode", 2**31 - 1), ("priority", -(2**31))])
def test_numbers_that_spark_has_are_there(name: str, value: int) -> None:
    [row] = column("properties", (Properties(**{name: value}), b""))
    assert row[name] == value


def test_the_last_second_that_spark_has_is_there() -> None:
    kind = pa.timestamp("us", tz="UTC")
    schema = arrow_schema(StructType([READ_SCHEMA["properties"]]))
    batch = Columns(schema).batch([delivery([(Properties(timestamp=2**63 // 10**6 - 1), b"")])])
    [seconds] = batch.column(0).field("timestamp").cast(pa.int64())
    assert (batch.column(0).field("timestamp").type, seconds.as_py()) == (kind, (2**63 // 10**6 - 1) * 10**6)


def test_ids_of_the_broker_and_of_publishers_may_be_mixed() -> None:
    members = [(None, b""), (Properties(message_id="mine"), b""), (Properties(app_id="a"), b""), (None, b"")]
    assert column("message_id", *members) == [
        "0000000000000abc-fe",
        "mine",
        "0000000000000abc-100",
        "0000000000000abc-101",
    ]
    assert column("message_id", *[(Properties(message_id=str(n)), b"") for n in range(3)]) == ["0", "1", "2"]
    assert column("message_id", *[(Properties(message_id="same"), b"")] * 3) == ["same"] * 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("body", StringType()),
        ("payload", BinaryType()),
        ("position", IntegerType()),
        ("headers", MapType(StringType(), BinaryType())),
        ("headers", MapType(IntegerType(), StringType())),
        ("properties", StringType()),
        ("properties", StructType().add("colour", StringType())),
        ("properties", StructType().add("priority", StringType())),
        ("properties", StructType()),
        ("timestamp", TimestampNTZType()),
        ("Body", BinaryType()),
    ],
    ids=str,
)
def test_columns_that_there_are_not_are_refused_with_the_list(name: str, kind: DataType) -> None:
    asked = StructType().add("exchange", StringType()).add(name, kind)
    there = r"there are body binary, exchange string, .*, raw_properties binary"
    with pytest.raises(InvalidRequest, match=rf"no column {name} {re.escape(kind.simpleString())}; {there}"):
        arrow_schema(asked)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the schema has no columns; there are body binary"):
        arrow_schema(StructType())


def test_some_of_the_properties_may_be_asked_for() -> None:
    asked = StructType().add("properties", StructType([PROPERTIES["priority"], PROPERTIES["app_id"]]))
    members: list[tuple[Properties | None, bytes]] = [(Properties(app_id="a", type="t"), b""), (None, b"")]
    batch = Columns(arrow_schema(asked)).batch([delivery(members)])
    assert batch.schema == to_arrow_schema(asked, timezone="UTC")
    assert batch.to_pylist() == [{"properties": {"priority": None, "app_id": "a"}}, {"properties": None}]
