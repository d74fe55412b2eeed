"""Columns to records, without a step for each row: Arrow joins the parts of all rows at once.

A record is msgpack `[properties | nil, body]`. Each of its parts is a header that depends on a length, and bytes that
are in a column already:

    92 │ 83 │ ac content_type a8 │ text/csv │ a8 priority │ 05 │ … │ c4 64 │ 100 bytes of value
       └ one for each number of properties that are set    └ from tables with an entry for each distinct length

Where a column is null, both its pieces are null, and the join leaves them out. 10,000 rows of 100 bytes take 0.4 ms.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.limits import DELAY_MS_MAX, MESSAGE_BYTES_MAX, frame_bytes_max
from shardmq.spark.write.literals import binaries, binary, boolean, booleans, integer, null

PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
)
"""A message's properties, in the order in which `shardmq.message.record` packs them."""

RANGES: Final = {
    "delivery_mode": (1, 2),
    "priority": (0, 255),
    "timestamp": (0, 2**63 - 1),
    "delay_ms": (0, DELAY_MS_MAX),
}
"""Least and greatest values of number columns."""

_FRAME_BYTES: Final = 4096
"""Bytes of a frame besides its records at most: names and numbers."""

_RECORD: Final = b"\x92"
_NIL: Final = b"\xc0"
_TRANSIENT: Final = msgpack.packb("delivery_mode") + b"\x01"

Piece: TypeAlias = "bytes | pa.Array"
"""A part of every record: the same in all of them, or a column that is null where the part is left out."""


class Encoder:
    """Encodes Arrow batches with the same columns as records.

    Args:
        columns: names of the batches' columns, checked by `shardmq.spark.write.rows.check_columns`.
        defaults: properties by name, for rows where a column is null or missing.
        body_max: the largest body of a message that the broker takes.
    """

    def __init__(self, columns: frozenset[str], defaults: Mapping[str, Any], body_max: int = MESSAGE_BYTES_MAX) -> None:
        self._body_max = body_max
        self._columns = [name for name in PROPERTIES if name in columns]
        self._is_raw = "raw_properties" in columns
        self._defaults = {name: packed(name) + packed(value) for name, value in defaults.items()}

    def records(self, batch: pa.RecordBatch) -> pa.Array:
        """Encode the rows of a batch, in their order.

        Raises:
            InvalidRequest: a value is null, or not one that the property can have.
            ContentTooLarge: a message is over the limit.
        """
        body = _bytes(batch.column("value"))
        if body.null_count:
            raise InvalidRequest(f"column value is null in {_of(body.null_count, batch)}; a message needs a body")
        longest = pc.max(pc.binary_length(body)).as_py() or 0
        if longest > self._body_max:
            over = pc.sum(pc.greater(pc.binary_length(body), integer(self._body_max))).as_py()
            raise ContentTooLarge(
                f"{_of(over, batch)} are over the limit of {self._body_max} bytes a message: column "
                f"value has {longest} bytes in the largest"
            )
        if self._is_raw:
            raw = _bytes(batch.column("raw_properties"))
            properties: list[Piece] = [_RECORD, pc.fill_null(raw, binary(_NIL))]
        else:
            properties = self._properties(batch)
        made = _join([*properties, *_sized(body, body_header)])
        longest, most = pc.max(pc.binary_length(made)).as_py() or 0, frame_bytes_max(self._body_max) - _FRAME_BYTES
        if longest > most:  # it would not fit into a frame; what fits, the broker checks
            raise ContentTooLarge(
                f"column value and its properties have {longest} bytes in the largest of a batch; the limit is {most}"
            )
        return made

    def is_transient(self, batch: pa.RecordBatch) -> pa.Array | bool:
        """Which rows have delivery mode 1 and so are not persistent; one answer where all rows are alike."""
        if self._is_raw:
            raw = _bytes(batch.column("raw_properties"))
            # The bytes may also be text in a header, so rows that contain them are decoded.
            maybe = pc.fill_null(pc.match_substring(raw, _TRANSIENT), boolean(False))
            if not pc.any(maybe).as_py():
                return False
            said = [
                bool(may) and _is_transient(text) for may, text in zip(maybe.to_pylist(), raw.to_pylist(), strict=True)
            ]
            return booleans(said)
        default = self._defaults.get("delivery_mode", b"").endswith(b"\x01")
        if "delivery_mode" not in self._columns:
            return default
        return pc.fill_null(pc.equal(batch.column("delivery_mode"), integer(1)), boolean(default))

    def _properties(self, batch: pa.RecordBatch) -> list[Piece]:
        """The pieces of the record's header, the header of its map of properties, and the map's entries."""
        pieces: list[Piece] = []
        count = 0
        optional: list[pa.Array] = []
        for name in PROPERTIES:
            default = self._defaults.get(name)
            column = batch.column(name) if name in self._columns else None
            if column is None or column.null_count == len(column):
                if default is not None:
                    pieces.append(default)
                    count += 1
                continue
            pieces += _property(name, numbers(batch, name) if name in RANGES else column, default)
            if default is not None or not column.null_count:
                count += 1
            else:
                optional.append(pc.cast(pc.is_valid(column), pa.int8()))
        if not optional:
            return [_RECORD + (bytes((0x80 | count,)) if count else _NIL), *pieces]
        counts = optional[0]
        for other in optional[1:]:
            counts = pc.add(counts, other)
        headers = [_RECORD + (bytes((0x80 | number,)) if number else _NIL) for number in range(len(PROPERTIES) + 1)]
        return [binaries(headers).take(pc.add(counts, integer(count, pa.int8()))), *pieces]


def numbers(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column of whole numbers, checked; timestamps become seconds.

    Args:
        batch: the batch.
        name: the column's name, a key of RANGES.

    Raises:
        InvalidRequest: a number is out of range.
    """
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = pc.divide(pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64()), integer(1_000_000))
    column = pc.cast(column, pa.int64())
    least, most = RANGES[name]
    wrong = pc.sum(pc.or_(pc.less(column, integer(least)), pc.greater(column, integer(most)))).as_py()
    if wrong:
        raise InvalidRequest(f"column {name} is not {least} to {most} in {_of(wrong, batch)}; set it right or to null")
    return column


def packed(value: object) -> bytes:
    """Pack a value with msgpack."""
    made: bytes = msgpack.packb(value)
    return made


def body_header(size: int) -> bytes:
    """The msgpack header of a body of so many bytes."""
    if size < 1 << 8:
        return bytes((0xC4, size))
    return b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xc6" + size.to_bytes(4, "big")


def _text_header(size: int) -> bytes:
    if size < 32:
        return bytes((0xA0 | size,))
    if size < 1 << 8:
        return bytes((0xD9, size))
    return b"\xda" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xdb" + size.to_bytes(4, "big")


def _map_header(count: int) -> bytes:
    if count < 16:
        return bytes((0x80 | count,))
    return b"\xde" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdf" + count.to_bytes(4, "big")


def _property(name: str, column: pa.Array, default: bytes | None) -> list[Piece]:
    """The pieces of one property, its name included; of the default where the column is null."""
    key = packed(name)
    if name == "headers":
        first, *rest = _headers(column, key)
    elif name == "timestamp":
        first, *rest = _seconds(column, key)
    elif name in RANGES:
        first, rest = _looked_up(column, lambda number: key + packed(number)), []
    else:
        first, *rest = _sized(_bytes(column), lambda size: key + _text_header(size))
    if default is not None and column.null_count:
        first = pc.fill_null(first, binary(default))
    return [first, *rest]


def _looked_up(column: pa.Array, piece_of: Callable[[Any], bytes], of_null: bytes | None = None) -> Piece:
    """A piece for each value, made once for each distinct value."""
    distinct = pc.unique(column)
    pieces = [of_null if value is None else piece_of(value) for value in distinct.to_pylist()]
    if len(pieces) == 1 and pieces[0] is not None:
        return pieces[0]
    taken: Piece = binaries(pieces).take(pc.index_in(column, distinct))
    return taken


def _sized(column: pa.Array, header: Callable[[int], bytes], of_null: bytes | None = None) -> list[Piece]:
    """Bytes behind a header with their length."""
    return [_looked_up(pc.binary_length(column), header, of_null), column]


def _seconds(seconds: pa.Array, key: bytes) -> list[Piece]:
    """Pieces of a time. Times differ from row to row, so their bytes come from a table, two at a time."""
    largest = pc.max(seconds).as_py()
    shifts, code = ((16, 0), b"\xce") if largest < 1 << 32 else ((48, 32, 16, 0), b"\xcf")
    halves: list[Piece] = [
        _two_bytes().take(
            pc.cast(pc.bit_wise_and(pc.shift_right(seconds, integer(shift)), integer(0xFFFF)), pa.int32())
        )
        for shift in shifts
    ]
    front: Piece = key + code
    if seconds.null_count:
        front = pc.if_else(pc.is_valid(seconds), binary(key + code), null(pa.binary()))
    return [front, *halves]


@cache
def _two_bytes() -> pa.Array:
    """Every number of 16 bits as two bytes."""
    whole = b"".join(number.to_bytes(2, "big") for number in range(1 << 16))
    return pc.cast(pa.Array.from_buffers(pa.binary(2), 1 << 16, [None, pa.py_buffer(whole)]), pa.binary())


def _headers(column: pa.Array, key: bytes) -> list[Piece]:
    """Pieces of a headers map, from a map<string,…> or Kafka's array<struct<key,value>>: the last of a key counts."""
    offsets = column.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    if pa.types.is_map(column.type):
        names, values = column.keys.slice(start, end - start), column.items.slice(start, end - start)
    else:
        entries = column.values.slice(start, end - start)
        if entries.null_count:
            raise InvalidRequest(f"column headers has null in place of {entries.null_count} headers; leave them out")
        names, values = entries.field(0), entries.field(1)
    if names.null_count:
        raise InvalidRequest(f"column headers has null in place of {names.null_count} names; leave such headers out")
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    pairs = _join(
        [
            *_sized(_bytes(names), _text_header),
            *_sized(_bytes(values), _text_header if is_text else body_header, of_null=_NIL),
        ]
    )
    offsets = pc.cast(pc.subtract(offsets, integer(start)), pa.int32())
    tables = pc.binary_join(pa.ListArray.from_arrays(offsets, pairs), binary(b""))
    counts = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    if column.null_count:
        is_there = pc.is_valid(column)
        tables = pc.if_else(is_there, tables, null(pa.binary()))
        counts = pc.if_else(is_there, counts, null(pa.int32()))
    return [_looked_up(counts, lambda count: key + _map_header(count)), tables]


def _bytes(column: pa.Array) -> pa.Array:
    """A column of texts, bytes or whole numbers as bytes."""
    if pa.types.is_integer(column.type):
        column = pc.cast(column, pa.string())
    return pc.cast(column, pa.binary())


def _join(pieces: list[Piece]) -> pa.Array:
    """Join the pieces that are not null, row by row. Constant neighbours are joined before."""
    parts: list[Any] = []
    for piece in pieces:
        if isinstance(piece, bytes) and parts and isinstance(parts[-1], bytes):
            parts[-1] += piece
        else:
            parts.append(piece)
    parts = [binary(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*parts, binary(b""), null_handling="skip")


def _of(count: int, batch: pa.RecordBatch) -> str:
    return f"{count} of {batch.num_rows} rows of a batch"


def _is_transient(properties: bytes) -> bool:
    try:
        table = msgpack.unpackb(properties)
    except (ValueError, msgpack.UnpackException) as fault:
        raise InvalidRequest(
            f"column raw_properties has bytes that are no msgpack map ({fault}); write what a queue has in the "
            "column of that name"
        ) from fault
    return isinstance(table, dict) and table.get("delivery_mode") == 1
