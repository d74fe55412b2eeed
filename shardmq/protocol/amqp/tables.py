"""Field tables: names with typed values, as AMQP 0-9-1 has them with RabbitMQ's types, and Python's values for them.

    table       size u32, then entries: name (length u8, bytes), value
    value       type, one letter, then what that says:
                t bool · b B i8 u8 · s u i16 u16 · I i i32 u32 · l L i64 · f d float double · D decimal (scale u8, i32)
                S string (u32, bytes) · x bytes (u32) · A array (size u32, values) · T seconds u64 · F table · V nothing

(https://www.rabbitmq.com/amqp-0-9-1-errata#section_3, and `rabbit_binary_parser`, which reads these letters and no
others; the specification's own were never what brokers speak.) A decimal's digits are signed, as clients write them.

    read                               written
    t                     bool         bool                           t
    b B s u I i l L       int          int                            I, l, past 64 bits the digits as S
    f d                   float        float                          d
    D                     Decimal      Decimal                        D; S where scale or digits do not fit
    S                     str; bytes where it is not UTF-8            S
    x                     bytes        bytes, other msgpack types     x
    A                     list         list                           A
    F                     dict         dict                           F
    T                     datetime, in UTC; int past year 9999        T, whole seconds; S (ISO 8601) before 1970
    V                     None         None                           V

A name that comes twice counts where it comes first, as in RabbitMQ's lookups. Names that are not UTF-8 have such bytes
escaped (`\\xff`). A name that takes over 255 bytes is left out where a table is written, with its value: shortened, it
would be another one. So is what nests too deep: it is written as V.
"""

import datetime
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from msgspec.msgpack import Ext

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp.errors import AmqpError

Table = dict[str, Any]

TABLE_DEPTH_MAX: Final = 64
"""How deep tables and arrays may nest in one another: past anything that is sent, and far from Python's own limit."""

NAME_BYTES_MAX: Final = 255
"""A field's name is a short string."""

LARGE_BYTES: Final = 1024
"""Longer tables are checked many entries at a time, by a regular expression: 25 ns an entry instead of 250. It knows
names and strings of up to SHORT_BYTES_MAX bytes, and what has nothing in it; what else there is goes one by one."""

SHORT_BYTES_MAX: Final = 24

NAMES_KEPT: Final = 1024
"""Names whose bytes are remembered."""


def decode_table(payload: bytes, at: int) -> tuple[Table, int]:
    """The table at an offset, and where it ends.

    Raises:
        AmqpFault: 502, it is none.
    """
    try:
        end = _end(payload, at)
        return _entries(payload, at + 4, end, 0), end
    except (IndexError, struct.error):
        raise _cut_off() from None


def decode_value(payload: bytes, at: int) -> tuple[Any, int]:
    """The value at an offset, its letter first, and where it ends.

    Raises:
        AmqpFault: 502, it is none.
    """
    try:
        return _value(payload, at, 0)
    except (IndexError, struct.error):
        raise _cut_off() from None


def check_table(payload: bytes, at: int) -> int:
    """Where the table at an offset ends. All of it is looked at, and nothing decoded.

    Raises:
        AmqpFault: 502, it is none.
    """
    try:
        return _check(payload, at, 0, has_names=True)
    except (IndexError, struct.error):
        raise _cut_off() from None


def entries_of(payload: bytes, at: int, *, has_names: bool = True) -> list[tuple[bytes, int, int, int]]:
    """The entries of a table that was checked: name, where the entry begins, where its value does, where both end.

    Args:
        payload: with the table.
        at: its offset, that of its size.
        has_names: False for an array, whose values have none.
    """
    end = _end(payload, at)
    at += 4
    entries = []
    while at < end:
        start = at + 1 + payload[at] if has_names else at
        stop = _past(payload, start, 0)
        entries.append((payload[at + 1 : start], at, start, stop))
        at = stop
    return entries


def encode_table(table: Table) -> bytes:
    """A table, its size first."""
    return _encode_dict(table, 0)[1:]


def encode_value(value: Any) -> bytes:
    """A value, its letter first."""
    return _encode(value, 0)


def encode_entry(name: str, value: bytes) -> bytes:
    """A table's entry, the value encoded already; nothing where the name is too long for one."""
    encoded = _name(name)
    return encoded + value if encoded is not None else b""


def wrapped(letter: bytes, content: bytes) -> bytes:
    """A string, an array or a table of what is in it."""
    return letter + _SIZE.pack(len(content)) + content


# --- checking ---------------------------------------------------------------------------------------------------------


def _check(payload: bytes, at: int, depth: int, *, has_names: bool) -> int:
    end: int = at + 4 + _read_size(payload, at)[0]
    at += 4
    many = _ENTRIES if has_names else _VALUES
    while at < end:
        if end - at > LARGE_BYTES and depth < TABLE_DEPTH_MAX:
            found = many.match(payload, at, end)
            if found is not None:
                at = found.end()
                continue
        if has_names:
            at += payload[at] + 1
        kind = payload[at]
        size = _SIZES[kind]
        if size > 0:
            at += size
        elif size == _SAYS_ITSELF:
            at += 5 + _read_size(payload, at + 1)[0]
        else:
            at = _past(payload, at, depth)
    if at != end or end > len(payload):
        raise _cut_off()
    return end


def _past(payload: bytes, at: int, depth: int) -> int:
    """Where the value at an offset ends."""
    kind = payload[at]
    size = _SIZES[kind]
    if size > 0:
        return at + size
    if size == _SAYS_ITSELF:
        return _end(payload, at + 1)
    if kind not in _NESTS:
        raise _unknown(kind)
    if depth >= TABLE_DEPTH_MAX:
        raise _too_deep()
    return _check(payload, at + 1, depth + 1, has_names=kind == _TABLE)


# --- reading ----------------------------------------------------------------------------------------------------------


def _entries(payload: bytes, at: int, end: int, depth: int) -> Table:
    table: Table = {}
    while at < end:
        start = at + 1 + payload[at]
        name = payload[at + 1 : start].decode("utf-8", "backslashreplace")
        fixed = _FIXED.get(payload[start])
        if fixed is not None:
            value = fixed.unpack_from(payload, start + 1)[0]
            at = start + 1 + fixed.size
        else:
            value, at = _value(payload, start, depth)
        if name not in table:
            table[name] = value
    if at != end:
        raise _cut_off()
    return table


def _values(payload: bytes, at: int, end: int, depth: int) -> list[Any]:
    values = []
    while at < end:
        value, at = _value(payload, at, depth)
        values.append(value)
    if at != end:
        raise _cut_off()
    return values


def _value(payload: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = payload[at]
    at += 1
    if kind == _STRING:
        end = at + 4 + _read_size(payload, at)[0]
        return _text(payload[at + 4 : end]), end
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return fixed.unpack_from(payload, at)[0], at + fixed.size
    if kind == _BYTES:
        end = _end(payload, at)
        return payload[at + 4 : end], end
    if kind in _NESTS:
        if depth >= TABLE_DEPTH_MAX:
            raise _too_deep()
        end = _end(payload, at)
        return (_entries if kind == _TABLE else _values)(payload, at + 4, end, depth + 1), end
    if kind == _TIMESTAMP:
        return _time(_SECONDS.unpack_from(payload, at)[0]), at + 8
    if kind == _DECIMAL:
        scale, digits = _SCALED.unpack_from(payload, at)
        return Decimal(digits).scaleb(-scale), at + 5
    if kind == _VOID:
        return None, at
    raise _unknown(kind)


def _end(payload: bytes, at: int) -> int:
    end: int = at + 4 + _read_size(payload, at)[0]
    if end > len(payload):
        raise IndexError(end)
    return end


def _text(data: bytes) -> str | bytes:
    """Strings may hold anything in AMQP; those that are no UTF-8 are bytes in Python."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _time(seconds: int) -> datetime.datetime | int:
    """Milliseconds where seconds belong are past Python's last year; they stay the number that they are."""
    if seconds > _SECONDS_MAX:
        return seconds
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _cut_off() -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, "a field table ends in the middle of a value")


def _too_deep() -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"a field table nests deeper than {TABLE_DEPTH_MAX} levels")


def _unknown(kind: int) -> AmqpError:
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"a field table has a value of the unknown type {chr(kind)!r}")


# --- writing ----------------------------------------------------------------------------------------------------------


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
    """Of a class that is derived from one of ours; or of none, then it is its text."""
    for base in type(value).__mro__[:-1]:
        encoder = _ENCODERS.get(base)
        if encoder is not None:
            return encoder(value)
    return _encode_str(str(value))


def _key(key: Any) -> str:
    """The name of an entry whose key is none: inner maps of native clients have keys of any type."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def _encode_int(value: int) -> bytes:
    if -0x80000000 <= value < 0x80000000:
        return _INT.pack(_INT_LETTER, value)
    if -(2**63) <= value < 2**63:
        return encode_long(value)
    return _encode_str(str(value))  # AMQP has no wider number


def encode_long(value: int) -> bytes:
    """An integer as `l`, however small: what RabbitMQ's clients cast to a long."""
    return _LONG.pack(_LONG_LETTER, value)


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


_SIZE: Final = struct.Struct(">I")
_read_size: Final = _SIZE.unpack_from
_SECONDS: Final = struct.Struct(">Q")
_SCALED: Final = struct.Struct(">Bi")
_INT: Final = struct.Struct(">Bi")
_LONG: Final = struct.Struct(">Bq")
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND: Final = datetime.timedelta(seconds=1)
_SECONDS_MAX: Final = 253_402_300_799
_DECIMAL_DIGITS_MAX: Final = 10
_FIXED: Final = {
    ord(letter): struct.Struct(layout)
    for letter, layout in {
        "t": ">?",
        "b": ">b",
        "B": ">B",
        "s": ">h",
        "u": ">H",
        "I": ">i",
        "i": ">I",
        "l": ">q",
        "L": ">q",
        "f": ">f",
        "d": ">d",
    }.items()
}
_INT_LETTER, _LONG_LETTER, _STRING, _BYTES, _TABLE, _ARRAY, _TIMESTAMP, _DECIMAL, _VOID = map(ord, "IlSxFATDV")
_NESTS: Final = frozenset((_TABLE, _ARRAY))
_SAYS_ITSELF: Final = 0
_SIZES: Final = tuple(
    {
        _STRING: _SAYS_ITSELF,
        _BYTES: _SAYS_ITSELF,
        _TIMESTAMP: 9,
        _DECIMAL: 6,
        _VOID: 1,
        **{kind: 1 + fixed.size for kind, fixed in _FIXED.items()},
    }.get(kind, -1)
    for kind in range(256)
)
"""Bytes of a value with its letter, by letter; negative where values are in it, or there is no such letter."""

_SHORT: Final = b"(?:%b)" % b"|".join(
    [b"\\x%02x%b" % (size, b".{%d}" % size if size else b"") for size in range(SHORT_BYTES_MAX + 1)]
)
_VALUE: Final = b"(?:V|[tbB].|[su].{2}|[Iif].{4}|[lLdT].{8}|D.{5}|[FA]\\x00{4}|[Sx]\\x00{3}%b)" % _SHORT
_VALUES: Final = re.compile(b"(?:%b){1,256}+" % _VALUE, re.DOTALL)
_ENTRIES: Final = re.compile(b"(?:%b%b){1,256}+" % (_SHORT, _VALUE), re.DOTALL)
"""Neighbouring values, and entries, of the most frequent kinds."""

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
