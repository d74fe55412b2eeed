"""Flips bits of a store file: a start finds what was there, or refuses with a sentence; nothing else.

SHARDMQ_FLIPS sets how many bits of each region of a page are flipped, `all` every bit of the file; it takes hours.
"""

import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shardmq.errors import StoreRefused

PAGE = 4096
META_BYTES = 16 + 136

PER_REGION = os.environ.get("SHARDMQ_FLIPS", "2")


def bits(content: bytes) -> Iterator[int]:
    """A sample of every region of every page: header, offsets, nodes; for a file's sake not the free pages alone."""
    if PER_REGION == "all":
        yield from range(len(content) * 8)
        return
    choose = random.Random(7)
    each = int(PER_REGION)
    for start in range(0, len(content), PAGE):
        _, _, _, lower, upper = struct.unpack_from("=QHHHH", content, start)
        regions = [(0, 8), (10, 12), (12, 14), (14, 16)]
        if start < 2 * PAGE:
            regions += [(place, place + 8) for place in range(16, META_BYTES, 8)]
        elif 16 < lower <= upper < PAGE:
            regions += [(16, lower), *[(upper, PAGE)] * 4]
        else:
            regions += [(16, 40), (40, PAGE)]
        for begin, end in regions:
            for _ in range(each):
                yield choose.randrange((start + begin) * 8, (start + end) * 8)


def flipped(content: bytes, bit: int) -> bytes:
    """The same but for one bit."""
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


def put(file: Path, content: bytes) -> None:
    """Write a file where it is: the room that stores have set aside behind its end need not be made anew each time."""
    with file.open("r+b") as target:
        target.write(content)
        if os.fstat(target.fileno()).st_size != len(content):
            target.truncate()


def refusals(file: Path, content: bytes, found: Callable[[], Any]) -> dict[str, int]:
    """Start with one bit after another flipped.

    Args:
        file: of the store.
        content: of the file, undamaged.
        found: opens the store, reads all of it, writes to it, closes it, and returns what it has read.

    Returns:
        How many flips were refused, and how many changed nothing.
    """
    put(file, content)
    expected = found()
    counts = {"refused": 0, "same": 0}
    for bit in bits(content):
        put(file, flipped(content, bit))
        try:
            seen = found()
        except StoreRefused as refused:
            assert str(file) in refused.text
            assert "\n" not in refused.text
            counts["refused"] += 1
        else:
            assert seen == expected, f"bit {bit}, byte {bit // 8 % PAGE} of page {bit // 8 // PAGE}"
            counts["same"] += 1
    return counts
