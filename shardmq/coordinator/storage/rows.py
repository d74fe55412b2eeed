"""The rows of the coordinator's store, each with a checksum."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from shardmq.coordinator.storage.schema import DATABASES, FORMAT
from shardmq.coordinator.storage.write_batch import Edits
from shardmq.storage.disk_space import DiskSpace, writing
from shardmq.storage.engine import VERSION
from shardmq.storage.lmdb_environment import open_environment, rewrite
from shardmq.storage.store_copy import StoreCopy
from shardmq.storage.table import Table

RESERVE_BYTES = 2 << 20
MARGIN_BYTES = 1 << 20
"""Of the disk, kept for what must be written when it is full: what is deleted, and what is decided."""


class StoreRows:
    """The open file of the store, as rows.

    Args:
        folder: of this store alone.

    Raises:
        StoreRefused: in use, or not ours to open.

    Attributes:
        file: the data file.
        space: the disk under it.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = open_environment(folder, FORMAT, DATABASES)
        self._env = self._environment.env
        self.file = self._environment.file
        self._tables: Mapping[bytes, Table] = {
            name: Table(self.file, name, db) for name, db in self._environment.dbs.items()
        }
        self.space = DiskSpace(self._environment, RESERVE_BYTES, MARGIN_BYTES)
        if self._environment.version < VERSION:
            self._upgrade()

    def get(self, database: bytes, key: bytes) -> bytes | None:
        """The content of a row; None where there is none.

        Raises:
            RowDamaged: it is not what was written.
        """
        with self._env.begin() as read:
            return self._tables[database].get(read, key)

    def scan(self, database: bytes, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows in order of their keys, from a first key on.

        Raises:
            RowDamaged: one is not what was written.
        """
        with self._env.begin() as read:
            yield from self._tables[database].items(read, first)

    def apply(self, edits: Edits) -> None:
        """Put edits on disk, all or none; return when they are there.

        Raises:
            StoreUnwritable: they are not, as where the disk is full.
        """
        with writing(self._environment) as write:
            for database, edited in edits.items():
                table = self._tables[database]
                for key, content in edited.items():
                    if content is None:
                        table.delete(write, key)
                    else:
                        table.put(write, key, content)
        self.space.committed()

    def copy(self, folder: Path, bytes_per_second: int) -> StoreCopy:
        """Begin to copy all that was written so far; see `Store.copy`."""
        with self._env.begin() as transaction:
            stats = [transaction.stat(table.db) for table in self._tables.values()]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return StoreCopy(self._env, folder, bytes_per_second, pages * stats[0]["psize"], lambda _count: None)

    def close(self) -> None:
        """Close the file and let go of the folder."""
        self._environment.close()

    def _upgrade(self) -> None:
        """Give the rows of a store of the first version their checksums."""
        with writing(self._environment) as transaction:
            for table in self._tables.values():
                rewrite(transaction, table.db, table.sealed)
            self._environment.raise_version(transaction)
