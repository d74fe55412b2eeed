"""About which tags the messages of a segment have: a Bloom filter, by which readers leave out what has none of theirs.

    tag ──► xxh3_64 ──► two bits        a segment without both has no message of that tag

A summary may have bits of what is no tag, such as a text in a body that looks like one. It never lacks a tag.
"""

from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_64_intdigest

from shardmq.message.record_batch import AMQP, RecordBatch

TAG: Final = "x-stream-filter-value"
"""The header that is a message's tag."""

SUMMARY_BYTES: Final = 64
"""Of a summary, where the stream does not say how many (x-stream-filter-size-bytes): three segments of a hundred are
read in vain where each has 50 tags."""

_TAG_BYTES: Final = TAG.encode()
_BATCH_HEAD_BYTES: Final = 512
_VALUE_HEAD_BYTES: Final = 40
_LONG_STRING: Final = ord("S")
_FIXED_TEXT: Final = range(0xA0, 0xC0)
_SIZED_TEXT: Final = {0xD9: 1, 0xDA: 2, 0xDB: 4}
"""How texts begin in msgpack: with their size, or with how many bytes that has."""


def seems_tagged(batch: RecordBatch) -> bool:
    """Whether a batch begins with a tag: looking through all of it would take a twentieth of appending it."""
    return _TAG_BYTES in batch.records[:_BATCH_HEAD_BYTES]


def tags_in(batch: RecordBatch) -> set[bytes]:
    """Return the tags of a batch, and possibly some that are none."""
    if _TAG_BYTES not in batch.records:
        return set()
    values = {value[:_VALUE_HEAD_BYTES]: value for value in bytes(batch.records).split(_TAG_BYTES)[1:]}
    text = _table_text if batch.flags & AMQP else _packed_text
    return {text(head, value) for head, value in values.items()}


def summary_of(tags: Iterable[bytes], size: int) -> bytes:
    """Return the summary of some tags.

    Args:
        tags: in UTF-8.
        size: bytes of the summary.
    """
    summary = bytearray(size)
    for tag in tags:
        for bit in _bits(tag, size):
            summary[bit >> 3] |= 1 << (bit & 7)
    return bytes(summary)


def union(summaries: Iterable[bytes | None]) -> bytes | None:
    """Return the summary of what several summaries are of; None where one is not known, or is of another size."""
    known = list(summaries)
    if not known or known[0] is None:
        return None
    size, total = len(known[0]), 0
    for summary in known:
        if summary is None or len(summary) != size:
            return None
        total |= int.from_bytes(summary, "big")
    return total.to_bytes(size, "big")


def may_have(summary: bytes, tags: Iterable[bytes]) -> bool:
    """Whether what a summary is of may have one of some tags."""
    size = len(summary)
    return any(all(summary[bit >> 3] >> (bit & 7) & 1 for bit in _bits(tag, size)) for tag in tags)


def _bits(tag: bytes, size: int) -> tuple[int, int]:
    digest = xxh3_64_intdigest(tag)
    return (digest >> 32) % (8 * size), (digest & 0xFFFFFFFF) % (8 * size)


def _table_text(head: bytes, value: bytes) -> bytes:
    """Return a text of a field table, which begins a value."""
    if not head or head[0] != _LONG_STRING:
        return b""
    end = 5 + int.from_bytes(head[1:5], "big")
    return value[5:end]


def _packed_text(head: bytes, value: bytes) -> bytes:
    """Return a text of msgpack, which begins a value."""
    if head and head[0] in _FIXED_TEXT:
        return value[1 : 1 + (head[0] & 0x1F)]
    wide = _SIZED_TEXT.get(head[0]) if head else None
    if wide is None:
        return b""
    start = 1 + wide
    return value[start : start + int.from_bytes(head[1:start], "big")]
