r"""Field tables and their value types.

    table       size u32, then entries: name (length u8, bytes), value
    value       type, one letter, then what that says:
                t bool · b B i8 u8 · s u i16 u16 · I i i32 u32 · l L i64 · f d float double · D decimal (scale u8, i32)
                S string (u32, bytes) · x bytes (u32) · A array (size u32, values) · T seconds u64 · F table · V nothing

The letters are those that RabbitMQ reads (https://www.rabbitmq.com/amqp-0-9-1-errata#section_3 and its module
`rabbit_binary_parser`); no broker speaks those of the specification. The digits of a decimal are signed, as clients
write them.

    read                               written
    t                     bool         bool                           t
    b B s u I i l L       int          int                            I, l; S with the digits past 64 bits
    f d                   float        float                          d
    D                     Decimal      Decimal                        D; S where scale or digits do not fit
    S                     str; bytes where it is not UTF-8            S
    x                     bytes        bytes, other msgpack types     x
    A                     list         list                           A
    F                     dict         dict                           F
    T                     datetime, in UTC; int past year 9999        T, whole seconds; S (ISO 8601) before 1970
    V                     None         None                           V

Of entries with the same name the first counts, as in RabbitMQ. Bytes of names that are not UTF-8 are read as escapes
(`\xff`). An entry whose name takes over 255 bytes is not written; with a shortened name it would be another entry.
Tables and arrays that nest deeper than can be read are written as V.
"""

import datetime
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from msgspec.msgpack import Ext

from shardmq.protocol.amqp.field_types import (
    BYTES,
    DECIMAL,
    FIXED,
    NESTING,
    SIZE,
    STRING,
    TABLE,
    TABLE_DEPTH_MAX,
    TIMESTAMP,
    VOID,
    cut_off,
    end_of,
    read_size,
    too_deep,
    unknown_type,
)

Table = dict[str, Any]
"""A field table as Python has it."""

NAME_BYTES_MAX: Final = 255
"""A field's name is a short string."""

NAMES_KEPT: Final = 1024
"""Names whose bytes are remembered."""


def decode_table(payload: bytes, at: int) -> tuple[Table, int]:
    """Decode the table at an offset; returns it, and where it ends.

    Raises:
        AmqpError: it is no table (502).
    """
    try:
        end = end_of(payload, at)
        return _entries(payload, at + 4, end, 0), end
    except (IndexError, struct.error):
        raise cut_off() from None


def decode_value(payload: bytes, at: int) -> tuple[Any, int]:
    """Decode the value whose letter is at an offset; returns it, and where it ends.

    Raises:
        AmqpError: it is no value (502).
    """
    try:
        return _value(payload, at, 0)
    except (IndexError, struct.error):
        raise cut_off() from None


def encode_table(table: Table) -> bytes:
    """A table, its size first."""
    return _encode_dict(table, 0)[1:]


def encode_value(value: Any) -> bytes:
    """A value, its letter first."""
    return _encode(value, 0)


def encode_long(value: int) -> bytes:
    """An integer as `l`, however small, for clients that cast the value to a long."""
    return _LONG.pack(_LONG_LETTER, value)


def encode_entry(name: str, value: bytes) -> bytes:
    """An entry of a table, of a value that is encoded already; nothing where the name is too long."""
    encoded = _name(name)
    return encoded + value if encoded is not None else b""


def wrapped(letter: bytes, content: bytes) -> bytes:
    """A string, an array or a table around its content. Without a letter it begins with its size."""
    return letter + SIZE.pack(len(content)) + content


def _entries(payload: bytes, at: int, end: int, depth: int) -> Table:
    table: Table = {}
    while at < end:
        start = at + 1 + payload[at]
        name = payload[at + 1 : start].decode("utf-8", "backslashreplace")
        fixed = FIXED.get(payload[start])
        if fixed is not None:
            value = fixed.unpack_from(payload, start + 1)[0]
            at = start + 1 + fixed.size
        else:
            value, at = _value(payload, start, depth)
        if name not in table:
            table[name] = value
    if at != end:
        raise cut_off()
    return table


def _values(payload: bytes, at: int, end: int, depth: int) -> list[Any]:
    values = []
    while at < end:
        value, at = _value(payload, at, depth)
        values.append(value)
    if at != end:
        raise cut_off()
    return values


def _value(payload: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = payload[at]
    at += 1
    if kind == STRING:
        end = at + 4 + read_size(payload, at)[0]
        return _text(payload[at + 4 : end]), end
    fixed = FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(payload, at)[0], at + fixed.size
    if kind == BYTES:
        end = end_of(payload, at)
        return payload[at + 4 : end], end
    if kind in NESTING:
        if depth >= TABLE_DEPTH_MAX:
            raise too_deep()
        end = end_of(payload, at)
        return (_entries if kind == TABLE else _values)(payload, at + 4, end, depth + 1), end
    if kind == TIMESTAMP:
        return _time(_SECONDS.unpack_from(payload, at)[0]), at + 8
    if kind == DECIMAL:
        scale, digits = _SCALED.unpack_from(payload, at)
        return Decimal(digits).scaleb(-scale), at + 5
    if kind == VOID:
        return None, at
    raise unknown_type(kind)


def _text(data: bytes) -> str | bytes:
    """A string, which may hold anything in AMQP: bytes where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _time(seconds: int) -> datetime.datetime | int:
    """A time; the number itself past Python's last year, as where a client sent milliseconds."""
    if seconds > _SECONDS_MAX:
        return seconds
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


@lru_cache(NAMES_KEPT)
def _name(name: str) -> bytes | None:
    data = name.encode(errors="backslashreplace")
    return bytes((len(data),)) + data if len(data) <= NAME_BYTES_MAX else None


def _encode(value: Any, depth: int) -> bytes:
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if depth >= TABLE_DEPTH_MAX:
        return b"V" if isinstance(value, dict | list | tuple | set | frozenset) else _encode_other(value)
    if isinstance(value, dict):
        return _encode_dict(value, depth + 1)
    if isinstance(value, list | tuple | set | frozenset):
        return _encode_values(value, depth + 1)
    return _encode_other(value)


def _encode_dict(table: dict[Any, Any], depth: int) -> bytes:
    parts = []
    for key, value in table.items():
        name = _name(key if type(key) is str else _key(key))
        if name is not None:
            parts.append(name)
            parts.append(_encode(value, depth))
    return wrapped(b"F", b"".join(parts))


def _encode_values(values: Iterable[Any], depth: int) -> bytes:
    return wrapped(b"A", b"".join([_encode(value, depth) for value in values]))


def _encode_other(value: Any) -> bytes:
    """A value of a subclass of a known class; the text of any other."""
    for base in type(value).__mro__[:-1]:
        encoder = _ENCODERS.get(base)
        if encoder is not None:
            return encoder(value)
    return _encode_str(str(value))


def _key(key: Any) -> str:
    """A key that is no string as a name: inner maps of native clients have keys of any type."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value < 0x80000000:
        return _INT.pack(_INT_LETTER, value)
    if -(2**63) <= value < 2**63:
        return encode_long(value)
    return _encode_str(str(value))  # AMQP has no wider number


def _encode_str(value: str) -> bytes:
    return wrapped(b"S", value.encode(errors="backslashreplace"))


def _encode_bytes(value: bytes | bytearray | memoryview) -> bytes:
    return wrapped(b"x", bytes(value))


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -255 <= exponent <= 0 or len(digits) > _DECIMAL_DIGITS_MAX:
        return _encode_str(str(value))
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    if not -0x80000000 <= number < 0x80000000 or (sign and not number):  # there is no negative zero
        return _encode_str(str(value))
    return b"D" + _SCALED.pack(-exponent, number)


def _encode_time(value: datetime.datetime) -> bytes:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
    seconds = (moment - _EPOCH) // _SECOND
    return b"T" + _SECONDS.pack(seconds) if seconds >= 0 else _encode_str(value.isoformat())


_SECONDS: Final = struct.Struct(">Q")
_SCALED: Final = struct.Struct(">Bi")
_INT: Final = struct.Struct(">Bi")
_LONG: Final = struct.Struct(">Bq")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = datetime.timedelta(seconds=1)
_SECONDS_MAX: Final = 253_402_300_799
_DECIMAL_DIGITS_MAX: Final = 10
_INT_LETTER, _LONG_LETTER = map(ord, "Il")
_ENCODERS: Final[dict[type, Callable[[Any], bytes]]] = {
    bool: lambda value: b"t\x01" if value else b"t\x00",
    int: _encode_int,
    float: lambda value: b"d" + struct.pack(">d", value),
    str: _encode_str,
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    Ext: lambda value: _encode_bytes(value.data),
    datetime.datetime: _encode_time,
    Decimal: _encode_decimal,
    type(None): lambda _: b"V",
}
