"""What the redo log of a closed store has that is not in its file, read without changing a byte of it."""

from pathlib import Path

from shardmq.storage.redo.edits import LoggedEdit, edits_in
from shardmq.storage.redo.log import REDO, StoredLog


class ClosedLog:
    """The edits that the next start would bring into the file.

    Args:
        folder: of the store.
        applied: number of the last entry that is in the file; None for a store that never had a log.
        databases: how many the store has.

    Attributes:
        overlay: the newest value of each row, by database and key; None is deleted.
        last: number of the last entry.
        is_new: whether there is no log yet.

    Raises:
        StoreRefused: the log is missing, damaged, or of another store.
    """

    def __init__(self, folder: Path, applied: int | None, databases: int) -> None:
        self.overlay: dict[int, dict[bytes, bytes | None]] = {}
        self.last, self.is_new = 0, applied is None
        if applied is None:
            return
        log = StoredLog(folder / REDO, applied)
        self.last = log.last
        for payload in log.pending:
            for number, key, value in edits_in(log.file, payload, databases):
                self.overlay.setdefault(number, {})[key] = value

    @property
    def edits(self) -> list[LoggedEdit]:
        """The edits that are not in the file."""
        return [(number, key, value) for number, rows in self.overlay.items() for key, value in rows.items()]
