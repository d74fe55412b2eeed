"""Batches whose records are stored once for several queues.

    queue 1   segment: | batch: reference to body 7 |  batch  |  ─┐
    queue 2   segment: | batch: reference to body 7 |            ─┴──►  body 7: the records

A reference may be to a part of a body: compaction leaves out messages that are done with.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, cast

from shardmq.message.record_batch import RecordBatch, record_ends

SHARED_BYTES_MIN: Final = 4096
"""Records of fewer bytes are stored with each queue: a reference costs about as much processor time as copying so many
(copied / shared, us a batch to 25 queues, taken in and settled: 440 / 780 with 2,000 bytes, 680 / 600 with 4,000)."""

ENDS_KEPT_MAX: Final = 64
"""Batches with more records keep no list of where they end: that would be memory that nobody counts."""

REFERENCE_BYTES: Final = 100
"""About what a batch takes in a segment whose records are elsewhere."""

BY_REFERENCE: Final = 8
"""Flag of a stored batch, never of one in memory or on the bus: its records are a reference."""

_REFERENCE: Final = Struct(">QII")


class Reference(NamedTuple):
    """Where the records of a batch are.

    Attributes:
        body: number of the shared body.
        begin: offset of the first record in it, in bytes.
        bytes: of the records.
    """

    body: int
    begin: int
    bytes: int


class SharedBatch(RecordBatch, dict=True, gc=True):
    """A batch that has the records, or some of the records, of a shared body.

    On the bus it is a RecordBatch: what it knows besides lies beside the fields.
    """

    @property
    def body(self) -> int:
        """Return the number of the body."""
        return cast(int, self.__dict__["body"])

    @property
    def begin(self) -> int:
        """Return where its records begin in the body, in bytes."""
        return cast(int, self.__dict__["begin"])

    @property
    def is_whole(self) -> bool:
        """Return whether its records are all of the body."""
        return len(self.records) == cast(int, self.__dict__["body_bytes"])

    @property
    def body_bytes(self) -> int:
        """Return how many bytes the body has."""
        return cast(int, self.__dict__["body_bytes"])

    def ends(self) -> list[int]:
        """Return where its records end; where they are few, they are looked for once, however many queues ask."""
        found: list[int] | None = self.__dict__.get("found_ends")
        if found is None:
            found = record_ends(self.records, self.count)
            if self.count <= ENDS_KEPT_MAX:
                self.__dict__["found_ends"] = found
        return found

    @property
    def source(self) -> "SharedBatch":
        """Return the batch that this one is a view of, or itself."""
        return cast(SharedBatch, self.__dict__.get("source", self))

    def view(self, start: int, count: int, begin: int, size: int) -> "SharedBatch":
        """Return some of its messages as a batch that is delivered, and not kept: its records are a view of these.

        Args:
            start: place of the first message.
            count: how many.
            begin: offset of the first record, in bytes.
            size: of the records, in bytes.
        """
        records = cast(bytes, memoryview(self.records)[begin : begin + size])
        view = shared_batch(with_records(self, self.flags, records), self.body, self.begin + begin, self.body_bytes)
        view.serial += start
        view.count = count
        view.__dict__["source"] = self.source
        return view


def shared_batch(batch: RecordBatch, body: int, begin: int, body_bytes: int) -> SharedBatch:
    """Return a batch as one whose records are, or are a part of, a shared body.

    Args:
        batch: with its records.
        body: number of the body.
        begin: offset of the batch's first record in it, in bytes.
        body_bytes: of the body.
    """
    shared = SharedBatch(
        batch.exchange,
        batch.routing_key,
        batch.flags,
        batch.timestamp_ms,
        batch.origin,
        batch.serial,
        batch.count,
        batch.records,
        batch.priority,
        batch.ttl_ms,
    )
    shared.__dict__.update(body=body, begin=begin, body_bytes=body_bytes)
    return shared


def stored_bytes(batch: RecordBatch, queues: Sequence[int], delay_ms: int = 0) -> int:
    """Return about how many bytes are stored of a batch that goes to some queues of a shard.

    Args:
        batch: it.
        queues: their ids.
        delay_ms: how much later it joins them; delayed messages are stored with each queue.
    """
    size, copies = len(batch.records), len(queues)
    return size * copies if size < SHARED_BYTES_MIN or delay_ms else size + REFERENCE_BYTES * copies


def referring(batch: SharedBatch) -> RecordBatch:
    """Return what is stored of a shared batch in a segment: its header, and where its records are."""
    return with_records(batch, batch.flags | BY_REFERENCE, _REFERENCE.pack(batch.body, batch.begin, len(batch.records)))


def with_records(batch: RecordBatch, flags: int, records: bytes) -> RecordBatch:
    """Return a batch with other flags and records."""
    return RecordBatch(
        batch.exchange,
        batch.routing_key,
        flags,
        batch.timestamp_ms,
        batch.origin,
        batch.serial,
        batch.count,
        records,
        batch.priority,
        batch.ttl_ms,
    )


def reference_of(batch: RecordBatch) -> Reference | None:
    """Return the reference that a stored batch has in the place of records; None where it has its records.

    Raises:
        struct.error: it is none.
    """
    return Reference._make(_REFERENCE.unpack(batch.records)) if batch.flags & BY_REFERENCE else None
