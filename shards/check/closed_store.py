"""A shard's store that no process has open, read without changing a byte of it."""

import heapq
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path

from shardmq.errors import StoreDamaged
from shardmq.shards.storage.schema import (
    APPLIED,
    BODIES_APART,
    DATABASES,
    FORGOTTEN,
    FORMAT,
    NUMBER,
    REPLICA,
    STATE,
    WITH_KEYS_CHECKED,
    number_of,
    stored_value,
)
from shardmq.storage.checksums import CHECKSUM_BYTES, is_row, row_content, row_seed, was_row
from shardmq.storage.engine import Bytes, Edit
from shardmq.storage.redo.edits import LoggedEdit
from shardmq.storage.repair.closed_file import ClosedFile
from shardmq.storage.repair.closed_log import ClosedLog, log_without_note
from shardmq.storage.repair.repair import write_edits
from shardmq.storage.versions import CHECKSUMS_SINCE, VERSION

Row = tuple[bytes, bytes | None]
"""A key, and the row's content; None where that is not what was written."""


class ClosedStore:
    """A closed store and its redo log. Whoever opens one holds the folder (`folder_lock.hold_folder`).

    Args:
        folder: of the shard.

    Attributes:
        file: the data file.
        version: of its format.
        log: what is in the redo log and not yet in LMDB.

    Raises:
        StoreRefused: it cannot be read at all.
    """

    def __init__(self, folder: Path) -> None:
        self._closed = ClosedFile(folder, FORMAT, DATABASES)
        self.file, self.version = self._closed.file, self._closed.version
        self.log = ClosedLog(folder, None, len(DATABASES))
        try:
            self.log = self._read_log(folder)
        except BaseException:
            self._closed.close()
            raise

    def close(self) -> None:
        """Let go of it."""
        self._closed.close()

    def entries(self) -> int:
        """Return about how many rows it has."""
        return self._closed.count()

    def rows(self, number: int) -> Iterator[Row]:
        """The rows of a database, in order of their keys, as the next start would find them."""
        recent = self.log.overlay.get(number, {})
        stored = (row for row in self._stored(number) if row[0] not in recent)
        there = ((key, value) for key, value in sorted(recent.items()) if value is not None)
        logged = ((key, row_of(number, key, value, self.version, is_logged=True)) for key, value in there)
        return heapq.merge(stored, logged, key=itemgetter(0))

    def row(self, number: int, key: bytes) -> Row | None:
        """Return one row; None where it is not there."""
        recent = self.log.overlay.get(number, {})
        if key in recent:
            value = recent[key]
            return None if value is None else (key, row_of(number, key, value, self.version, is_logged=True))
        found = self._closed.get(number, key)
        return None if found is None else (key, row_of(number, key, found, self.version))

    def _stored(self, number: int) -> Iterator[Row]:
        for key, value in self._closed.rows(number):
            yield key, row_of(number, key, value, self.version)

    def _read_log(self, folder: Path) -> ClosedLog:
        found = self.row(STATE, APPLIED)
        if found is None:
            return log_without_note(folder, len(DATABASES), self._is_in) if self.entries() else self.log
        if found[1] is None:
            raise StoreDamaged(self.file, "the number of the last commit in it is not what was written", "state")
        return ClosedLog(folder, number_of(found[1]), len(DATABASES))

    def _is_in(self, edit: LoggedEdit) -> bool:
        """Whether an edit of the log is in the file, but for what is lost of `state`, and what a start forgets."""
        number, key, value = edit
        stored = self._closed.get(number, key)
        if number in FORGOTTEN or (number == STATE and stored is None):
            return True
        if stored is None or value is None:
            return stored is value
        logged = row_of(number, key, value, self.version, is_logged=True)
        return logged is not None and logged == row_of(number, key, stored, self.version)


def row_of(number: int, key: bytes, value: bytes, version: int, is_logged: bool = False) -> bytes | None:
    """The content of a row; None where it is not what was written.

    Args:
        number: of the database.
        key: its key.
        value: as it lies in LMDB, or in the redo log.
        version: of the store's format.
        is_logged: whether it is from the redo log, whose entries have a checksum each.
    """
    if number in WITH_KEYS_CHECKED and version >= CHECKSUMS_SINCE and not is_logged:
        if value[: NUMBER.size] != NUMBER.pack(row_seed(number, key)):
            return None
        value = value[NUMBER.size :]
    if number in BODIES_APART or (number in WITH_KEYS_CHECKED and value):
        with memoryview(value) as view:
            is_well = is_row(number, key, view) or was_row(view)
        return value[CHECKSUM_BYTES:] if is_well else None
    if number in WITH_KEYS_CHECKED or is_logged or version < CHECKSUMS_SINCE:
        return value
    return row_content(number, key, value)


def mend(folder: Path, edits: Iterable[Edit]) -> None:
    """Write a repair to a closed store, and with it what is in the redo log and not yet in LMDB.

    A store that was a replica's is none any more: its host gets a new one from the others.
    """
    store = ClosedStore(folder)
    log, version = store.log, store.version
    edits = list(edits)
    if edits:  # it is not what the other replicas have any more
        edits += [(REPLICA, key, None) for key, _ in store.rows(REPLICA)]
    store.close()
    applied = [] if log.is_new else [(STATE, APPLIED, NUMBER.pack(log.last))]
    sealed = stored_value if version >= CHECKSUMS_SINCE else _as_it_is
    write_edits(folder, DATABASES, [*log.edits, *edits, *applied], sealed)


def is_well(number: int, key: bytes, value: bytes) -> bool:
    """Whether a row, as it lies in LMDB, is what was written, and may be in a store that is made of what is left."""
    return number != REPLICA and row_of(number, key, value, VERSION) is not None


def _as_it_is(_number: int, _key: bytes, value: Bytes) -> Bytes:
    """Rows of the first version have no checksums but those of bodies."""
    return value
