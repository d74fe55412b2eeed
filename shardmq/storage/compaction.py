"""Compaction: a store's file is copied without its free pages, and the copy takes its place.

    data.mdb ─ copy ─► compact/data.mdb ─ sync ─ rename ─► data.mdb ─ sync the folder

Until the name is turned, the store is the old file; from then on it is the new one, which says the same. What a crash
leaves of a copy is removed by the next one, or by a start.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import lmdb

from shardmq.storage.engine import Room
from shardmq.storage.files import sync_file, sync_folder
from shardmq.storage.lmdb_environment import LmdbEnvironment, reopened

COPY_BYTES_MAX: Final = 16 << 20
"""What is copied while the store is in use: some hundredths of a second, in which nobody is served."""

COPY_AT_START_BYTES_MAX: Final = 128 << 20
"""What is copied at a start: about a second."""

SLACK_BYTES_MIN: Final = 64 << 20
PRESSED_BYTES_MIN: Final = 16 << 20
"""Fewer free pages are left where they are; and how many, where the disk is short of room."""

SLACK_SECONDS: Final = 10.0
"""How long pages were free at least, where others do not need them: a queue that is filled and emptied by turns would
only have them made again."""

REST_SECONDS: Final = 5.0
"""How long nothing is tried after a copy, or where none could be made."""

_ASIDE: Final = "compact"
COPY: Final = f"{_ASIDE}/data.mdb"
"""Where a copy is made, in the store's folder."""


def copy(environment: LmdbEnvironment) -> None:
    """Make a copy of a store's file without free pages, beside it.

    Raises:
        lmdb.Error: there is none, as where the disk has no room for it; the store is as it was.
        OSError: the same.
    """
    clear(environment.folder)
    aside = environment.folder / _ASIDE
    aside.mkdir()
    try:
        environment.env.copy(str(aside), compact=True)
        sync_file(environment.folder / COPY)
    except BaseException:
        clear(environment.folder)
        raise


def swap(environment: LmdbEnvironment) -> LmdbEnvironment:
    """Put the copy in the place of the file it was made of; nothing was written there since, and nobody reads it."""
    environment.env.close()
    os.rename(environment.folder / COPY, environment.file)
    sync_folder(environment.folder)
    clear(environment.folder)
    return reopened(environment)


def clear(folder: Path) -> None:
    """Remove what is left of a copy that was not finished."""
    if (folder / _ASIDE).exists():
        shutil.rmtree(folder / _ASIDE)


def is_worth_it(room: Room, copy_bytes_max: int, slack_bytes_min: int = SLACK_BYTES_MIN) -> bool:
    """Whether most of a store is free, and little is to be copied."""
    return room.inside >= max(slack_bytes_min, room.used) and room.used <= min(copy_bytes_max, room.free)


class Slack:
    """Knows when a store that is in use is to be compacted."""

    def __init__(self) -> None:
        self._rest_until = float("-inf")
        self._turned_at = float("-inf")
        self._least = (0, 0)  # bytes that were free throughout the last such time, and throughout this one so far

    def is_due(self, now: float, room: Room, is_pressed: bool) -> bool:
        """Whether it is to be now.

        Args:
            now: monotonic seconds.
            room: what the store has.
            is_pressed: whether the disk is short of room, so that others need what is free in the store.
        """
        last, this = self._least
        if now - self._turned_at >= SLACK_SECONDS:
            self._turned_at, self._least = now, (this, room.inside)
        else:
            self._least = last, min(this, room.inside)
        if now < self._rest_until:
            return False
        if is_pressed:
            return is_worth_it(room, COPY_BYTES_MAX, PRESSED_BYTES_MIN)
        return is_worth_it(Room(room.free, min(*self._least, room.inside), room.used), COPY_BYTES_MAX)

    def rest(self, now: float) -> None:
        """Note an attempt: try none for a while."""
        self._rest_until = now + REST_SECONDS
        self._least = 0, 0


UNMADE: Final = (lmdb.Error, OSError)
"""What is raised where a copy could not be made."""
