"""Rows cut into record batches: which columns there may be, what goes together, and in which order."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

from shardmq.errors import InvalidRequest
from shardmq.limits import RECORD_BATCH_RECORDS_MAX
from shardmq.message import record as records
from shardmq.spark.options import Options
from shardmq.spark.write.rows import BATCH_BYTES, GATHERED_BYTES, RowBatch, RowSplitter, check_columns

OPTIONS = Options(url="shardmq://x/", exchange="flights")


def cut(batches: list[pa.RecordBatch], options: Options = OPTIONS) -> list[RowBatch]:
    return list(RowSplitter(batches[0].schema.names, options).split(batches))


def bodies(piece: RowBatch) -> list[bytes]:
    return [record.body for record in records.unpack(bytes(piece.records), piece.count)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["UA", "AA", "", None]),
            st.sampled_from(["e1", "e2"]),
            st.sampled_from([1, 2, None]),
            st.sampled_from([0, 5, None]),
        ),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_rows_that_go_the_same_way_share_a_batch_and_keep_their_order(
    routes: list[tuple[str | None, str, int | None, int | None]], parts: int
) -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"%d" % number for number in range(len(routes))], pa.binary()),
            "routing_key": pa.array([route[0] for route in routes], pa.string()),
            "exchange": pa.array([route[1] for route in routes], pa.string()),
            "delivery_mode": pa.array([route[2] for route in routes], pa.int32()),
            "delay_ms": pa.array([route[3] for route in routes], pa.int64()),
        }
    )
    size = -(-len(routes) // parts)
    batches = [batch.slice(start, size) for start in range(0, len(routes), size)]
    wanted = defaultdict(list)
    for number, (key, exchange, mode, delay) in enumerate(routes):
        wanted[exchange, "UA" if key is None else key, 0 if mode == 1 else 1, 7 if delay is None else delay].append(
            b"%d" % number
        )
    pieces = cut(batches, Options(url="shardmq://x/", routing_key="UA", delay_ms=7))
    assert {(each.exchange, each.routing_key, each.flags, each.delay_ms): bodies(each) for each in pieces} == wanted
    assert len(pieces) == len(wanted), "batches were put together before they were cut"


def test_rows_of_one_target_are_one_row_batch_for_each_batch_without_a_sort() -> None:
    batches = [pa.record_batch({"value": pa.array([b"a", b"b"])}), pa.record_batch({"value": pa.array([b"c"])})]
    assert [(piece.exchange, piece.routing_key, piece.flags, bodies(piece)) for piece in cut(batches)] == [
        ("flights", "", 1, [b"a", b"b"]),
        ("flights", "", 1, [b"c"]),
    ]


def test_a_batch_without_rows_gives_no_run() -> None:
    assert cut([pa.record_batch({"value": pa.array([], pa.binary())})]) == []


def test_an_option_makes_all_rows_transient() -> None:
    [piece] = cut([pa.record_batch({"value": pa.array([b"a"])})], Options(url="x", routing_key="q", delivery_mode=1))
    assert (piece.exchange, piece.routing_key, piece.flags) == ("", "q", 0)


@pytest.mark.parametrize("keys", [1, 2])
def test_row_batches_are_no_larger_than_a_publish_may_be(keys: int) -> None:
    many = pa.record_batch(
        {"value": pa.array([b""] * 150_000), "routing_key": pa.array([str(number % keys) for number in range(150_000)])}
    )
    pieces = cut([many])
    assert sum(piece.count for piece in pieces) == 150_000
    assert max(piece.count for piece in pieces) <= RECORD_BATCH_RECORDS_MAX
    large = pa.record_batch({"value": pa.array([bytes(300_000)] * 10 + [bytes(3 * BATCH_BYTES)] + [b"x"])})
    assert [piece.count for piece in cut([large])] == [3, 3, 3, 1, 1, 1]


@pytest.mark.parametrize("columns", [{}, {"routing_key": pa.array(["a", "b"] * 24)}])
def test_large_batches_are_cut_a_part_at_a_time(columns: dict[str, Any]) -> None:
    headers = pa.array([[("n", str(number))] for number in range(48)], pa.map_(pa.string(), pa.string()))
    values = pa.array([b"%02d" % number + bytes(1 << 20) for number in range(48)])
    batch = pa.record_batch({"value": values, "headers": headers, **columns})
    before = pa.total_allocated_bytes()
    seen = []
    for piece in RowSplitter(batch.schema.names, OPTIONS).split([batch]):
        assert pa.total_allocated_bytes() - before < 4 * GATHERED_BYTES
        for record in records.unpack(bytes(piece.records), piece.count):
            seen.append(record.body[:2])
            assert record.properties.headers == {"n": str(int(record.body[:2]))}
    assert sorted(seen) == [b"%02d" % number for number in range(48)]


def test_large_batches_are_not_gathered() -> None:
    batch = pa.record_batch({"value": pa.array([bytes(5 << 20)]), "routing_key": pa.array(["a"])})
    assert [piece.count for piece in cut([batch] * 3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": [b"x"] * 2, "exchange": ["e", None]}, "column exchange is null in 1 of 2 rows"),
        ({"value": [b"x"] * 2, "exchange": ["e", "ü" * 128]}, "column exchange is over 255 bytes in 1 rows"),
        ({"value": [b"x"] * 2, "routing_key": ["e", "k" * 256]}, "column routing_key is over 255 bytes in 1 rows"),
        ({"value": [b"x"] * 2, "delay_ms": [-1, 2**32]}, "column delay_ms is not 0 to 4294967295 in 2 of 2 rows"),
    ],
)
def test_a_target_that_cannot_be_is_refused_by_column_and_rows(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        cut([pa.record_batch(columns)], Options(url="shardmq://x/"))


STRING, BINARY, INT, LONG = types.StringType(), types.BinaryType(), types.IntegerType(), types.LongType()
PLAIN = {"value": STRING}


def kafkas(value: types.DataType) -> types.ArrayType:
    entry = types.StructType([types.StructField("key", STRING), types.StructField("value", value)])
    return types.ArrayType(entry)


def schema_of(columns: Mapping[str, types.DataType]) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "columns",
    [
        {"value": BINARY, "routing_key": types.VarcharType(20), "exchange": types.CharType(3)},
        {
            **PLAIN,
            "headers": types.MapType(STRING, STRING),
            "delivery_mode": INT,
            "priority": types.ByteType(),
            "timestamp": types.TimestampType(),
            "expiration": LONG,
            "message_id": STRING,
            "delay_ms": INT,
        },
        {**PLAIN, "headers": kafkas(BINARY), "timestamp": types.TimestampNTZType(), "expiration": STRING},
        {**PLAIN, "headers": kafkas(STRING), "timestamp": LONG},
        {"value": BINARY, "routing_key": STRING, "raw_properties": BINARY},
    ],
)
def test_these_columns_can_be_published(columns: dict[str, types.DataType]) -> None:
    check_columns(schema_of(columns), OPTIONS)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({**PLAIN, "body": STRING}, OPTIONS, "shardmq has no column body; there are value, exchange"),
        ({"id": LONG, "routing_key": STRING}, OPTIONS, "column value is missing.* has id, routing_key: make it"),
        ({"value": INT}, OPTIONS, "column value is int; it must be binary or string"),
        ({**PLAIN, "headers": types.MapType(STRING, INT)}, OPTIONS, "column headers is map<string,int>; it must be "),
        ({**PLAIN, "priority": STRING}, OPTIONS, "column priority is string; it must be bigint or int"),
        (PLAIN, Options(url="x"), "nothing says where to publish to"),
        ({**PLAIN, "raw_properties": BINARY, "type": STRING}, OPTIONS, "leave out column or option type"),
        ({**PLAIN, "raw_properties": BINARY}, Options(url="x", exchange="e", app_id="a"), "column or option app_id"),
    ],
)
def test_a_frame_that_cannot_be_published_is_refused(
    columns: dict[str, types.DataType], options: Options, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_columns(schema_of(columns), options)


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = types.StructType([types.StructField("value", STRING), types.StructField("value", STRING)])
    with pytest.raises(InvalidRequest, match="has column value twice"):
        check_columns(twice, OPTIONS)
