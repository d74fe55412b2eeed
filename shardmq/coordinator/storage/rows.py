"""The rows of the coordinator's store, each with a checksum."""

from collections.abc import Generator
from pathlib import Path

from shardmq.coordinator.storage.schema import NUMBERS, SEEDS
from shardmq.coordinator.storage.write_batch import Edits
from shardmq.errors import RowDamaged
from shardmq.storage.checksums import row_content
from shardmq.storage.engine import Engine
from shardmq.storage.store_copy import StoreCopy


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

    def apply(self, edits: Edits) -> None:
        """Write edits to disk, all or none, and return when they are there.

        Raises:
            StoreUnwritable: they are not, as where the disk is full.
        """
        self._engine.apply(
            (NUMBERS[database], key, content) for database, rows in edits.items() for key, content in rows.items()
        )

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
