"""A shard's store that no process has open, read without changing a byte of it."""

import heapq
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from shardmq.errors import StoreDamaged
from shardmq.shards.storage.schema import (
    APPLIED,
    BODIES_APART,
    DATABASES,
    FORMAT,
    NUMBER,
    STATE,
    WITH_KEYS_CHECKED,
    number_of,
    stored_value,
)
from shardmq.storage.checksums import CHECKSUM_BYTES, is_row, row_content, row_seed, was_row
from shardmq.storage.engine import VERSION
from shardmq.storage.lmdb_environment import MAP_BYTES, check_file
from shardmq.storage.redo.log import RedoLog
from shardmq.storage.repair.findings import Edit
from shardmq.storage.repair.repair import write_edits

_decode_edits: Final = msgspec.msgpack.Decoder(list[tuple[int, bytes, bytes | None]]).decode

Row = tuple[bytes, bytes | None]
"""A key, and the row's content; None where that is not what was written."""


class ClosedStore:
    """See the module. Whoever opens one holds the folder's lock (`environment.hold_folder`).

    Args:
        folder: of the shard.

    Attributes:
        file: the data file.
        version: of its format.
        overlay: what is in the redo log and not yet in LMDB, by database and key; None is deleted.
        last: number of the last commit.
        is_new: whether it has no redo log yet.

    Raises:
        StoreRefused: it cannot be read at all.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "data.mdb"
        self.version = check_file(self.file, FORMAT, DATABASES)
        try:
            self._env = lmdb.open(
                str(folder), readonly=True, lock=False, create=False, max_dbs=64, map_size=MAP_BYTES, readahead=False
            )
        except lmdb.Error as fault:
            raise StoreDamaged(self.file, f"LMDB cannot open it: {fault}") from fault
        try:
            self._dbs = self._databases()
            self.overlay: dict[int, dict[bytes, bytes | None]] = {}
            self.last, self.is_new = 0, True
            self._read_log(folder / "redo")
        except BaseException:
            self._env.close()
            raise

    def close(self) -> None:
        """Let go of it."""
        self._env.close()

    def entries(self) -> int:
        """About how many rows it has."""
        with self._env.begin() as reading:
            return sum([int(reading.stat(db)["entries"]) for db in self._dbs.values()])

    def rows(self, number: int) -> Iterator[Row]:
        """The rows of a database, in order of their keys, as the next start would find them."""
        recent = self.overlay.get(number, {})
        stored = (row for row in self._stored(number) if row[0] not in recent)
        there = ((key, value) for key, value in sorted(recent.items()) if value is not None)
        logged = ((key, row_of(number, key, value, self.version, is_logged=True)) for key, value in there)
        return heapq.merge(stored, logged, key=itemgetter(0))

    def row(self, number: int, key: bytes) -> Row | None:
        """One row; None where it is not there."""
        recent = self.overlay.get(number, {})
        if key in recent:
            value = recent[key]
            return None if value is None else (key, row_of(number, key, value, self.version, is_logged=True))
        if number not in self._dbs:
            return None
        with self._env.begin(db=self._dbs[number]) as reading:
            found = reading.get(key)
        return None if found is None else (key, row_of(number, key, bytes(found), self.version))

    def _stored(self, number: int) -> Iterator[Row]:
        if number not in self._dbs:
            return
        with self._env.begin(db=self._dbs[number], buffers=True) as reading, reading.cursor() as cursor:
            for key, value in cursor.iternext(keys=True, values=True):
                name = bytes(key)
                yield name, row_of(number, name, bytes(value), self.version)

    def _databases(self) -> dict[int, lmdb._Database]:
        with self._env.begin() as reading:
            names = {bytes(name) for name in reading.cursor().iternext(values=False)}
        return {number: self._env.open_db(name, create=False) for number, name in enumerate(DATABASES) if name in names}

    def _read_log(self, file: Path) -> None:
        """Take in what is in the redo log and not yet in LMDB."""
        found = self.row(STATE, APPLIED)
        if found is None:
            return
        if found[1] is None:
            raise StoreDamaged(self.file, "the number of the last commit in it is not what was written", "state")
        log = RedoLog(file, number_of(found[1]))
        log.close()
        self.last, self.is_new = log.last, False
        for payload in log.pending:
            for number, key, value in _decode_edits(payload):
                self.overlay.setdefault(number, {})[key] = value


def row_of(number: int, key: bytes, value: bytes, version: int, is_logged: bool = False) -> bytes | None:
    """The content of a row; None where it is not what was written.

    Args:
        number: of the database.
        key: its key.
        value: as it lies in LMDB, or in the redo log.
        version: of the store's format.
        is_logged: whether it is from the redo log, whose entries have a checksum each.
    """
    if number in WITH_KEYS_CHECKED and version == VERSION and not is_logged:
        if value[: NUMBER.size] != NUMBER.pack(row_seed(number, key)):
            return None
        value = value[NUMBER.size :]
    if number in BODIES_APART or (number in WITH_KEYS_CHECKED and value):
        with memoryview(value) as view:
            is_well = is_row(number, key, view) or was_row(view)
        return value[CHECKSUM_BYTES:] if is_well else None
    if number in WITH_KEYS_CHECKED or is_logged or version < VERSION:
        return value
    return row_content(number, key, value)


def mend(folder: Path, edits: Iterable[Edit]) -> None:
    """Write a repair to a closed store, and with it what is in the redo log and not yet in LMDB."""
    store = ClosedStore(folder)
    logged = [(number, key, value) for number, rows in store.overlay.items() for key, value in rows.items()]
    last = NUMBER.pack(store.last)
    is_new, version = store.is_new, store.version
    store.close()
    applied = [] if is_new else [(STATE, APPLIED, last)]
    sealed = stored_value if version == VERSION else _as_it_is
    write_edits(folder, DATABASES, [*logged, *edits, *applied], sealed)


def is_well(number: int, key: bytes, value: bytes) -> bool:
    """Whether a row, as it lies in LMDB, is what was written."""
    return row_of(number, key, value, VERSION) is not None


def _as_it_is(_number: int, _key: bytes, value: bytes) -> bytes:
    """Rows of the first version have no checksums but those of bodies."""
    return value
