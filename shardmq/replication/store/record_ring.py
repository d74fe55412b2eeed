"""The most recent records of a store, bounded in bytes: who was away for a moment gets what it missed from here."""

from collections import deque
from itertools import islice
from typing import Final

from shardmq.replication.store.record import Record, known_record

RING_BYTES: Final = 16 << 20
"""Two passes of the largest kind, or a second of small messages."""


class RecordRing:
    """Records with consecutive indexes, the last one the most recent.

    Their bytes are kept: taken apart, they would be many objects that are looked through for garbage.

    Args:
        bytes_max: what they may take; the oldest leave first.

    Attributes:
        bytes: what they take.
        last: index of the most recent; 0 where there is none.
    """

    def __init__(self, bytes_max: int = RING_BYTES) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._records: deque[bytes | bytearray | memoryview] = deque()
        self.last = 0

    def add(self, record: Record) -> None:
        """Take in a record; where it does not follow the last one, all others leave."""
        if record.index != self.last + 1:
            self.clear()
        self.last = record.index
        self._records.append(record.data)
        self.bytes += len(record.data)
        while self.bytes > self._bytes_max:
            self.bytes -= len(self._records.popleft())

    def clear(self) -> None:
        """Let all of them go."""
        self._records.clear()
        self.bytes = self.last = 0

    def covers(self, index: int) -> bool:
        """Whether every record above an index, up to the last, is there."""
        return self.last - len(self._records) <= index <= self.last

    def above(self, index: int) -> list[Record]:
        """Return the records above an index, in order."""
        first = max(0, len(self._records) - self.last + index)
        return [known_record(data) for data in islice(self._records, first, None)]
