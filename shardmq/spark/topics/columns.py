"""The columns of a topic's messages: those of Spark's Kafka source, and the broker's own."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
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

from shardmq.spark.read.columns import BUILDERS, PROPERTIES, Builder, Rows, arrow_schema, as_text

LOG_APPEND_TIME: Final = 1
"""Kafka's timestampType where the broker gives the time."""

_HEADERS: Final = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)

TOPIC_SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of Kafka's source, in its order. key is the routing key as bytes, null where it is empty; timestamp is
when the broker took the message."""

WITH_HEADERS: Final = StructType([*TOPIC_SCHEMA.fields, _HEADERS])
"""Those with includeHeaders: strings as bytes, bytes as they are, other values as the bytes of their JSON."""

_OWN: Final = (
    StructField("headers", MapType(StringType(), StringType())),
    StructField("body", BinaryType()),
    StructField("exchange", StringType()),
    StructField("routing_key", StringType()),
    StructField("message_id", StringType()),
    StructField("properties", PROPERTIES),
    StructField("persistent", BooleanType()),
    StructField("position", LongType()),
    StructField("raw_properties", BinaryType()),
)
"""What a schema of the user's may name besides: the columns of queues. position is the offset, body the value."""

COLUMNS: Final = (*WITH_HEADERS.fields, *_OWN)


def topic_schema(asked: StructType) -> pa.Schema:
    """The Arrow schema of the columns that a job asks for, in any order.

    Raises:
        InvalidRequest: a column does not exist, or has another type.
    """
    return arrow_schema(asked, COLUMNS, "a topic's messages")


def builders(topic: str, partition: int) -> Mapping[str, Builder]:
    """How the columns of a partition's messages are made, by their names."""
    return {**_BUILDERS, "topic": _constant(topic), "partition": _constant(partition)}


def _constant(value: Any) -> Builder:
    return lambda rows, kind: pa.repeat(pa.scalar(value, kind), rows.count)


def _key(rows: Rows, kind: pa.DataType) -> pa.Array:
    return rows.by_delivery([key.encode() or None for key in rows.keys], kind)


def _headers(rows: Rows, kind: DataType) -> pa.Array:
    if isinstance(kind, pa.MapType):
        return BUILDERS["headers"](rows, kind)
    values = [None if table is None else [_header(key, table[key]) for key in table] for table in rows.each("headers")]
    return rows.by_properties(pa.array(values, kind))


def _header(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": value if isinstance(value, bytes) else as_text(key, value).encode()}


_Builders = Mapping[str, Callable[[Rows, pa.DataType], pa.Array]]
_BUILDERS: Final[_Builders] = MappingProxyType(
    {
        **BUILDERS,
        "key": _key,
        "value": BUILDERS["body"],
        "offset": BUILDERS["position"],
        "timestampType": _constant(LOG_APPEND_TIME),
        "headers": _headers,
    }
)
