"""How many messages, and how many bytes of bodies, may wait in a queue (x-max-length, x-max-length-bytes)."""

from itertools import accumulate
from typing import Final

from shardmq.records import Run, unpack

_NIL_HEADERS: Final = {b"\x92\xc0\xc4": 4, b"\x92\xc0\xc5": 5, b"\x92\xc0\xc6": 7}
"""How a record without properties begins, and how many bytes come before its body."""


def body_sizes(run: Run) -> list[int]:
    """The sizes of its messages' bodies."""
    if run.count == 1:
        header = _NIL_HEADERS.get(run.records[:3])
        if header is not None:
            return [len(run.records) - header]
    return [len(record.body) for record in unpack(run.records, run.count)]


def fitting(run: Run, sizes: list[int], room: int) -> int:
    """How many messages from the first on have bodies of `room` bytes at most."""
    if run.count == 1:
        return int(sizes[0] <= room)
    return sum([size <= room for size in accumulate(sizes)])
