"""Builds the recorder, says how to start a broker under it, and reads what it logged."""

import os
import struct
import subprocess
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_SOURCE = Path(__file__).with_name("recorder.c")
_HEAD = struct.Struct("=BBQQQQQ")


class Kind(IntEnum):
    """What was done, as recorder.c numbers it."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    SYNC = 4
    RENAME = 5
    REMOVE = 6
    PUNCH = 7


@dataclass(frozen=True, slots=True)
class Event:
    """One recorded call; times are monotonic nanoseconds around it.

    Attributes:
        is_synced: of a write, whether the file was opened to be written synchronously.
        file: inode of the file or folder; 0 where `data` has paths only.
        offset: of a write or hole; the new size of a truncation.
        data: what was written, a path, or two with a zero byte between; of a hole, its length as u64.
    """

    kind: Kind
    is_synced: bool
    start: int
    end: int
    file: int
    offset: int
    data: bytes

    @property
    def paths(self) -> list[str]:
        """Of a creation, removal (one) or renaming (from, to)."""
        return [path.decode() for path in self.data.split(b"\0")]


class Recording:
    """A folder of logs.

    Args:
        folder: for the logs; it is made.
        root: what is written below this folder is recorded.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        folder.mkdir(parents=True)

    def variables(self) -> dict[str, str]:
        """The environment of processes that are to be recorded."""
        library = self.folder / "recorder.so"
        if not library.exists():
            compiler = os.environ.get("CC", "cc")
            subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _SOURCE, "-ldl"], check=True)
        return {"LD_PRELOAD": str(library), "POWER_LOG": str(self.folder), "POWER_ROOT": str(self.root)}

    def kill(self, pid: int, unsynced: bool = False) -> None:
        """End a process before its next call that is recorded; or in its next synchronous write to an LMDB file, with
        the bytes in the page cache and not on the disk.
        """
        aside = self.folder / f"asked-{pid}"
        aside.write_text("unsynced" if unsynced else "now")
        aside.rename(self.folder / f"kill-{pid}")

    def events(self, *, is_cut: bool = False) -> list[Event]:
        """All that was recorded, in order of ending.

        Args:
            is_cut: whether a process was killed at any moment: it may have been writing down its last call.
        """
        events: list[Event] = []
        for log in self.folder.iterdir():
            if log.name.isdigit():
                events += _read(log.read_bytes(), is_cut)
        return sorted(events, key=lambda event: (event.end, event.start))


def _read(log: bytes, is_cut: bool) -> list[Event]:
    events: list[Event] = []
    place = 0
    while place < len(log):
        if is_cut and len(log) < place + _HEAD.size:
            break
        kind, is_synced, start, end, file, offset, length = _HEAD.unpack_from(log, place)
        place += _HEAD.size
        if is_cut and len(log) < place + length:
            break
        assert place + length <= len(log), "a process ended in the middle of a record"
        events.append(Event(Kind(kind), bool(is_synced), start, end, file, offset, log[place : place + length]))
        place += length
    return events
