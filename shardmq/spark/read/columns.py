"""The columns of a queue's messages in Spark, made from answers to queue.read.

A delivery is several messages with one exchange, routing key and time. Such common values become a column by one
`take`; `decoding` cuts out bodies and properties; and only what a wanted column needs is decoded.
"""

import base64
import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, Final

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardmq.errors import InvalidRequest, ProtocolError, ReplyCode
from shardmq.spark.read.decoding import Parts, keys_apart, take_apart

Delivery = dict[str, Any]
"""A delivery in an answer to queue.read: the fields of basic.deliver, and `first`."""

DECIMAL: Final = 1
"""The msgpack extension type of decimals, as in `shardmq.message.record_batch`, which executors cannot import."""

PROPERTIES: Final = StructType(
    [
        StructField("content_type", StringType()),
        StructField("content_encoding", StringType()),
        StructField("delivery_mode", IntegerType()),
        StructField("priority", IntegerType()),
        StructField("correlation_id", StringType()),
        StructField("reply_to", StringType()),
        StructField("expiration", StringType()),
        StructField("message_id", StringType()),
        StructField("timestamp", TimestampType()),
        StructField("type", StringType()),
        StructField("user_id", StringType()),
        StructField("app_id", StringType()),
    ]
)
"""The properties that the publisher set, without headers. Values that Spark's types cannot hold are null."""

READ_SCHEMA: Final = StructType(
    [
        StructField("body", BinaryType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("message_id", StringType()),
        StructField("properties", PROPERTIES),
        StructField("headers", MapType(StringType(), StringType())),
        StructField("redelivered", BooleanType()),
        StructField("deliveries", IntegerType()),
        StructField("timestamp", TimestampType()),
        StructField("position", LongType()),
        StructField("persistent", BooleanType()),
        StructField("raw_properties", BinaryType()),
    ]
)
"""All columns.

message_id is the publisher's id, or else the broker's. headers has strings as they are, bytes as base64, times as ISO
8601, decimals as their digits and other values as JSON; it is null where a message has none. deliveries is how often
a message was delivered and came back, where its queue counts that. timestamp is when the broker took the message.
position is its number in the queue. raw_properties is the msgpack map of its properties as published; null where it
has none.
"""

_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    BinaryType: pa.binary(),
    StringType: pa.string(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}
COUNTED: Final = 1 << 14
"""Numbers that are kept: a batch has hardly more rows."""

_PERSISTENT: Final = 1
_INT32: Final = 1 << 31
_SECONDS: Final = (1 << 63) // 1_000_000
"""Seconds beyond this are more microseconds than a timestamp can hold."""


def arrow_schema(
    asked: StructType, there: Sequence[StructField] = READ_SCHEMA.fields, what: str = "a queue's messages"
) -> pa.Schema:
    """The Arrow schema of the columns that a job asks for: some of those there are, in any order.

    Args:
        asked: by the job.
        there: the columns there are; one name may have several types.
        what: has them, in words.

    Raises:
        InvalidRequest: a column does not exist, or has another type.
    """
    if not asked.fields:
        raise InvalidRequest(f"the schema has no columns; there are {_listed(there)}")
    for field in asked.fields:
        if not _is_part(field, there):
            raise InvalidRequest(
                f"{what} have no column {field.name} {field.dataType.simpleString()}; there are {_listed(there)}"
            )
    return pa.schema([_arrow_field(field) for field in asked.fields])


class Columns:
    """Makes Arrow batches from deliveries.

    Args:
        schema: the columns, as `arrow_schema` gives them.
        builders: how each column is made, by its name; None for a queue's.
    """

    def __init__(self, schema: pa.Schema, builders: Mapping[str, "Builder"] | None = None) -> None:
        self._schema = schema
        self._builders = [((builders or BUILDERS)[field.name], field.type) for field in schema]

    def batch(self, deliveries: Sequence[Delivery]) -> pa.RecordBatch:
        """Make a batch with a row for each message, in their order.

        Args:
            deliveries: of one answer to queue.read, at least one.

        Raises:
            ProtocolError: the records cannot be decoded.
            InvalidRequest: headers were asked for, and one of them is nested too deeply for text.
        """
        rows = Rows(deliveries)
        return pa.RecordBatch.from_arrays([build(rows, kind) for build, kind in self._builders], schema=self._schema)


class Rows:
    """The messages of some deliveries, with the values that several columns are made from.

    Args:
        deliveries: of one answer. `keys` are the routing keys, of each or of each message.
    """

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries, self.keys = keys_apart(deliveries)
        self.count: int = sum(delivery["count"] for delivery in deliveries)

    @cached_property
    def parts(self) -> Parts:
        """The records, cut apart."""
        records = self.deliveries[0]["records"]
        if len(self.deliveries) > 1:
            records = b"".join([delivery["records"] for delivery in self.deliveries])
        return take_apart(records, self.count)

    @cached_property
    def tables(self) -> list[dict[str, Any] | None]:
        """The different properties, decoded."""
        return [_decoded(raw) for raw in self.parts.raws]

    @cached_property
    def named(self) -> set[str]:
        """The properties that are set anywhere: three or four, mostly, of fourteen."""
        return set[str]().union(*[table for table in self.tables if table])

    def each(self, name: str) -> list[Any]:
        """One of the properties in each of `tables`, None where it is not set."""
        return [None if table is None else table.get(name) for table in self.tables]

    @cached_property
    def _delivery_of(self) -> pa.Array:
        of = array("i")
        for place, delivery in enumerate(self.deliveries):
            of.extend(array("i", (place,)) * delivery["count"])
        return pa.Array.from_buffers(pa.int32(), self.count, [None, pa.py_buffer(of)])

    def by_delivery(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        """A column in which the messages of a delivery have one value."""
        column = pa.array(values, kind)
        return column if len(values) == self.count else column.take(self._delivery_of)

    def by_properties(self, values: pa.Array) -> pa.Array:
        """A column in which messages with the same properties have one value."""
        return values if self.parts.of is None else values.take(self.parts.of)


Builder = Callable[[Rows, pa.DataType], pa.Array]
"""Makes a column of some messages."""


def _common(field: str) -> Builder:
    return lambda rows, kind: rows.by_delivery([delivery[field] for delivery in rows.deliveries], kind)


def _timestamp(rows: Rows, kind: pa.DataType) -> pa.Array:
    return rows.by_delivery([delivery["timestamp_ms"] * 1000 for delivery in rows.deliveries], kind)


def _persistent(rows: Rows, kind: pa.DataType) -> pa.Array:
    return rows.by_delivery([bool(delivery["flags"] & _PERSISTENT) for delivery in rows.deliveries], kind)


def _body(rows: Rows, _: pa.DataType) -> pa.Array:
    return rows.parts.bodies


def _raw_properties(rows: Rows, kind: pa.DataType) -> pa.Array:
    return rows.by_properties(pa.array(rows.parts.raws, kind))


def _position(rows: Rows, kind: pa.DataType) -> pa.Array:
    runs: list[list[int]] = []  # first and end, where there is no gap: mostly one
    for delivery in rows.deliveries:
        first, end = delivery["first"], delivery["first"] + delivery["count"]
        if runs and runs[-1][1] == first:
            runs[-1][1] = end
        else:
            runs.append([first, end])
    counting = _counting(max(end - first for first, end in runs))
    pieces = [pc.add(counting.slice(0, end - first), pa.scalar(first, kind)) for first, end in runs]
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


@lru_cache(1)
def _counting_up(size: int) -> pa.Array:
    return pa.array(range(size), pa.int64())


def _counting(size: int) -> pa.Array:
    """The numbers from 0 on, `size` of them at least; kept, as making them costs more than all else of a column."""
    return _counting_up(max(COUNTED, size))


def _message_id(rows: Rows, kind: pa.DataType) -> pa.Array:
    own = rows.each("message_id")
    if None not in own:
        return rows.by_properties(pa.array(own, kind))
    given: list[str] = []
    for delivery in rows.deliveries:
        origin, serial = f"{delivery['origin']:016x}", delivery["serial"]
        given += [f"{origin}-{number:x}" for number in range(serial, serial + delivery["count"])]
    if "message_id" in rows.named:
        of = range(rows.count) if rows.parts.of is None else rows.parts.of.to_pylist()
        given = [brokers if own[place] is None else own[place] for place, brokers in zip(of, given, strict=True)]
    return pa.array(given, kind)


def _properties(rows: Rows, kind: pa.StructType) -> pa.Array:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    columns = []
    for field in fields:
        if field.name in rows.named:
            columns.append(pa.array(list(map(_FITTED.get(field.name, _as_is), rows.each(field.name))), field.type))
        else:
            columns.append(pa.nulls(len(rows.tables), field.type))
    is_null = pa.array([table is None for table in rows.tables], pa.bool_())
    return rows.by_properties(pa.StructArray.from_arrays(columns, fields=fields, mask=is_null))


def _headers(rows: Rows, kind: pa.MapType) -> pa.Array:
    tables = rows.each("headers")
    texts = [None if table is None else [(key, as_text(key, table[key])) for key in table] for table in tables]
    return rows.by_properties(pa.array(texts, kind))


BUILDERS: Final[dict[str, Builder]] = {
    "body": _body,
    "exchange": _common("exchange"),
    "routing_key": lambda rows, kind: rows.by_delivery(rows.keys, kind),
    "message_id": _message_id,
    "properties": _properties,
    "headers": _headers,
    "redelivered": _common("redelivered"),
    "deliveries": _common("deliveries"),
    "timestamp": _timestamp,
    "position": _position,
    "persistent": _persistent,
    "raw_properties": _raw_properties,
}


def _as_is(value: Any) -> Any:
    return value


def _int32(value: int | None) -> int | None:
    return value if value is not None and -_INT32 <= value < _INT32 else None


def _microseconds(seconds: int | None) -> int | None:
    return seconds * 1_000_000 if seconds is not None and -_SECONDS < seconds < _SECONDS else None


_FITTED: Final[dict[str, Callable[[Any], Any]]] = {
    "delivery_mode": _int32,
    "priority": _int32,
    "timestamp": _microseconds,
}


def _decoded(raw: bytes | None) -> dict[str, Any] | None:
    if raw is None:
        return None
    try:
        # Keys of inner maps can be of any type; lists become tuples, as lists cannot be keys. Extensions become their
        # bytes, decimals their text.
        table = msgpack.unpackb(raw, timestamp=3, ext_hook=_of_extension, strict_map_key=False, use_list=False)
        if not isinstance(table, dict):
            raise ValueError("they are not a map")
    except (ValueError, TypeError, RecursionError, OverflowError) as fault:
        raise ProtocolError(
            f"the broker sent properties that cannot be decoded: {raw[:80]!r}: {fault}", ReplyCode.SYNTAX_ERROR
        ) from fault
    return table


def _of_extension(code: int, data: bytes) -> str | bytes:
    try:
        return data.decode("ascii") if code == DECIMAL else data
    except UnicodeDecodeError:
        return data


def as_text(name: str, value: Any) -> str:
    """A header's value as text: strings as they are, bytes as base64, times as ISO 8601, other values as JSON."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)  # the same as JSON, in a tenth of the time
    if isinstance(value, bytes | datetime):
        return _bare(value)
    try:
        try:
            return _json(value)
        except TypeError:  # keys that JSON does not have
            return _json(_with_text_keys(value))
    except RecursionError:
        raise InvalidRequest(
            f"header '{name}' of a message is nested too deeply for text; leave out the column headers "
            "and read raw_properties"
        ) from None


def _bare(value: bytes | datetime) -> str:
    return value.isoformat() if isinstance(value, datetime) else base64.b64encode(value).decode()


_json: Final = json.JSONEncoder(default=_bare, ensure_ascii=False, separators=(",", ":")).encode


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_with_text_keys(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {as_text("", key): _with_text_keys(member) for key, member in value.items()}


def _is_part(asked: StructField, of: Sequence[StructField]) -> bool:
    """Whether such a column exists; of a struct, some of the fields are enough."""
    return any(_is_of(asked.dataType, field.dataType) for field in of if field.name == asked.name)


def _is_of(asked: DataType, there: DataType) -> bool:
    if isinstance(asked, StructType) and isinstance(there, StructType):
        return bool(asked.fields) and all(_is_part(field, there.fields) for field in asked.fields)
    return asked == there


def _arrow_field(field: StructField) -> pa.Field:
    kind = field.dataType
    if isinstance(kind, StructType):
        arrow = pa.struct([_arrow_field(inner) for inner in kind.fields])
    elif isinstance(kind, MapType):
        arrow = pa.map_(pa.string(), pa.string())
    elif isinstance(kind, ArrayType):
        arrow = pa.list_(_arrow_field(StructField("element", kind.elementType, kind.containsNull)))
    else:
        arrow = _ARROW[type(kind)]
    return pa.field(field.name, arrow, field.nullable)


def _listed(columns: Sequence[StructField]) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns)
