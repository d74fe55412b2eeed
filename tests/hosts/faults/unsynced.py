"""What was written and not synced is lost when a host loses its power: some of it, as luck has it."""

import os
import random
import struct
from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from tests.faults.power.disk import SECTOR, Luck

_HEAD: Final = struct.Struct("=BQQQQ")


class _Kind(IntEnum):
    UNDO = 1
    KEEP = 2
    SYNC = 3


@dataclass(frozen=True, slots=True)
class _Record:
    """As unsynced.c has it; `place` is where it begins in the log."""

    place: int
    kind: _Kind
    offset: int
    length: int
    size: int
    data: bytes

    @property
    def sectors(self) -> range:
        return range(self.offset // SECTOR, -(-(self.offset + self.length) // SECTOR))


class Disk:
    """The disk of a host, which may stall.

    Args:
        file: UNSYNCED_STALL of its processes.
    """

    def __init__(self, file: Path) -> None:
        file.write_bytes(b"\0")
        self.file = file

    def stall(self) -> None:
        """End no sync any more."""
        self._say(b"\1")

    def go_on(self) -> None:
        """Go on with what waits."""
        self._say(b"\0")

    def _say(self, byte: bytes) -> None:
        with self.file.open("r+b", buffering=0) as file:
            file.write(byte)


def lose_unsynced(root: Path, logs: Path, luck: Luck, seed: int) -> int:
    """Make the files below a folder what is on the disk of a host that lost its power; its processes are dead.

    Args:
        root: UNSYNCED_ROOT of them.
        logs: UNSYNCED_LOG; it is empty afterwards.
        luck: what becomes of unsynced sectors.
        seed: of the luck.

    Returns:
        How many unsynced writes there were.
    """
    dice = random.Random(seed)
    found = 0
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        log = logs / str(file.stat().st_ino)
        if log.exists():
            found += _revert(file, _read(log.read_bytes()), luck, dice)
    for log in logs.iterdir():
        log.unlink()
    return found


def _read(log: bytes) -> list[_Record]:
    """The records of a log; one that a process died over is none, as its write had not begun."""
    records, place = [], 0
    while place + _HEAD.size <= len(log):
        kind, offset, length, size, count = _HEAD.unpack_from(log, place)
        end = place + _HEAD.size + count
        if end > len(log):
            break
        data = log[place + _HEAD.size : end]
        records.append(_Record(place, _Kind(kind), offset, length, size, data))
        place = end
    synced = max((record.offset for record in records if record.kind is _Kind.SYNC), default=0)
    return [record for record in records if record.place >= synced and record.kind is not _Kind.SYNC]


def _revert(file: Path, records: list[_Record], luck: Luck, dice: random.Random) -> int:
    volatile: dict[int, list[_Record]] = defaultdict(list)
    sizes: list[int] = []
    size_min = 0
    for record in records:
        if record.kind is _Kind.KEEP:  # a synced write takes with it what was written to its sectors before
            size_min = max(size_min, record.offset + record.length)
            for sector in record.sectors:
                volatile.pop(sector, None)
        else:
            sizes.append(record.size)
            for sector in record.sectors:
                volatile[sector].append(record)
    with file.open("r+b") as content:
        for sector, versions in sorted(volatile.items()):
            for record in reversed(versions[luck(dice, sector, len(versions)) :]):
                _put_back(content.fileno(), record, sector)
        kept = luck(dice, 0, len(sizes))
        now = os.fstat(content.fileno()).st_size
        content.truncate(max(size_min, sizes[kept] if kept < len(sizes) else now))
    return len(sizes)


def _put_back(file: int, record: _Record, sector: int) -> None:
    """What a sector had before a write; what was behind the end of the file is zero."""
    start = max(record.offset, sector * SECTOR)
    end = min(record.offset + record.length, (sector + 1) * SECTOR)
    before = record.data[start - record.offset : end - record.offset]
    os.pwrite(file, before.ljust(end - start, b"\0"), start)
