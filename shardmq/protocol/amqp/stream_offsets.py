"""The headers x-stream-offset and x-stream-partition of messages that are read from streams."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from shardmq.protocol.amqp.property_edits import edited, without
from shardmq.protocol.amqp.property_facts import KNOWN_BYTES_MAX
from shardmq.protocol.amqp.tables import encode_entry, encode_long, wrapped

HEADER: Final = "x-stream-offset"
PARTITION: Final = "x-stream-partition"
KNOWN_MAX: Final = 1024
"""Property lists whose ends are remembered; when there are more, all are forgotten."""

_LONG: Final = 8
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
    """Return what stands before and behind the offset. Two offsets without a common byte show where it stands."""
    zeros, ones = _with_entry(raw, partition, 0), _with_entry(raw, partition, -1)
    place = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(zeros, ones, strict=True)))
    ends = zeros[:place], zeros[place + _LONG :]
    if len(raw) <= KNOWN_BYTES_MAX:
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        _known[raw, partition] = ends
    return ends


def _with_entry(raw: bytes, partition: int | None, offset: int) -> bytes:
    entry = encode_entry(HEADER, encode_long(offset))
    if partition is not None:
        entry += encode_entry(PARTITION, encode_long(partition))

    def with_ours(table: bytes) -> bytes:
        others = without(table, HEADER.encode())
        if partition is not None:
            others = without(others, PARTITION.encode())
        return wrapped(b"", others[4:] + entry)

    return edited(raw, {}, with_ours)
