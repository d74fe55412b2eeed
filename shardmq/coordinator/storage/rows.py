"""The rows of the coordinator's store, each with a checksum."""

from collections.abc import Generator
from pathlib import Path
from typing import Final

from shardmq.coordinator.storage.schema import DATABASES, LAYOUT, NUMBERS, SEEDS
from shardmq.coordinator.storage.write_batch import Edits
from shardmq.errors import RowDamaged
from shardmq.storage.checksums import row_content
from shardmq.storage.engine import VERSION, Engine
from shardmq.storage.lmdb_engine import LmdbEngine
from shardmq.storage.store_copy import StoreCopy

RESERVE_BYTES: Final = 2 << 20
MARGIN_BYTES: Final = 1 << 20
"""Bytes of the disk kept free for deletions and decisions, which must be written also when it is full."""


class StoreRows:
    """The rows of an open store.

    Args:
        engine: of the layout LAYOUT.

    Attributes:
        file: the data file, for error texts.
        space: the room under it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.file = engine.file
        self.space = engine.space

    @staticmethod
    def open(folder: Path) -> "StoreRows":
        """Open a store on disk, or create it where there is none.

        Args:
            folder: of this store alone.

        Raises:
            StoreRefused: the store is in use, or of another kind or version.
        """
        engine = LmdbEngine(folder, LAYOUT, reserve_bytes=RESERVE_BYTES, margin_bytes=MARGIN_BYTES)
        try:
            if engine.version < VERSION:
                engine.upgrade(range(len(DATABASES)))
        except BaseException:
            engine.close()
            raise
        return StoreRows(engine)

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
        """Begin to copy all that was written so far; see `Store.copy`."""
        return self._engine.copy(folder, bytes_per_second)

    def close(self) -> None:
        """Close the file and unlock the folder."""
        self._engine.close()
