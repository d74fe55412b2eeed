"""A store with what is synced and what is not."""

from bisect import bisect_left
from collections import deque
from random import Random

from shardmq.replication.core.effects import Commit
from shardmq.replication.core.note import Key, Note
from shardmq.replication.core.state import Stored
from shardmq.storage.engine import Edit


class Rows:
    """What a store holds."""

    def __init__(self, note: Note) -> None:
        self.note = note
        self.clock = 0.0
        self.rows: dict[Key, bytes] = {}
        self.touched: dict[int, tuple[Key, ...]] = {}

    def apply(self, commit: Commit) -> None:
        rows = self.rows
        if commit.cut is not None:
            self.touched = {index: keys for index, keys in self.touched.items() if index <= commit.cut}
        if commit.clear is not None:
            start, end = commit.clear
            for key in [key for key in rows if key >= start and (end is None or key < end)]:
                del rows[key]
        for database, name, value in commit.edits:
            if value is None:
                rows.pop((database, name), None)
            else:
                rows[database, name] = bytes(value)
        for index, keys in commit.touched:
            self.touched[index] = keys
        released = commit.note.released
        if len(self.touched) > 8:
            self.touched = {index: keys for index, keys in self.touched.items() if index > released}
        self.note = commit.note
        self.clock = commit.clock

    def copy(self) -> "Rows":
        copied = Rows(self.note)
        copied.clock = self.clock
        copied.rows = dict(self.rows)
        copied.touched = dict(self.touched)
        return copied

    def stored(self) -> Stored:
        released = self.note.released
        touched = tuple(sorted((index, keys) for index, keys in self.touched.items() if index > released))
        return Stored(self.note, touched, self.clock)

    def term_at(self, index: int) -> int:
        """The term of the record at an index; 0 where there is none."""
        if not 0 < index <= self.note.index:
            return 0
        for term, first in reversed(self.note.history):
            if first <= index:
                return term
        return 0


class Disk:
    """A disk: commits are there at once, and synced later, in order."""

    def __init__(self, note: Note) -> None:
        self.synced = Rows(note)
        self.applied = Rows(note)
        self.unsynced: deque[Commit] = deque()
        self.syncing = 0
        self.stalled_until = 0.0

    def write(self, commit: Commit) -> None:
        self.applied.apply(commit)
        self.unsynced.append(commit)

    def begin_sync(self) -> int:
        """The commits that are synced next: all that are there now."""
        self.syncing = len(self.unsynced)
        return self.syncing

    def end_sync(self) -> int:
        """The serial number of the last commit that is synced now."""
        serial = 0
        for _ in range(self.syncing):
            commit = self.unsynced.popleft()
            self.synced.apply(commit)
            serial = commit.serial
        self.syncing = 0
        return serial

    def crash(self, random: Random) -> None:
        """Lose what is not synced, but for what reached the disk by itself."""
        for _ in range(random.randint(0, len(self.unsynced)) if self.unsynced else 0):
            self.synced.apply(self.unsynced.popleft())
        self.unsynced.clear()
        self.syncing = 0
        self.applied = self.synced.copy()

    def wipe(self) -> None:
        """Be replaced by an empty one."""
        self.synced = Rows(Note("", copied=(0, b"")))
        self.applied = self.synced.copy()
        self.unsynced.clear()
        self.syncing = 0

    def read(self, keys: tuple[Key, ...]) -> tuple[Edit, ...]:
        rows = self.applied.rows
        return tuple((key[0], key[1], rows.get(key)) for key in keys)

    def read_range(self, start: Key, count: int) -> tuple[tuple[Edit, ...], Key | None]:
        keys = sorted(self.applied.rows)
        first = bisect_left(keys, start)
        found = keys[first : first + count]
        end = keys[first + count] if first + count < len(keys) else None
        return tuple((key[0], key[1], self.applied.rows[key]) for key in found), end
