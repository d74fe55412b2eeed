"""The rows of the coordinator's store, each with a checksum."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from shardmq.coordinator.storage.schema import APPLIED, NUMBERS, SEEDS, number_of
from shardmq.coordinator.storage.write_batch import Edits
from shardmq.errors import RowDamaged
from shardmq.storage.checksums import row_content
from shardmq.storage.engine import Engine
from shardmq.storage.store_copy import StoreCopy

_ROW_BYTES: Final = 16
"""About what an entry of the redo log has beside a row's key and content."""


class StoreRows:
    """The rows of an open store.

    Args:
        engine: what the store lies in, of the layout LAYOUT.

    Attributes:
        file: the data file, for error texts.
        space: the room under it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.file = engine.file
        self.space = engine.space

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """Return the content of a row; None where there is none.

        Raises:
            RowDamaged: it is not what was written.
        """
        value = self._engine.get(NUMBERS[database], key)
        return None if value is None else self._content(database, key, bytes(value))

    def scan(self, database: bytes, first: bytes = b"") -> Generator[tuple[bytes, bytes]]:
        """Yield rows in the order of their keys, from a first key on.

        Raises:
            RowDamaged: one is not what was written.
        """
        for key, value in self._engine.scan(NUMBERS[database], first):
            yield key, self._content(database, key, bytes(value))

    def _content(self, database: bytes, key: bytes, value: bytes) -> bytes:
        content = row_content(SEEDS[NUMBERS[database]], key, value)
        if content is None:
            raise RowDamaged(self.file, database.decode(), key, "the row is not what was written")
        return content

    def start(self, check: Callable[[], object]) -> None:
        """Open the redo log, and take in what a crash left in it; `check` is called before the first write.

        Raises:
            StoreRefused: the log is missing, damaged, or of another store.
            StoreUnwritable: the disk does not take it.
        """
        applied = dict(self.scan(b"state")).get(APPLIED)  # by its key, one whose key is damaged would not be found
        self._engine.start(None if applied is None else number_of(applied), check)
        if applied is None:
            self._engine.apply([])  # from here on, the redo log must be there

    def apply(self, edits: Edits) -> None:
        """Write edits to disk, all or none, and return when they are there.

        Raises:
            StoreUnwritable: they are not, as where the disk is full.
        """
        rows = [(NUMBERS[database], key, content) for database, rows in edits.items() for key, content in rows.items()]
        self._engine.apply(rows, sum([_ROW_BYTES + len(key) + len(content or b"") for _, key, content in rows]))

    @property
    def is_pending(self) -> bool:
        """Whether there are edits in the redo log that are not in the databases."""
        return self._engine.is_pending

    def rest(self, now: float) -> None:
        """Bring into the databases what has been in the redo log for long enough. `now` is in monotonic seconds."""
        self._engine.rest(now)

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was written so far into a folder that does not exist yet.

        Raises:
            OSError: the copy cannot be made.
            StoreRefused: the store is not on disk.
        """
        return self._engine.copy(folder, bytes_per_second)

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()
