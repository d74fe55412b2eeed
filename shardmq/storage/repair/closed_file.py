"""A store's file that no process has open, read without changing a byte of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import lmdb

from shardmq.errors import StoreDamaged
from shardmq.storage.files import BLOCK_BYTES, pieces_of
from shardmq.storage.lmdb_environment import MAP_BYTES, check_file


class ClosedFile:
    """The rows of a file. Whoever opens one holds the folder (`folder_lock.hold_folder`).

    Args:
        folder: of the store.
        format: what must be in it.
        databases: names of its databases, by their numbers in edits.

    Attributes:
        file: the data file.
        version: of its format.

    Raises:
        StoreRefused: it cannot be read at all.
    """

    def __init__(self, folder: Path, format: bytes, databases: tuple[bytes, ...]) -> None:
        self.file = folder / "data.mdb"
        self.version = check_file(self.file, format, databases)
        _check_readable(self.file)
        try:
            self._env = lmdb.open(
                str(folder), readonly=True, lock=False, create=False, max_dbs=64, map_size=MAP_BYTES, readahead=False
            )
        except lmdb.Error as fault:
            raise StoreDamaged(self.file, f"LMDB cannot open it: {fault}") from fault
        self._dbs = self._opened(databases)

    def _opened(self, databases: tuple[bytes, ...]) -> Mapping[int, lmdb._Database]:
        """The databases that are in the file: older versions had fewer."""
        with self._env.begin() as reading:
            names = {bytes(name) for name in reading.cursor().iternext(values=False)}
        return {number: self._env.open_db(name, create=False) for number, name in enumerate(databases) if name in names}

    def count(self) -> int:
        """Return about how many rows there are."""
        with self._env.begin() as reading:
            return sum([int(reading.stat(db)["entries"]) for db in self._dbs.values()])

    def get(self, database: int, key: bytes) -> bytes | None:
        """Return a stored value; None where there is no such row."""
        if database not in self._dbs:
            return None
        with self._env.begin(db=self._dbs[database]) as reading:
            return reading.get(key)

    def rows(self, database: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and stored values in the order of their keys."""
        if database not in self._dbs:
            return
        with self._env.begin(db=self._dbs[database]) as reading, reading.cursor() as cursor:
            yield from cursor.iternext(keys=True, values=True)

    def close(self) -> None:
        """Let go of it."""
        self._env.close()


def _check_readable(file: Path) -> None:
    """Make sure that the disk can read all of a file: where it cannot, who reads it through a map is killed.

    Raises:
        StoreDamaged: it cannot.
    """
    lost = [position for position, content in pieces_of(file) if content is None]
    if lost:
        size = len(lost) * BLOCK_BYTES >> 10
        raise StoreDamaged(file, f"the disk cannot read {size} KB of it, the first of them at byte {lost[0]}")
