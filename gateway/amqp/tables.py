"""Field tables: names with typed values, as AMQP 0-9-1 has them with RabbitMQ's types, and Python's values for them.

    table       size u32, then entries: name (length u8, bytes), value
    value       type, one letter, then what that says:
                t bool · b B i8 u8 · s u i16 u16 · I i i32 u32 · l i64 · f d float double · D decimal (scale u8, i32)
                S string (u32, bytes) · x bytes (u32) · A array (size u32, values) · T seconds u64 · F table · V nothing

(https://www.rabbitmq.com/amqp-0-9-1-errata#section_3; the specification's own letters were never what brokers speak.)
"""

import datetime
import struct
from decimal import Decimal
from typing import Any, Final

from shardmq.errors import ReplyCode
from shardmq.gateway.amqp.faults import AmqpFault
from shardmq.model import ARGUMENTS_DEPTH_MAX

Table = dict[str, Any]

TABLE_DEPTH_MAX: Final = ARGUMENTS_DEPTH_MAX
"""How deep tables and arrays may nest in one another."""


def decode_table(payload: bytes, at: int, depth: int = 0) -> tuple[Table, int]:
    """The table at an offset, and where it ends.

    Raises:
        AmqpFault: 502, it is none.
        IndexError, struct.error: the payload ends before it does.
    """
    end = _end(payload, at)
    at += 4
    table: Table = {}
    while at < end:
        stop = at + 1 + payload[at]
        name = payload[at + 1 : stop].decode()
        table[name], at = decode_value(payload, stop, depth)
    if at != end:
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "a field table ends in the middle of an entry")
    return table, end


def decode_value(payload: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """The value at an offset, its letter first, and where it ends.

    Raises:
        AmqpFault: 502, it is none, or nests too deep.
        IndexError, struct.error: the payload ends before it does.
    """
    kind = payload[at]
    at += 1
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(payload, at)[0], at + fixed.size
    if kind in _STRINGS:
        end = _end(payload, at)
        data = payload[at + 4 : end]
        return (data if kind == _BYTES else _text(data)), end
    if kind in (_TABLE, _ARRAY):
        if depth >= TABLE_DEPTH_MAX:
            raise AmqpFault(ReplyCode.SYNTAX_ERROR, f"a field table nests deeper than {TABLE_DEPTH_MAX} levels")
        return (decode_table if kind == _TABLE else _decode_array)(payload, at, depth + 1)
    if kind == _TIMESTAMP:
        return _time(struct.unpack_from(">Q", payload, at)[0]), at + 8
    if kind == _DECIMAL:
        scale, digits = struct.unpack_from(">Bi", payload, at)
        return Decimal(digits).scaleb(-scale), at + 5
    if kind == _VOID:
        return None, at
    raise AmqpFault(ReplyCode.SYNTAX_ERROR, f"a field table has a value of the unknown type {chr(kind)!r}")


def encode_table(table: Table) -> bytes:
    """A table, its size first."""
    entries = b"".join([_name(name) + encode_value(value) for name, value in table.items()])
    return _SIZE.pack(len(entries)) + entries


def encode_value(value: Any) -> bytes:
    """A value, its letter first."""
    encoded: bytes = _ENCODERS[type(value)](value)
    return encoded


def _decode_array(payload: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    end = _end(payload, at)
    at += 4
    array = []
    while at < end:
        value, at = decode_value(payload, at, depth)
        array.append(value)
    if at != end:
        raise AmqpFault(ReplyCode.SYNTAX_ERROR, "a field array ends in the middle of a value")
    return array, end


def _end(payload: bytes, at: int) -> int:
    end: int = at + 4 + _SIZE.unpack_from(payload, at)[0]
    if end > len(payload):
        raise IndexError(end)
    return end


def _text(data: bytes) -> str | bytes:
    """Strings may hold anything in AMQP; those that are no UTF-8 are bytes in Python."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _time(seconds: int) -> datetime.datetime:
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise AmqpFault(
            ReplyCode.SYNTAX_ERROR, f"a field table has a timestamp of {seconds} s, past year 9999"
        ) from None


def _name(name: str) -> bytes:
    data = name.encode()
    if len(data) > 255:
        raise ValueError(f"a field name of {len(data)} bytes")
    return bytes((len(data),)) + data


def _encode_int(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"I" + struct.pack(">i", value)
    if -(2**63) <= value < 2**63:
        return b"l" + struct.pack(">q", value)
    return _encode_str(str(value))  # AMQP has no wider number


def _encode_str(value: str) -> bytes:
    data = value.encode()
    return b"S" + _SIZE.pack(len(data)) + data


def _encode_decimal(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent > 0 or exponent < -255:
        return _encode_str(str(value))
    number = int(value.scaleb(-exponent))
    if not -(2**31) <= number < 2**31:
        return _encode_str(str(value))
    return b"D" + struct.pack(">Bi", -exponent, number)


def _encode_array(value: list[Any]) -> bytes:
    values = b"".join(map(encode_value, value))
    return b"A" + _SIZE.pack(len(values)) + values


_SIZE: Final = struct.Struct(">I")
_FIXED: Final = {
    ord(letter): struct.Struct(layout)
    for letter, layout in {
        "t": ">?", "b": ">b", "B": ">B", "s": ">h", "U": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q",
        "f": ">f", "d": ">d",
    }.items()
}  # fmt: skip
_BYTES, _TABLE, _ARRAY, _TIMESTAMP, _DECIMAL, _VOID = map(ord, "xFATDV")
_STRINGS: Final = frozenset(map(ord, "Sx"))
_ENCODERS: Final[dict[type, Any]] = {
    bool: lambda value: b"t\x01" if value else b"t\x00",
    int: _encode_int,
    float: lambda value: b"d" + struct.pack(">d", value),
    str: _encode_str,
    bytes: lambda value: b"x" + _SIZE.pack(len(value)) + value,
    list: _encode_array,
    dict: lambda value: b"F" + encode_table(value),
    datetime.datetime: lambda value: b"T" + struct.pack(">Q", max(0, int(value.timestamp()))),
    Decimal: _encode_decimal,
    type(None): lambda _: b"V",
}
