"""Field tables looked through without decoding: whether they are right, and where their entries are."""

import re
import struct
from typing import Final

from shardmq.protocol.amqp.field_types import (
    BYTES,
    DECIMAL,
    FIXED,
    NESTING,
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

LARGE_BYTES: Final = 1024
"""Longer tables are checked many entries at a time, by a regular expression: 25 ns an entry instead of 250. It knows
names and strings of up to SHORT_BYTES_MAX bytes, and values without others inside. All else goes one by one."""

SHORT_BYTES_MAX: Final = 24

_VARIES: Final = 0
_SIZES: Final = tuple(
    {
        STRING: _VARIES,
        BYTES: _VARIES,
        TIMESTAMP: 9,
        DECIMAL: 6,
        VOID: 1,
        **{kind: 1 + fixed.size for kind, fixed in FIXED.items()},
    }.get(kind, -1)
    for kind in range(256)
)
"""Bytes of a value with its letter, by letter; negative for types with values inside, and for unknown ones."""

_SHORT: Final = b"(?:%b)" % b"|".join(
    [b"\\x%02x%b" % (size, b".{%d}" % size if size else b"") for size in range(SHORT_BYTES_MAX + 1)]
)
_VALUE: Final = b"(?:V|[tbB].|[su].{2}|[Iif].{4}|[lLdT].{8}|D.{5}|[FA]\\x00{4}|[Sx]\\x00{3}%b)" % _SHORT
_VALUES: Final = re.compile(b"(?:%b){1,256}" % _VALUE, re.DOTALL)
_ENTRIES: Final = re.compile(b"(?:%b%b){1,256}" % (_SHORT, _VALUE), re.DOTALL)
"""Neighbouring entries, and values, of the most frequent types. Not possessive: Python 3.11.2 then finds wrong ends."""


def check_table(payload: bytes, at: int) -> int:
    """Check the table at an offset without decoding it; returns where it ends.

    Raises:
        AmqpError: it is no table (502).
    """
    try:
        return _check(payload, at, 0, has_names=True)
    except (IndexError, struct.error):
        raise cut_off() from None


def entries_of(payload: bytes, at: int, *, has_names: bool = True) -> list[tuple[bytes, int, int, int]]:
    """The entries of a table that was checked before.

    Args:
        payload: what the table is in.
        at: offset of the table, which is that of its size.
        has_names: False for an array, whose values have no names.

    Returns:
        For each entry its name, and three offsets: where it begins, where its value begins, where both end.
    """
    end = end_of(payload, at)
    at += 4
    entries = []
    while at < end:
        start = at + 1 + payload[at] if has_names else at
        stop = _past(payload, start, 0)
        entries.append((payload[at + 1 : start], at, start, stop))
        at = stop
    return entries


def _check(payload: bytes, at: int, depth: int, *, has_names: bool) -> int:
    end: int = at + 4 + read_size(payload, at)[0]
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
        elif size == _VARIES:
            at += 5 + read_size(payload, at + 1)[0]
        else:
            at = _past(payload, at, depth)
    if at != end or end > len(payload):
        raise cut_off()
    return end


def _past(payload: bytes, at: int, depth: int) -> int:
    """Where the value at an offset ends."""
    kind = payload[at]
    size = _SIZES[kind]
    if size > 0:
        return at + size
    if size == _VARIES:
        return end_of(payload, at + 1)
    if kind not in NESTING:
        raise unknown_type(kind)
    if depth >= TABLE_DEPTH_MAX:
        raise too_deep()
    return _check(payload, at + 1, depth + 1, has_names=kind == TABLE)
