"""The types of values in field tables: their letters, their sizes, and the errors that all who read tables share."""

import struct
from typing import Final

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp.errors import AmqpError

TABLE_DEPTH_MAX: Final = 64
"""How deep tables and arrays may nest in one another: past anything that is sent, and far from Python's own limit."""

STRING, BYTES, TABLE, ARRAY, TIMESTAMP, DECIMAL, VOID = map(ord, "SxFATDV")
"""Types that have no place in `FIXED`."""

NESTING: Final = frozenset((TABLE, ARRAY))
"""Types with values inside."""

FIXED: Final = {
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
"""Types whose values have a fixed size and are numbers to Python, too."""

SIZE: Final = struct.Struct(">I")
"""What strings, arrays and tables begin with: the bytes that follow."""

read_size: Final = SIZE.unpack_from


def end_of(payload: bytes, at: int) -> int:
    """Where the string, array or table ends whose size stands at an offset.

    Raises:
        IndexError: past the end of the payload.
    """
    end: int = at + 4 + read_size(payload, at)[0]
    if end > len(payload):
        raise IndexError(end)
    return end


def cut_off() -> AmqpError:
    """The error for a table whose end is missing."""
    return AmqpError(ReplyCode.SYNTAX_ERROR, "a field table ends in the middle of a value")


def too_deep() -> AmqpError:
    """The error for a table that nests too deep."""
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"a field table nests deeper than {TABLE_DEPTH_MAX} levels")


def unknown_type(letter: int) -> AmqpError:
    """The error for a value of a type that does not exist."""
    return AmqpError(ReplyCode.SYNTAX_ERROR, f"a field table has a value of the unknown type {chr(letter)!r}")
