"""What the redo log of a closed store has that is not in its file, read without changing a byte of it."""

from collections.abc import Callable
from pathlib import Path

from shardmq.errors import StoreDamaged
from shardmq.storage.redo.edits import LoggedEdit, edits_in
from shardmq.storage.redo.log import REDO, StoredLog, first_number


class ClosedLog:
    """The edits that the next start would bring into the file.

    Args:
        folder: of the store.
        applied: number of the last entry that is in the file; None for a store that never had a log.
        databases: how many the store has.

    Attributes:
        file: where it is, or would be.
        overlay: the newest value of each row, by database and key; None is deleted.
        last: number of the last entry.
        is_new: whether there is no log yet.
        is_unnoted: whether the file has lost its note of the last entry that is in it.

    Raises:
        StoreRefused: the log is missing, damaged, or of another store.
    """

    def __init__(self, folder: Path, applied: int | None, databases: int) -> None:
        self.overlay: dict[int, dict[bytes, bytes | None]] = {}
        self.last, self.is_new = 0, applied is None
        self.is_unnoted = False
        self.file = folder / REDO
        if applied is None:
            return
        log = StoredLog(self.file, applied)
        self.last = log.last
        for payload in log.pending:
            for number, key, value in edits_in(log.file, payload, databases):
                self.overlay.setdefault(number, {})[key] = value

    @property
    def edits(self) -> list[LoggedEdit]:
        """The edits that are not in the file."""
        return [(number, key, value) for number, rows in self.overlay.items() for key, value in rows.items()]


def log_without_note(folder: Path, databases: int, is_in: Callable[[LoggedEdit], bool]) -> ClosedLog:
    """Read the log of a file that has rows, and no note of the last entry that is in it.

    Where all that the log says is in the file, all its entries are. Else nobody can tell: they may be older than what
    is in the file, as large commits are not in the log.

    Args:
        folder: of the store.
        databases: how many it has.
        is_in: whether an edit is in the file, or harms nothing if it is brought into it.

    Raises:
        StoreRefused: the log is damaged, or of another store, or it cannot be told what of it is in the file.
    """
    if not (folder / REDO).exists():
        return ClosedLog(folder, None, databases)
    first = first_number(folder / REDO)
    log = ClosedLog(folder, 0 if first is None else first - 1, databases)
    if first is None:  # as new: the next start begins to number
        return ClosedLog(folder, None, databases)
    if not all(is_in(edit) for edit in log.edits):
        what = "data.mdb beside it has lost the note of which commits are in it, and they are not all"
        raise StoreDamaged(log.file, what)
    log.is_unnoted = True
    return log
