"""Records made of columns are those that `shardmq.message.record` makes of messages, one by one."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmq import limits
from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record import Record
from shardmq.spark.write.encoding import PROPERTIES, RANGES, Encoder

HEADERS = pa.map_(pa.string(), pa.string())
TYPES = {"headers": HEADERS, "delivery_mode": pa.int32(), "priority": pa.int16(), "timestamp": pa.int64()}

texts = st.text(max_size=40) | st.sampled_from(["x" * 31, "x" * 32, "x" * 255, "x" * 256, "x" * 66_000])
values: dict[str, st.SearchStrategy[Any]] = {
    "headers": st.dictionaries(st.text(max_size=40), st.none() | st.text(max_size=40), max_size=20),
    "delivery_mode": st.integers(1, 2),
    "priority": st.integers(0, 255),
    "timestamp": st.integers(0, 2**40) | st.integers(0, 2**63 - 1),
}
rows = st.fixed_dictionaries(
    {"value": st.binary(max_size=300) | st.sampled_from([bytes(255), bytes(256), bytes(65_535), bytes(65_536)])},
    optional={name: st.none() | values.get(name, texts) for name in PROPERTIES},
)


def batch_of(messages: list[dict[str, Any]], names: list[str]) -> pa.RecordBatch:
    columns = {"value": pa.array([message["value"] for message in messages], pa.binary())}
    for name in names:
        given = [message.get(name) for message in messages]
        if name == "headers":
            given = [None if table is None else list(table.items()) for table in given]
        columns[name] = pa.array(given, TYPES.get(name, pa.string()))
    return pa.record_batch(columns)


def encoded(batch: pa.RecordBatch, defaults: dict[str, Any] | None = None) -> list[bytes]:
    made: list[bytes] = Encoder(frozenset(batch.schema.names), defaults or {}).records(batch).to_pylist()
    return made


def expected(message: dict[str, Any], defaults: dict[str, Any]) -> Record:
    there = {name: value for name in PROPERTIES if (value := message.get(name)) is not None}
    properties = {**defaults, **there}
    return Record(Properties(**properties) if properties else None, message["value"])


def test_properties_are_those_of_messages_and_stand_in_their_order() -> None:
    assert Properties.__struct_fields__ == PROPERTIES
    assert RANGES["delay_ms"] == (0, limits.DELAY_MS_MAX)


@settings(max_examples=200)
@given(st.lists(rows, min_size=1, max_size=12), st.sets(st.sampled_from(PROPERTIES)), st.data())
def test_columns_become_the_records_that_messages_do(
    messages: list[dict[str, Any]], defaulted: set[str], data: st.DataObject
) -> None:
    names = sorted({name for message in messages for name in message if name != "value"})
    defaults = {name: data.draw(values.get(name, texts)) for name in sorted(defaulted)}
    batch = batch_of(messages, names)
    start = data.draw(st.integers(0, len(messages) - 1))
    wanted = [expected(message, defaults) for message in messages]
    assert [records.unpack(record, 1)[0] for record in encoded(batch, defaults)] == wanted
    assert records.unpack(b"".join(encoded(batch.slice(start), defaults)), len(wanted) - start) == wanted[start:]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=30))
def test_bodies_alone_are_packed_byte_for_byte(bodies: list[bytes]) -> None:
    made = encoded(pa.record_batch({"value": pa.array(bodies, pa.binary())}))
    assert b"".join(made) == records.pack_many(bodies)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"value": st.binary(max_size=9)},
            optional={name: st.none() | texts for name in ("content_type", "message_id", "type")},
        ),
        min_size=1,
        max_size=9,
    )
)
def test_texts_and_bodies_are_packed_byte_for_byte(messages: list[dict[str, Any]]) -> None:
    batch = batch_of(messages, ["content_type", "message_id", "type"])
    wanted = [expected(message, {}) for message in messages]
    assert encoded(batch) == [records.pack(record.properties, record.body) for record in wanted]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_a_value_is_text_or_bytes_of_any_width(kind: pa.DataType) -> None:
    text = "Zürich" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else "Zürich".encode()
    assert encoded(pa.record_batch({"value": pa.array([text], kind)})) == [records.pack(None, "Zürich".encode())]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_headers_come_as_kafkas_array_as_well(kind: pa.DataType) -> None:
    entry = pa.struct([("key", pa.string()), ("value", kind)])
    word = "w" if pa.types.is_string(kind) else b"w"
    tables = [[("a", word), ("b", None)], None, [], [("a", word), ("a", None)]]
    given = [None if table is None else [{"key": key, "value": value} for key, value in table] for table in tables]
    batch = pa.record_batch({"value": pa.array([b"x"] * 4), "headers": pa.array(given, pa.list_(entry))})
    read = [records.unpack(record, 1)[0].properties for record in encoded(batch)]
    assert read == [
        Properties(headers={"a": word, "b": None}),
        None,
        Properties(headers={}),
        Properties(headers={"a": None}),
    ]
    assert [records.unpack(record, 1)[0].properties for record in encoded(batch.slice(2))] == read[2:]


@pytest.mark.parametrize("zone", ["UTC", None])
def test_a_timestamp_counts_in_seconds(zone: str | None) -> None:
    moment = datetime(2026, 11, 20, 12, 0, 0, 999_999, tzinfo=UTC)
    column = pa.array([moment if zone else moment.replace(tzinfo=None), None], pa.timestamp("us", zone))
    made = encoded(pa.record_batch({"value": pa.array([b"x", b"y"]), "timestamp": column}))
    assert records.unpack(made[0], 1)[0].properties == Properties(timestamp=int(moment.timestamp()))
    assert made[1] == records.pack(None, b"y")


def test_an_expiration_may_be_a_number() -> None:
    made = encoded(pa.record_batch({"value": pa.array([b"x"]), "expiration": pa.array([60_000])}))
    assert made == [records.pack(Properties(expiration="60000"), b"x")]


def test_raw_properties_are_passed_on() -> None:
    properties = Properties(content_type="text/csv", delivery_mode=1)
    raw = records.pack(properties, b"")[1:-2]
    batch = pa.record_batch({"value": pa.array([b"x", b"y"]), "raw_properties": pa.array([raw, None], pa.binary())})
    assert encoded(batch) == [records.pack(properties, b"x"), records.pack(None, b"y")]
    assert Encoder(frozenset(batch.schema.names), {}).is_transient(batch).to_pylist() == [True, False]


def test_a_header_that_looks_like_transient_is_not() -> None:
    raw = records.pack(Properties(headers={"delivery_mode": 1}), b"")[1:-2]
    batch = pa.record_batch({"value": pa.array([b"x"]), "raw_properties": pa.array([raw])})
    assert Encoder(frozenset(batch.schema.names), {}).is_transient(batch).to_pylist() == [False]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": [b"x", None, None]}, "column value is null in 2 of 3 rows"),
        ({"value": [b"x"] * 3, "priority": [1, 256, -1]}, "column priority is not 0 to 255 in 2 of 3 rows"),
        ({"value": [b"x"] * 3, "delivery_mode": [0, 1, None]}, "column delivery_mode is not 1 to 2 in 1 of 3 rows"),
        ({"value": [b"x"] * 3, "timestamp": [-1, 1, 2]}, "column timestamp is not 0 to 9223372036854775807 in 1 of 3"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_column_and_rows(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        encoded(pa.record_batch(columns))


def test_a_header_without_a_name_is_refused() -> None:
    entry = pa.struct([("key", pa.string()), ("value", pa.string())])
    for wrong, said in (({"key": None, "value": "x"}, "1 names"), (None, "1 headers")):
        batch = pa.record_batch({"value": pa.array([b"x"]), "headers": pa.array([[wrong]], pa.list_(entry))})
        with pytest.raises(InvalidRequest, match=f"column headers has null in place of {said}"):
            encoded(batch)


def test_a_message_over_the_limit_is_refused_by_column_and_rows() -> None:
    large = pa.record_batch({"value": pa.array([b"x", bytes(MESSAGE_BYTES_MAX + 1)])})
    with pytest.raises(ContentTooLarge, match=f"1 of 2 rows of a batch are over .* column value has {2**24 + 1} bytes"):
        encoded(large)
    rich = pa.record_batch({"value": pa.array([bytes(MESSAGE_BYTES_MAX)]), "type": pa.array(["flight"])})
    assert len(encoded(rich)) == 1
    rich = pa.record_batch({"value": pa.array([b"x"]), "type": pa.array(["x" * (32 << 20)])})
    with pytest.raises(ContentTooLarge, match="column value and its properties"):
        encoded(rich)
