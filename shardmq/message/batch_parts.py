"""Batches that many consumers get, as a gateway has them: the records once, and each one's part of them.

common   | r0 r1 r2 r3 r4 |      their contents are taken apart once
parts      [0, 5)   [0, 3)   [1, 5)
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from shardmq.message.record_batch import RecordBatch

Contents = tuple[Sequence[Any], Sequence[bytes]]
"""Two sequences with an element for each message: its properties, and its body."""


class CommonBatch(RecordBatch, dict=True, gc=True):
    """A batch that many consumers get, or get parts of."""

    def contents(self, unpack: Callable[[RecordBatch], Contents]) -> Contents:
        """Return what `unpack` makes of it, which is the same function each time; it is called once."""
        found: Contents | None = self.__dict__.get("taken_apart")
        if found is None:
            found = self.__dict__["taken_apart"] = unpack(self)
        return found

    def part(self, start: int, count: int, begin: int, size: int) -> RecordBatch:
        """Return some of its messages, as a batch whose records are a view of these.

        Args:
            start: place of the first message.
            count: how many.
            begin: offset of the first record, in bytes.
            size: of the records, in bytes.
        """
        if count == self.count:
            return self
        part = BatchPart(
            self.exchange,
            self.routing_key,
            self.flags,
            self.timestamp_ms,
            self.origin,
            self.serial + start,
            count,
            cast(bytes, memoryview(self.records)[begin : begin + size]),
            self.priority,
            self.ttl_ms,
        )
        part.__dict__.update(common=self, start=start)
        return part


class BatchPart(RecordBatch, dict=True, gc=True):
    """Some messages of a common batch."""


def contents_of(batch: RecordBatch, unpack: Callable[[RecordBatch], Contents]) -> Contents:
    """Take a batch apart; of what many consumers get, each record once.

    Args:
        batch: it.
        unpack: makes the contents of a batch, the same function for each.
    """
    if isinstance(batch, CommonBatch):
        return batch.contents(unpack)
    if isinstance(batch, BatchPart) and "common" in batch.__dict__:  # what was cut from it has none
        lists, bodies = batch.__dict__["common"].contents(unpack)
        start: int = batch.__dict__["start"]
        return lists[start : start + batch.count], bodies[start : start + batch.count]
    batch.records = bytes(batch.records)
    return unpack(batch)
