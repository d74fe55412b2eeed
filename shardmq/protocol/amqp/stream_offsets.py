"""The headers x-stream-offset and x-stream-partition of messages that are read from streams.

They are the last entries of the headers, whose place in a property list follows from what comes before them:

    flags u16 │ content_type │ content_encoding │ headers: size u32, entries … x-stream-offset l i64, │ all others
              │    if there  │     if there     │                            x-stream-partition l i64 │
"""

from collections.abc import Iterable, Sequence
from typing import Final

from shardmq.protocol.amqp.field_types import SIZE, end_of
from shardmq.protocol.amqp.property_edits import without
from shardmq.protocol.amqp.property_facts import KNOWN_BYTES_MAX
from shardmq.protocol.amqp.tables import encode_entry, wrapped

HEADER: Final = "x-stream-offset"
PARTITION: Final = "x-stream-partition"
KNOWN_MAX: Final = 1024
"""Property lists whose ends are remembered; when there are more, all are forgotten."""

_LONG: Final = 8
_OFFSET_ENTRY, _PARTITION_ENTRY = [encode_entry(name, b"l") for name in (HEADER, PARTITION)]
_BEFORE_HEADERS: Final = (0x80, 0x40)
_HEADERS: Final = 0x20
"""Flags in a list's first octet: of content_type and content_encoding, and of the headers."""

_MEANT: Final = 0xFC
"""The flags of a list's second octet that mean something."""

_known: Final[dict[tuple[bytes, int | None], tuple[bytes, bytes]]] = {}
"""By property list and partition: the same with the header, before its eight bytes of offset and behind them."""


def with_offsets(lists: Iterable[bytes], offset: int, partition: int | None = None) -> Sequence[bytes]:
    """Return property lists with the offsets of their messages.

    Args:
        lists: of consecutive messages, which were checked before.
        offset: of the first.
        partition: the number of their partition, which is told beside the offset; None where they have none.
    """
    known = _known
    made = []
    for raw in lists:
        head, tail = known.get((raw, partition)) or _ends(raw, partition)
        made.append(head + offset.to_bytes(_LONG, "big") + tail)
        offset += 1
    return made


def _ends(raw: bytes, partition: int | None) -> tuple[bytes, bytes]:
    """Return what stands before and behind the offset.

    Lists mostly differ where each has an id or a time, so this is most of what an offset costs. The bytes are copied,
    and not looked through.
    """
    first, second = raw[0], raw[1]
    begin = 2
    for flag in _BEFORE_HEADERS:
        if first & flag:
            begin += 1 + raw[begin]
    end, entries = begin, b""
    if first & _HEADERS:
        end = end_of(raw, begin)
        entries = _others(raw[begin + 4 : end], partition)
    last = b"" if partition is None else _PARTITION_ENTRY + partition.to_bytes(_LONG, "big")
    size = SIZE.pack(len(entries) + len(_OFFSET_ENTRY) + _LONG + len(last))
    flags = bytes((first | _HEADERS, second & _MEANT))
    ends = b"".join((flags, raw[2:begin], size, entries, _OFFSET_ENTRY)), last + raw[end:]
    if len(raw) <= KNOWN_BYTES_MAX:
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        _known[raw, partition] = ends
    return ends


def _others(entries: bytes, partition: int | None) -> bytes:
    """Return a table's entries without those that are written here: it may have been read from a stream before."""
    names = [HEADER.encode()] if partition is None else [HEADER.encode(), PARTITION.encode()]
    if any(name in entries for name in names):
        return without(wrapped(b"", entries), *names)[4:]
    return entries
