"""The base of methods, and the domains of their fields.

    octet u8 · short u16 · long u32 · longlong u64 · shortstr (length u8, UTF-8) · longstr (length u32, bytes) · table
    message-count: a long; of more messages than it can say, it says as many as it can

The codec reads and writes bits itself, as neighbours share an octet.
"""

import re
import struct
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_type_hints

import msgspec

from shardmq.protocol.amqp.tables import Table, decode_table, encode_table

Octet = Annotated[int, "octet"]
Short = Annotated[int, "short"]
Long = Annotated[int, "long"]
LongLong = Annotated[int, "longlong"]
ShortStr = Annotated[str, "shortstr"]
LongStr = Annotated[bytes, "longstr"]
Bit = Annotated[bool, "bit"]
Arguments = Annotated[Table, "table"]
MessageCount = Annotated[int, "message-count"]

MESSAGE_COUNT_MAX: Final = 2**32 - 1
"""The most messages that a count can tell of; a stream may have more."""

SHORTSTR_BYTES_MAX: Final = 255
"""The longest short string, in bytes; its length is an octet."""

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Reads a field at an offset; returns it, and where the next begins. Raises IndexError or struct.error past the end."""


def _octet(payload: bytes, at: int) -> tuple[int, int]:
    return payload[at], at + 1


def _number(layout: str) -> Reader:
    reader = struct.Struct(layout)

    def read(payload: bytes, at: int) -> tuple[int, int]:
        return reader.unpack_from(payload, at)[0], at + reader.size

    return read


def _shortstr(payload: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + payload[at]
    if end > len(payload):
        raise IndexError(end)
    return payload[at + 1 : end].decode(), end


def _longstr(payload: bytes, at: int) -> tuple[bytes, int]:
    end = at + 4 + _SIZE.unpack_from(payload, at)[0]
    if end > len(payload):
        raise IndexError(end)
    return payload[at + 4 : end], end


def shortstr_bytes(value: str) -> bytes:
    """A short string's bytes without their length; a text that is too long is cut.

    Reply texts may be so long, and routing keys of stores that were written before keys were checked everywhere.
    """
    data = value.encode(errors="backslashreplace")
    return data if len(data) <= SHORTSTR_BYTES_MAX else data[:SHORTSTR_BYTES_MAX].decode(errors="ignore").encode()


def _encode_shortstr(value: str) -> bytes:
    data = shortstr_bytes(value)
    return bytes((len(data),)) + data


_SIZE: Final = struct.Struct(">I")
READ: Final[dict[str, Reader]] = {
    "octet": _octet,
    "short": _number(">H"),
    "long": _number(">I"),
    "longlong": _number(">Q"),
    "shortstr": _shortstr,
    "longstr": _longstr,
    "table": decode_table,
    "message-count": _number(">I"),
}
WRITE: Final[dict[str, Callable[[Any], bytes]]] = {
    "octet": struct.Struct(">B").pack,
    "short": struct.Struct(">H").pack,
    "long": struct.Struct(">I").pack,
    "longlong": struct.Struct(">Q").pack,
    "shortstr": _encode_shortstr,
    "longstr": lambda value: _SIZE.pack(len(value)) + value,
    "table": encode_table,
    "message-count": lambda value: _SIZE.pack(min(value, MESSAGE_COUNT_MAX)),
}


class Method(msgspec.Struct, frozen=True, gc=False):
    """One method; its subclasses are the rows of the table of methods.

    Attributes:
        id: class and method number.
        name: as in the specification.
        is_synchronous: whether its sender waits for an answer, the method of the same name with "-ok".
        domains: of its fields, in their order.
    """

    id: ClassVar[tuple[int, int]]
    name: ClassVar[str]
    is_synchronous: ClassVar[bool]
    domains: ClassVar[tuple[str, ...]]


Row = TypeVar("Row", bound=Method)


def method(class_id: int, method_id: int, *, synchronous: bool = False) -> Callable[[type[Row]], type[Row]]:
    """Make a class a row of the table of methods. Its name there follows from the class's: BasicGetOk is basic.get-ok.

    Args:
        class_id: number of the class of methods.
        method_id: number of the method in its class.
        synchronous: whether its sender waits for an answer.
    """

    def enter(kind: type[Row]) -> type[Row]:
        group, *words = re.findall("[A-Z][a-z]+", kind.__name__)
        hints = get_type_hints(kind, include_extras=True)
        kind.id = class_id, method_id
        kind.name = f"{group}.{'-'.join(words)}".lower()
        kind.is_synchronous = synchronous
        kind.domains = tuple([hints[name].__metadata__[0] for name in kind.__struct_fields__])
        return kind

    return enter
