"""What is on the disk when the power fails.

A write that was synced is there: a sync of its file, begun after it had ended, has ended; or the file was opened for
synchronous writing. Of the others, which the kernel may or may not have written back, anything may be there, in any
order, by the sector: the luck says what. Names come and go with syncs of their folders, and are otherwise lost from the
newest on, as file systems with a journal do.
"""

import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .recording import Event, Kind

SECTOR = 512
PAGE = 4096

Luck = Callable[[random.Random, int, int], int]
"""(dice, place of the sector in the file, how many unsynced versions of it there are) -> which is on the disk; 0
is what was synced last."""


def nothing_more(_dice: random.Random, _sector: int, _versions: int) -> int:
    """What was not synced is lost."""
    return 0


def all_of_it(_dice: random.Random, _sector: int, versions: int) -> int:
    """Everything had been written back."""
    return versions


def some_pages(dice: random.Random, sector: int, versions: int) -> int:
    """Some pages were written back, whole, in any order."""
    return random.Random(dice.getrandbits(8) << 48 | sector * SECTOR // PAGE).choice([0, versions])


def some_sectors(dice: random.Random, _sector: int, versions: int) -> int:
    """Some sectors were written back: pages are torn."""
    return dice.randint(0, versions)


LUCKS: dict[str, Luck] = {
    "nothing more": nothing_more,
    "all of it": all_of_it,
    "some pages": some_pages,
    "some sectors": some_sectors,
}


@dataclass(frozen=True, slots=True)
class Guards:
    """Which promises the disk keeps. Without one, it is as if the broker had not asked: the control of a test."""

    sync: bool = True
    synchronous_writes: bool = True
    folders: bool = True


@dataclass(slots=True)
class _File:
    """A file's history: what was written to it, and when syncs that ended began."""

    writes: list[Event] = field(default_factory=list)
    syncs: list[Event] = field(default_factory=list)
    is_folder: bool = False


class Disk:
    """All that was recorded, as a disk that may lose its power.

    Args:
        events: as recorded, from when the root did not exist.
        root: that they were recorded below.
    """

    def __init__(self, events: Sequence[Event], root: Path) -> None:
        self._events = events
        self._root = str(root)
        self._ends = [event.end for event in events]

    def fail(self, moment: int, luck: Luck, seed: int, target: Path, guards: Guards) -> None:
        """Make a folder of what is on the disk after the power failed.

        Args:
            moment: when, monotonic nanoseconds.
            luck: what becomes of unsynced sectors.
            seed: of the luck.
            target: the folder to make, as the root was.
            guards: what the disk keeps.
        """
        dice = random.Random(seed)
        begun = list(self._events[: bisect_right(self._ends, moment)])
        under_way = [event for event in self._events[len(begun) :] if event.start <= moment]
        files, names = self._files(begun, under_way, moment, guards, luck, dice)
        target.mkdir(parents=True)
        for path, number in sorted(names.items()):
            place = target / Path(path).relative_to(self._root)
            if files[number].is_folder:
                place.mkdir(parents=True, exist_ok=True)
        for path, number in names.items():
            place = target / Path(path).relative_to(self._root)
            if not files[number].is_folder and place.parent.exists():
                place.write_bytes(_content(files[number], moment, luck, dice, guards))

    def synced_writes(self, since: int, until: int) -> dict[str, list[int]]:
        """When synchronous writes ended within this time, by the folder below the root that they went to."""
        folders: dict[int, str] = {}
        writes: dict[str, list[int]] = defaultdict(list)
        for event in self._events:
            if event.kind is Kind.CREATE and event.paths[0] != self._root:
                folders[event.file] = Path(event.paths[0]).relative_to(self._root).parts[0]
            elif event.kind is Kind.WRITE and event.is_synced and since < event.end < until:
                writes[folders[event.file]].append(event.end)
        return writes

    def _files(
        self, begun: list[Event], under_way: list[Event], moment: int, guards: Guards, luck: Luck, dice: random.Random
    ) -> tuple[list[_File], dict[str, int]]:
        """All files there ever were, and which of them has which name on the disk."""
        files: list[_File] = []
        current: dict[int, int] = {}  # inode -> place in files: inodes are used again
        naming: list[tuple[Event, int]] = []  # events that change names, and the file they made
        for event in [*begun, *under_way]:
            match event.kind:
                case Kind.CREATE:
                    current[event.file] = len(files)
                    naming.append((event, len(files)))
                    files.append(_File(is_folder=event.offset == 1))
                case Kind.RENAME | Kind.REMOVE:
                    naming.append((event, -1))
                case Kind.SYNC if event.end <= moment:
                    if event.file in current:
                        files[current[event.file]].syncs.append(event)
                case Kind.WRITE | Kind.TRUNCATE | Kind.PUNCH if event.file in current:
                    files[current[event.file]].writes.append(event)
        return files, self._names(files, naming, guards, luck, dice)

    def _names(
        self, files: list[_File], naming: list[tuple[Event, int]], guards: Guards, luck: Luck, dice: random.Random
    ) -> dict[str, int]:
        folders = {event.paths[0]: number for event, number in naming if number >= 0}
        kept = 0  # names up to here are on the disk
        for place, (event, _) in enumerate(naming):
            if guards.folders and all(self._is_synced_in(files, folders, path, event.end) for path in event.paths):
                kept = place + 1
        kept += luck(dice, 0, len(naming) - kept)
        names: dict[str, int] = {}
        for event, number in naming[:kept]:
            paths = event.paths
            if event.kind is Kind.CREATE:
                names[paths[0]] = number
            elif event.kind is Kind.REMOVE:
                names.pop(paths[0], None)
            else:
                moved = {path: n for path, n in names.items() if path == paths[0] or path.startswith(paths[0] + "/")}
                for path, n in moved.items():
                    del names[path]
                    names[paths[1] + path[len(paths[0]) :]] = n
        return names

    def _is_synced_in(self, files: list[_File], folders: dict[str, int], path: str, end: int) -> bool:
        """Whether the folder that has the name was synced after it had been changed. The root's own folder is nobody's
        to sync here.
        """
        if path == self._root:
            return True
        number = folders.get(str(Path(path).parent))
        return number is not None and any(sync.start >= end for sync in files[number].syncs)


def _content(file: _File, moment: int, luck: Luck, dice: random.Random, guards: Guards) -> bytes:
    """A file as it is on the disk."""
    synced = max([sync.start for sync in file.syncs], default=-1) if guards.sync else -1
    size = max([event.offset + len(event.data) for event in file.writes if event.kind is Kind.WRITE], default=0)
    content = bytearray(size)
    volatile: dict[int, list[Event]] = defaultdict(list)
    length = 0
    for event in file.writes:
        is_kept = event.end <= synced or (event.is_synced and guards.synchronous_writes and event.end <= moment)
        if event.kind is Kind.TRUNCATE:
            length = event.offset
            continue
        if event.kind is Kind.PUNCH:
            end = event.offset + int.from_bytes(event.data, "little")
            if is_kept or luck(dice, event.offset // SECTOR, 1):
                content[event.offset : end] = bytes(max(0, min(end, size) - event.offset))
            continue
        length = max(length, event.offset + len(event.data))
        first, last = event.offset // SECTOR, (event.offset + len(event.data) - 1) // SECTOR
        if is_kept and not any(sector in volatile for sector in range(first, last + 1)):
            content[event.offset : event.offset + len(event.data)] = event.data
            continue
        for sector in range(first, last + 1):
            if is_kept:  # a synced write takes with it what was written to its sectors before
                for earlier in volatile.pop(sector, ()):
                    _put(content, earlier, sector)
                _put(content, event, sector)
            else:
                volatile[sector].append(event)
    for sector, events in sorted(volatile.items()):
        for event in events[: luck(dice, sector, len(events))]:
            _put(content, event, sector)
    return bytes(content[:length]) if length <= size else bytes(content) + bytes(length - size)


def _put(content: bytearray, event: Event, sector: int) -> None:
    """The part of a write that is in one sector."""
    start = max(event.offset, sector * SECTOR)
    end = min(event.offset + len(event.data), (sector + 1) * SECTOR)
    content[start:end] = event.data[start - event.offset : end - event.offset]
