"""Rows to publishes: which columns a DataFrame may have, and how its rows are split by their targets.

A row batch has one exchange, routing key, persistence and delay. Rows of an Arrow batch that share these become one
or several row batches in their order; the order between different targets is not kept.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from shardmq.errors import InvalidRequest
from shardmq.limits import MESSAGE_BYTES_MAX, NAME_BYTES_MAX, RECORD_BATCH_RECORDS_MAX
from shardmq.spark.options import Options
from shardmq.spark.write.encoding import PROPERTIES, Encoder, numbers
from shardmq.spark.write.literals import integer, text

BATCH_BYTES: Final = 1 << 20
"""Bytes of a row batch at most, about; a larger message is one of its own."""

GATHERED_BYTES: Final = 8 << 20
"""Arrow batches are joined up to so many bytes before they are split by target: a row batch of ten messages costs the
broker about what one of a thousand does."""

PERSISTENT: Final = 1

_TEXT: Final = frozenset({"string"})
_BYTES: Final = frozenset({"string", "binary"})
_NUMBER: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
COLUMNS: Final[dict[str, frozenset[str]]] = {
    "value": _BYTES,
    "exchange": _TEXT,
    "routing_key": _TEXT,
    **dict.fromkeys(PROPERTIES, _TEXT),
    "headers": frozenset(
        {
            "map<string,string>",
            "map<string,binary>",
            "array<struct<key:string,value:binary>>",
            "array<struct<key:string,value:string>>",
        }
    ),
    "delivery_mode": _NUMBER,
    "priority": _NUMBER,
    "expiration": _TEXT | _NUMBER,
    "timestamp": frozenset({"timestamp", "timestamp_ntz", "bigint", "int"}),
    "raw_properties": frozenset({"binary"}),
    "delay_ms": _NUMBER,
}
"""The columns that a DataFrame may have when it is written, with their types in Spark's words."""


def check_columns(schema: StructType, options: Options) -> None:
    """Refuse a DataFrame that cannot be published.

    Args:
        schema: the DataFrame's.
        options: of the job.

    Raises:
        InvalidRequest: a column is unknown, missing, there twice, of another type, or contradicts another column or an
            option.
    """
    names = [field.name for field in schema.fields]
    if "value" not in names:
        raise InvalidRequest(
            f"column value is missing, the messages' bodies; the DataFrame has {', '.join(names)}: "
            "make it from one of them, or from all: selectExpr('to_json(struct(*)) value')"
        )
    for field in schema.fields:
        types = COLUMNS.get(field.name)
        if types is None:
            raise InvalidRequest(
                f"shardmq has no column {field.name}; there are {', '.join(COLUMNS)}: "
                f"leave it out with select(…), or put it into value"
            )
        if names.count(field.name) > 1:
            raise InvalidRequest(f"the DataFrame has column {field.name} twice")
        said = field.dataType.simpleString()
        plain = "string" if said.startswith(("varchar", "char", "string ")) else said
        if plain not in types:
            raise InvalidRequest(f"column {field.name} is {said}; it must be {' or '.join(sorted(types))}: cast it")
    targets = [name for name in ("exchange", "routing_key") if name in names or getattr(options, name) is not None]
    if not targets:
        raise InvalidRequest(
            "nothing says where to publish to: set option exchange, or option routing_key to a "
            "queue's name (the default exchange takes it), or add columns of these names"
        )
    if "raw_properties" in names:
        twice = [name for name in PROPERTIES if name in names or getattr(options, name) is not None]
        if twice:
            raise InvalidRequest(f"column raw_properties has all properties; leave out column or option {twice[0]}")


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one publish.

    Attributes:
        exchange: where they go.
        routing_key: with which key.
        flags: PERSISTENT or 0.
        delay_ms: milliseconds after which they join their queues.
        count: how many rows there are.
        records: the rows as records, back to back.
    """

    exchange: str
    routing_key: str
    flags: int
    delay_ms: int
    count: int
    records: memoryview


class RowSplitter:
    """Splits Arrow batches with the same columns into row batches.

    Args:
        columns: the batches' columns, checked by `check_columns`.
        options: values of rows without a column.
        body_max: the largest body of a message that the broker takes.
    """

    def __init__(self, columns: Sequence[str], options: Options, body_max: int = MESSAGE_BYTES_MAX) -> None:
        self._options = options
        self._columns = frozenset(columns)
        defaults = {name: getattr(options, name) for name in PROPERTIES if getattr(options, name) is not None}
        self._encoder = Encoder(self._columns, defaults, body_max)
        self._is_spread = not self._columns.isdisjoint(("exchange", "routing_key", "delay_ms"))

    def split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[RowBatch]:
        """Split all batches.

        Raises:
            InvalidRequest: a value cannot be published.
            ContentTooLarge: a message is over the limit.
        """
        for whole in gathered(batches) if self._is_spread else batches:
            for batch in _pieces(whole):
                yield from self._cut(batch)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[RowBatch]:
        records = self._encoder.records(batch)
        targets = [self._exchanges(batch), self._routing_keys(batch), self._flags(batch), self._delays(batch)]
        varying = [target for target in targets if isinstance(target, pa.Array)]
        if not varying:
            packed = _Records(records)
            yield from packed.split(0, len(records), *targets)
            return
        groups = _groups(varying)
        order = pc.array_sort_indices(groups)  # a stable sort keeps the order of a group's rows
        packed = _Records(records.take(order))
        # Groups are numbered by first appearance, and counted in that order.
        counts = pc.struct_field(pc.value_counts(groups), 1)
        ends = pc.cumulative_sum(counts)
        rows = order.take(pc.subtract(ends, counts))
        columns = [
            target.take(rows).to_pylist() if isinstance(target, pa.Array) else repeat(target, len(rows))
            for target in targets
        ]
        start = 0
        for end, *target in zip(ends.to_pylist(), *columns, strict=True):
            yield from packed.split(start, end, *target)
            start = end

    def _exchanges(self, batch: pa.RecordBatch) -> Any:
        default = self._options.exchange
        if "exchange" not in self._columns:
            return default or ""
        column = batch.column("exchange")
        if column.null_count and default is None:
            raise InvalidRequest(
                f"column exchange is null in {column.null_count} of {batch.num_rows} rows of a batch, "
                "and there is no option exchange for them"
            )
        return _names(column, "exchange", default or "")

    def _routing_keys(self, batch: pa.RecordBatch) -> Any:
        default = self._options.routing_key or ""
        if "routing_key" not in self._columns:
            return default
        return _names(batch.column("routing_key"), "routing_key", default)

    def _flags(self, batch: pa.RecordBatch) -> Any:
        transient = self._encoder.is_transient(batch)
        if isinstance(transient, bool):
            return 0 if transient else PERSISTENT
        return pc.if_else(transient, integer(0), integer(PERSISTENT))

    def _delays(self, batch: pa.RecordBatch) -> Any:
        if "delay_ms" not in self._columns:
            return self._options.delay_ms
        return pc.fill_null(numbers(batch, "delay_ms"), integer(self._options.delay_ms))


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches to fewer, larger ones of up to GATHERED_BYTES."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > GATHERED_BYTES:
            yield _one(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield _one(held)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces of about GATHERED_BYTES: Spark's may have 64 MB, and splitting copies it two or three times."""
    rows = max(1, batch.num_rows * GATHERED_BYTES // max(batch.nbytes, GATHERED_BYTES))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _names(column: pa.Array, what: str, default: str) -> pa.Array:
    over = pc.sum(pc.greater(pc.binary_length(column), integer(NAME_BYTES_MAX))).as_py()
    if over:
        raise InvalidRequest(f"column {what} is over {NAME_BYTES_MAX} bytes in {over} rows of a batch; shorten it")
    return pc.fill_null(column, text(default, column.type)) if column.null_count else column


def _groups(targets: list[pa.Array]) -> pa.Array:
    """A group number for each row, the same for rows of one target, counted by first appearance."""
    groups: pa.Array = targets[0].dictionary_encode().indices
    for target in targets[1:]:
        other = target.dictionary_encode()
        both = pc.add(pc.multiply(pc.cast(groups, pa.int64()), integer(len(other.dictionary))), other.indices)
        groups = both.dictionary_encode().indices
    return groups


class _Records:
    """Records back to back in memory; row batches are views of it."""

    def __init__(self, records: pa.Array) -> None:
        _, offsets, data = records.buffers()
        # Row i is at [offsets[i], offsets[i + 1]).
        self._offsets = memoryview(offsets).cast("i")[records.offset :]
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def split(
        self, start: int, end: int, exchange: str, routing_key: str, flags: int, delay_ms: int
    ) -> Iterator[RowBatch]:
        """Split rows [start, end), which have one target."""
        offsets = self._offsets
        while start < end:
            stop = min(end, start + RECORD_BATCH_RECORDS_MAX)
            begin = offsets[start]
            if offsets[stop] - begin > BATCH_BYTES:
                stop = max(bisect_right(offsets, begin + BATCH_BYTES, start + 1, stop) - 1, start + 1)
            yield RowBatch(exchange, routing_key, flags, delay_ms, stop - start, self._data[begin : offsets[stop]])
            start = stop
