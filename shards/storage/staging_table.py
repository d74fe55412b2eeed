"""Staged batches of transactions, in the order of transaction, attempt and sequence."""

from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import islice
from struct import error as StructError
from typing import Final, NamedTuple

import msgspec

from shardmq.errors import RowDamaged
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.shared_batch import BY_REFERENCE, reference_of, shared_batch, with_records
from shardmq.shards.storage.entries import DamagedStage, Staged, StagedPlace
from shardmq.shards.storage.rows import Rows
from shardmq.shards.storage.schema import NUMBER, PLACE, SHARED, STAGE, STAGED, STAGES, number_of, staged_place
from shardmq.storage.checksums import row_content
from shardmq.storage.engine import Engine, behind

CHECK_BATCH_BYTES: Final = 32 << 10
"""What a batch counts for besides its bytes where it is checked, which is about what looking it up costs."""

_decode_staged: Final = msgspec.msgpack.Decoder(tuple[tuple[int, ...], int, RecordBatch]).decode


class Checked(NamedTuple):
    """How far a check has come.

    Attributes:
        goes_on_at: the sequence to go on from; None at the end.
        bytes: of records that were read.
        cost: what it counts for, in bytes.
    """

    goes_on_at: int | None
    bytes: int
    cost: int


class StagingTable:
    """Reads staged batches.

    Args:
        engine: where they are.
        rows: checks them.
    """

    def __init__(self, engine: Engine, rows: Rows) -> None:
        self._engine = engine
        self._rows = rows

    def all(self) -> Iterator[StagedPlace]:
        """Yield the places of all staged batches, in order. There may be millions."""
        return self._places(b"", None)

    def references(self) -> tuple[dict[StagedPlace, int], bool]:
        """Return the shared bodies that staged batches refer to, by their places, and whether those are all."""
        found: dict[StagedPlace, int] = {}
        is_certain = True
        for key, value in self._engine.scan(STAGES):
            content = row_content(STAGES, key, bytes(value))
            if content is None or len(content) not in (0, NUMBER.size) or len(key) != STAGE.size:
                is_certain = False
            elif content:
                found[staged_place(key)] = number_of(content)
        return found, is_certain

    def batches(self, transaction: int, attempt: int, since: int, bytes_max: int) -> list[Staged | DamagedStage]:
        """Read the next batches that an attempt staged, in order; what is damaged stands at its place.

        Args:
            transaction: its number.
            attempt: who staged them.
            since: the least sequence, so that those deleted lately need not be passed over.
            bytes_max: about where to end; one is read at least, if there is one.
        """
        found: list[Staged | DamagedStage] = []
        size = 0
        with closing(self._of_attempt(transaction, attempt, since)) as places:
            for place in places:
                key = STAGE.pack(*place)
                try:
                    value = self._value(key, place)
                    size += max(len(value), place.bytes)
                    queues, delay_ms, batch = self._rows.body(STAGED, key, value, _decode_staged, place)
                    if batch.flags & BY_REFERENCE:
                        body, records = self._referred(key, place, batch)
                        batch = with_records(batch, batch.flags & ~BY_REFERENCE, bytes(records))
                        batch = shared_batch(batch, body, 0, place.bytes)
                    found.append(Staged(place, queues, delay_ms, batch))
                except RowDamaged as damage:
                    found.append(DamagedStage(place, damage))
                if size >= bytes_max:
                    break
        return found

    def check(self, transaction: int, attempt: int, since: int, cost_max: int) -> Checked:
        """Make sure that batches which an attempt staged are what was written.

        Args:
            transaction: its number.
            attempt: who staged them.
            since: the least sequence.
            cost_max: about where to end, in bytes, with CHECK_BATCH_BYTES for each batch; one is read at least.

        Raises:
            RowDamaged: a batch is not what was written.
        """
        size, cost = 0, CHECK_BATCH_BYTES  # to begin is like one more
        with closing(self._of_attempt(transaction, attempt, since)) as places:
            for place in places:
                key = STAGE.pack(*place)
                value = self._value(key, place)
                size += place.bytes
                cost += max(len(value), place.bytes) + CHECK_BATCH_BYTES
                self._rows.check_body(STAGED, key, value, place)
                if len(value) < place.bytes:  # it cannot have its records itself
                    _, _, batch = self._rows.body(STAGED, key, value, _decode_staged, place)
                    self._referred(key, place, batch)
                if cost >= cost_max:
                    return Checked(place.sequence + place.messages, size, cost)
        return Checked(None, size, cost)

    def places(self, transaction: int, since: StagedPlace | None, count_max: int) -> list[StagedPlace]:
        """Return the places of a transaction's next staged batches, in order; of those behind `since`."""
        start = NUMBER.pack(transaction) if since is None else STAGE.pack(*since) + b"\0"
        with closing(self._places(start, NUMBER.pack(transaction + 1))) as places:
            return list(islice(places, count_max))

    def within(self, transaction: int, attempt: int, start: int, end: int) -> list[StagedPlace]:
        """Return the places of an attempt's staged batches that have numbers in [start, end), in order."""
        prefix = PLACE.pack(transaction, attempt)
        first = STAGE.pack(transaction, attempt, start, 0, 0)
        before = self._engine.key_before(STAGES, first)
        if before is not None and before.startswith(prefix):
            first = before  # it may reach into the range
        last = STAGE.pack(transaction, attempt, end, 0, 0) if end < 1 << 64 else behind(prefix)
        return [place for place in self._places(first, last) if place.sequence + place.messages > start]

    def _referred(self, key: bytes, place: StagedPlace, batch: RecordBatch) -> tuple[int, memoryview]:
        """Return the number of the body that a batch refers to, and the records in it."""
        try:
            reference = reference_of(batch)
        except StructError as fault:
            raise self._rows.damage(STAGED, key, f"{place!r} cannot be read: {fault}") from fault
        if reference is None:
            raise self._rows.damage(STAGED, key, f"{place!r} has not the records that its key tells of")
        records = self._rows.shared_records(SHARED, NUMBER.pack(reference.body), None)
        if not reference.bytes == place.bytes == len(records):
            raise self._rows.damage(STAGED, key, f"{place!r} refers to a body of {len(records)} bytes")
        return reference.body, records

    def _of_attempt(self, transaction: int, attempt: int, since: int) -> Generator[StagedPlace]:
        start = STAGE.pack(transaction, attempt, since, 0, 0)
        return self._places(start, behind(PLACE.pack(transaction, attempt)))

    def _places(self, start: bytes, end: bytes | None) -> Generator[StagedPlace]:
        for key in self._engine.keys(STAGES, start, end):
            if len(key) != STAGE.size:
                raise self._rows.damage(STAGES, key, f"the key of a staged batch has {len(key)} bytes")
            yield staged_place(key)

    def _value(self, key: bytes, place: StagedPlace) -> memoryview:
        value = self._engine.get(STAGED, key)
        if value is None:
            raise self._rows.damage(STAGED, key, f"{place!r} is not there")
        return value
